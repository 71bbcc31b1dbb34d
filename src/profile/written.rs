//! A profile as JSON of its own schema: every value written out, so that it reads back equal even where a
//! later version has other defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::port::PortName;
use crate::port_pool::Want;
use crate::supervision::{
    self, Backoff, ExitCause, GiveUp, ProbeKind, ProbeTiming, RestartPolicy, Then, Window,
};
use crate::time::Spelled;

use super::document::{Node, Value};
use super::{
    Audience, Command, DeclaredPort, HttpProbe, ListenerOwner, OnCutOff, PlacementRule, Probe,
    Profile, Replicas, Template, Visibility, host_list,
};

type Entries<'a> = Vec<(&'a str, Node)>;

impl Profile {
    /// The tree that reads back as this profile.
    pub(super) fn written(&self) -> Node {
        let mut all: Entries<'_> = vec![
            ("kind", Node::text("service")),
            ("name", Node::text(&self.name)),
        ];
        all.extend((self.namespace.as_ref()).map(|name| ("namespace", Node::text(name))));
        let replicas = match self.replicas {
            Replicas::Count(count) => Node::number(count),
            Replicas::PerHost => Node::text("per-host"),
        };
        all.push(("replicas", replicas));
        all.push(("command", command(&self.command)));
        all.extend((self.pre_exec.as_ref()).map(|run| ("pre_exec", command(run))));
        all.extend((self.working_dir.as_ref()).map(|path| ("working_dir", Node::text(path))));
        if !self.env.is_empty() {
            all.push(("env", templates(&self.env)));
        }
        all.extend((self.env_file.as_ref()).map(|path| ("env_file", Node::text(path))));
        if !self.env_secret.is_empty() {
            all.push((
                "env_secret",
                Node::list(self.env_secret.iter().map(Node::text)),
            ));
        }
        if !self.labels.is_empty() {
            all.push(("labels", texts(&self.labels)));
        }
        let visibility = match &self.visibility {
            Visibility::Private => Node::text("private"),
            Visibility::Cluster => Node::text("cluster"),
            Visibility::Listed(list) => audiences(list),
        };
        all.push(("visibility", visibility));
        if !self.logs.is_empty() {
            all.push(("logs", audiences(&self.logs)));
        }
        all.push(("rerunnable", Value::Flag(self.rerunnable).into()));
        let on_cut_off = match self.on_cut_off {
            OnCutOff::Keep => "keep",
            OnCutOff::Stop => "stop",
        };
        all.push(("on_cut_off", Node::text(on_cut_off)));
        all.push(("min_up", span(self.supervision.min_up)));
        if !self.ports.is_empty() {
            let ports = self.ports.iter();
            let ports = ports.map(|port| (port.name.to_string(), declared_port(port)));
            all.push(("ports", Node::map(ports)));
        }
        all.push(("restart", self.restart()));
        let config = &self.supervision;
        let probes = [
            (
                ProbeKind::Startup,
                "startup",
                &self.startup,
                &config.startup,
            ),
            (
                ProbeKind::Liveness,
                "liveness",
                &self.liveness,
                &config.liveness,
            ),
            (
                ProbeKind::Readiness,
                "readiness",
                &self.readiness,
                &config.readiness,
            ),
        ];
        for (kind, name, form, timing) in probes {
            if let (Some(form), Some(timing)) = (form, timing) {
                all.push((name, probe(kind, form, timing)));
            }
        }
        all.push(("stop", self.stop()));
        if self.placement != PlacementRule::default() {
            all.push(("placement", placement(&self.placement)));
        }
        Node::table(all)
    }

    fn restart(&self) -> Node {
        let config = &self.supervision;
        let policy = match config.restart {
            RestartPolicy::Always => "always",
            RestartPolicy::OnFailure => "on-failure",
            RestartPolicy::Never => "never",
        };
        let give_up = match &config.give_up {
            None => Node::text("never"),
            Some(rule) => give_up(rule, &config.backoff, config.startup.as_ref()),
        };
        let Backoff {
            initial,
            max,
            jitter_permille,
            reset_after,
        } = config.backoff;
        let jitter = f64::from(jitter_permille) / 1000.0;
        let backoff = Node::table(vec![
            ("initial", span(initial)),
            ("max", span(max)),
            ("jitter", Value::Decimal(jitter).into()),
            ("reset_after", span(reset_after)),
        ]);
        Node::table(vec![
            ("policy", Node::text(policy)),
            ("backoff", backoff),
            ("give_up", give_up),
            ("success_exit", exits(&config.success_exit)),
            ("no_restart_exit", exits(&config.no_restart_exit)),
        ])
    }

    fn stop(&self) -> Node {
        let rule = &self.supervision.stop;
        Node::table(vec![
            ("signal", signal_name(self.stop_signal)),
            ("drain", span(rule.drain)),
            ("grace", span(rule.grace)),
            ("unkillable_after", span(rule.unkillable_after)),
        ])
    }
}

fn span(span: Duration) -> Node {
    Node::text(Spelled(span))
}

fn give_up(rule: &GiveUp, backoff: &Backoff, startup: Option<&ProbeTiming>) -> Node {
    let mut all: Entries<'_> = vec![("max_restarts", Node::number(rule.max_restarts))];
    let by_rule = Window::Span(GiveUp::unwritten_window(
        rule.max_restarts,
        backoff,
        startup,
    ));
    match rule.window {
        // By the rule it may be longer than what may be written.
        window if window == by_rule => {}
        Window::Span(window) => all.push(("window", span(window))),
        Window::Lifetime => all.push(("window", Node::text("lifetime"))),
    }
    match rule.then {
        Then::Exit => all.push(("then", Node::text("exit"))),
        Then::Requeue { rest, max_requeues } => {
            all.push(("then", Node::text("requeue")));
            all.push(("rest", span(rest)));
            all.push(("max_requeues", Node::number(max_requeues)));
        }
    }
    Node::table(all)
}

fn exits(exits: &BTreeSet<ExitCause>) -> Node {
    Node::list(exits.iter().map(|exit| match exit {
        ExitCause::Code(code) => Node::number(*code),
        ExitCause::Signal(number) => signal_name(*number),
    }))
}

fn signal_name(number: i32) -> Node {
    // Only named signals are ever read.
    Node::text(supervision::signal_name(number).unwrap_or("TERM"))
}

fn declared_port(port: &DeclaredPort) -> Node {
    let want = match port.want {
        Want::Fixed(number) => ("fixed", Node::number(number.number())),
        Want::Any { count } => ("any", Node::number(count.get())),
    };
    let mut all: Entries<'_> = vec![want, ("protocol", Node::text(port.protocol))];
    all.extend((port.within.as_ref()).map(|range| ("range", Node::text(range))));
    all.push(("publish", Value::Flag(port.publish).into()));
    all.extend((port.env.as_ref()).map(|name| ("env", Node::text(name))));
    all.extend((port.app_protocol.as_ref()).map(|word| ("app_protocol", Node::text(word))));
    all.extend((port.path.as_ref()).map(|path| ("path", Node::text(path))));
    all.extend((port.network.as_ref()).map(|name| ("network", Node::text(name))));
    let owner = match port.owner {
        ListenerOwner::Run => "run",
        ListenerOwner::User => "user",
        ListenerOwner::Any => "any",
    };
    all.push(("owner", Node::text(owner)));
    Node::table(all)
}

fn probe(kind: ProbeKind, form: &Probe, timing: &ProbeTiming) -> Node {
    let form = match form {
        Probe::Http(http) => ("http", http_form(http)),
        Probe::Tcp { port, host } => ("tcp", Node::table(target(port, *host))),
        Probe::Command(run) => ("command", command(run)),
        Probe::Listening => ("listening", Value::Flag(true).into()),
    };
    let mut all: Entries<'_> = vec![
        form,
        ("initial_delay", span(timing.initial_delay)),
        ("interval", span(timing.interval)),
        ("timeout", span(timing.timeout)),
        ("failure_threshold", Node::number(timing.failure_threshold)),
    ];
    if kind == ProbeKind::Readiness {
        all.push(("success_threshold", Node::number(timing.success_threshold)));
    }
    Node::table(all)
}

fn target(port: &PortName, host: Option<IpAddr>) -> Entries<'static> {
    let mut all = vec![("port", Node::text(port))];
    all.extend(host.map(|host| ("host", Node::text(host))));
    all
}

fn http_form(http: &HttpProbe) -> Node {
    let mut all = target(&http.port, http.host);
    all.push(("path", Node::text(&http.path)));
    let expect = http.expect.iter().map(|(low, high)| match low == high {
        true => Node::number(*low),
        false => Node::text(format_args!("{low}-{high}")),
    });
    all.push(("expect", Node::list(expect)));
    if !http.headers.is_empty() {
        all.push(("headers", templates(&http.headers)));
    }
    all.extend((http.require_body.as_ref()).map(|text| ("require_body", Node::text(text))));
    Node::table(all)
}

fn placement(rule: &PlacementRule) -> Node {
    let mut all: Entries<'_> = Vec::new();
    for (name, hosts) in [("hosts", &rule.hosts), ("exclude", &rule.exclude)] {
        if !hosts.is_empty() {
            let lists = host_list::fold(hosts).into_iter().map(Node::text);
            all.push((name, Node::list(lists)));
        }
    }
    if !rule.labels.is_empty() {
        all.push(("labels", texts(&rule.labels)));
    }
    Node::table(all)
}

fn command(command: &Command) -> Node {
    match command {
        Command::Argv(arguments) => Node::list(arguments.iter().map(Node::text)),
        Command::Shell(line) => Node::text(line),
    }
}

fn audiences(list: &[Audience]) -> Node {
    Node::list(list.iter().map(|audience| match audience {
        Audience::Group(name) => Node::text(format_args!("group:{name}")),
        Audience::User(name) => Node::text(format_args!("user:{name}")),
    }))
}

fn templates(map: &BTreeMap<String, Template>) -> Node {
    Node::map(
        map.iter()
            .map(|(name, value)| (name.clone(), Node::text(value))),
    )
}

fn texts(map: &BTreeMap<String, String>) -> Node {
    Node::map(
        map.iter()
            .map(|(name, value)| (name.clone(), Node::text(value))),
    )
}
