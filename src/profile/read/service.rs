//! The whole profile, top down.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Label, Namespace};
use crate::port::excerpt;
use crate::profile::document::Node;
use crate::profile::{Command, OnCutOff, Probe, Profile, Replicas};
use crate::supervision;

use super::value::secs;
use super::{Field, Reader, Table, Value, form, place, ports, probe, restart};

const KEYS: &[&str] = &[
    "kind",
    "name",
    "namespace",
    "replicas",
    "command",
    "pre_exec",
    "working_dir",
    "env",
    "env_file",
    "env_secret",
    "labels",
    "visibility",
    "logs",
    "rerunnable",
    "on_cut_off",
    "min_up",
    "ports",
    "restart",
    "startup",
    "liveness",
    "readiness",
    "stop",
    "placement",
    "extends",
];

/// Every table of the schema with its keys; `NAME` stands for a port's own name.
pub(in crate::profile) const TABLES: &[(&str, &[&str])] = &[
    ("", KEYS),
    ("ports.NAME", ports::KEYS),
    ("restart", restart::KEYS),
    ("restart.backoff", restart::BACKOFF_KEYS),
    ("restart.give_up", restart::GIVE_UP_KEYS),
    ("startup", probe::STARTUP_KEYS),
    ("liveness", probe::KEYS),
    ("readiness", probe::KEYS),
    ("liveness.http", form::HTTP_KEYS),
    ("liveness.tcp", form::TCP_KEYS),
    ("stop", restart::STOP_KEYS),
    ("placement", place::KEYS),
];

impl<'d> Reader<'d> {
    /// The profile of this document; sound only if nothing was noted.
    pub(in crate::profile) fn profile(&mut self, document: &'d Node) -> Option<Profile> {
        let root = self.table(&Field::root(document), KEYS)?;
        if let Some(field) = root.field("kind") {
            self.word(&field, &[("service", ())]);
        }
        if let Some(field) = root.field("extends") {
            // The layers were put together before; one that is left has nothing to stand on here.
            let problem = "it stands here twice, or in a profile that is complete";
            self.refuse(
                &field,
                problem,
                "write it once, in a profile that is submitted",
            );
        }
        let name = self.name(&root);
        let namespace: Option<Namespace> = root.field("namespace").and_then(|field| {
            let allowed = "write an account or a group: 1 to 64 of A-Z, a-z, 0-9 and . _ @ + -";
            self.parsed(&field, "a namespace", allowed)
        });
        let replicas = self.replicas(root.field("replicas"));
        let ports = self.ports(root.field("ports"));
        let env = self.env(root.field("env"), &ports.names);
        let env_secret = self.env_secret(root.field("env_secret"), &env);
        self.aliases(&ports.aliases, &env, &env_secret);
        let command = self.required_command(&root, &ports.names, &env_secret);
        let pre_exec = root.field("pre_exec").and_then(|field| {
            let command = self.command(&field, &ports.names)?;
            self.warn_of_secrets(&field, &command, &env_secret);
            Some(command)
        });
        let probes = self.probes(&root, &ports, &env_secret);
        let startup = probes.startup.as_ref().map(|(_, timing)| timing);
        let restart = self.restart(root.field("restart"), startup);
        let (stop, stop_signal) = self.stop(root.field("stop"));
        let listens = probe::listens(&ports);
        let min_up = match &probes.readiness {
            Some((Probe::Listening, _)) if !listens => secs(1),
            Some(_) => Duration::ZERO,
            None => secs(1),
        };
        let min_up = self.span_or(root.field("min_up"), &(Duration::ZERO..=secs(3600)), min_up);
        let words = [("keep", OnCutOff::Keep), ("stop", OnCutOff::Stop)];
        let on_cut_off = self.word_or(root.field("on_cut_off"), &words, OnCutOff::Keep);
        let rerunnable = self.flag_or(root.field("rerunnable"), true);
        let working_dir = (root.field("working_dir")).and_then(|field| self.path(&field));
        let env_file = (root.field("env_file")).and_then(|field| self.path(&field));
        let labels = self.labels(root.field("labels"));
        let visibility = self.visibility(root.field("visibility"));
        let logs = (root.field("logs")).map(|field| self.audiences(&field));
        let placement = self.placement(root.field("placement"));
        let (startup, startup_timing) = probes.startup.unzip();
        let (liveness, liveness_timing) = probes.liveness.unzip();
        let (readiness, readiness_timing) = probes.readiness.unzip();
        // Everything has been looked at; only now may something missing end it.
        Some(Profile {
            name: name?,
            namespace,
            replicas,
            command: command?,
            pre_exec,
            working_dir,
            env,
            env_file,
            env_secret,
            labels,
            visibility,
            logs: logs.unwrap_or_default(),
            rerunnable,
            on_cut_off,
            ports: ports.declared,
            supervision: Arc::new(supervision::Config {
                restart: restart.policy,
                backoff: restart.backoff,
                give_up: restart.give_up,
                success_exit: restart.success_exit,
                no_restart_exit: restart.no_restart_exit,
                startup: startup_timing,
                liveness: liveness_timing,
                readiness: readiness_timing,
                min_up,
                stop,
            }),
            stop_signal,
            startup,
            liveness,
            readiness,
            placement,
        })
    }

    fn name(&mut self, root: &Table<'d>) -> Option<Label> {
        const NAME: &str =
            "write 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit";
        let Some(field) = root.field("name") else {
            self.miss(
                "name",
                "name",
                root.at,
                "the service has no name",
                "write name = \"…\"",
            );
            return None;
        };
        self.parsed(&field, "a service name", NAME)
    }

    fn required_command(
        &mut self,
        root: &Table<'d>,
        ports: super::command::Names<'_>,
        env_secret: &[String],
    ) -> Option<Command> {
        let Some(field) = root.field("command") else {
            let allowed = "write command = [\"PROGRAM\", …]";
            self.miss(
                "command",
                "command",
                root.at,
                "what to run is not said",
                allowed,
            );
            return None;
        };
        let command = self.command(&field, ports)?;
        self.warn_of_secrets(&field, &command, env_secret);
        Some(command)
    }

    fn replicas(&mut self, field: Option<Field<'d>>) -> Replicas {
        let most = Replicas::MOST;
        let Some(field) = field else {
            return Replicas::Count(1);
        };
        match &field.node.value {
            Value::Text(text) if text == "per-host" => Replicas::PerHost,
            Value::Text(text) => {
                let problem = format_args!("{:?} is no number of replicas", excerpt(text));
                let allowed = format!("write a whole number from 0 to {most}, or \"per-host\"");
                self.refuse(&field, problem, &allowed);
                Replicas::Count(1)
            }
            _ => {
                let count = self.number(&field, &(0..=most), ", or \"per-host\"");
                Replicas::Count(count.unwrap_or(1))
            }
        }
    }
}
