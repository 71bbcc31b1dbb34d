//! An example or three of each command, and where to go on.

/// What is taught of one command.
pub(super) struct Lesson {
    /// Its name, such as `host drain`; empty for the program itself.
    pub(super) command: &'static str,
    /// What one wants, and the line that does it.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Commands and pages.
    pub(super) see: &'static [&'static str],
}

impl Lesson {
    /// As it stands below the options.
    pub(super) fn text(&self) -> String {
        let mut text = match self.examples.len() {
            1 => "Example:\n".to_owned(),
            _ => "Examples:\n".to_owned(),
        };
        for (wish, line) in self.examples {
            text.push_str(&format!("  {wish}:\n    {line}\n"));
        }
        if !self.see.is_empty() {
            text.push_str(&format!("\nSee also: {}", self.see.join(", ")));
        }
        text
    }
}

/// Every command that people call has one.
pub(super) const LESSONS: &[Lesson] = &[
    Lesson {
        command: "",
        examples: &[
            (
                "A first service, on this machine",
                "portreeve dev profiles/hello.toml",
            ),
            (
                "Run a service on the cluster, and learn where it answers once it is ready",
                "portreeve submit web.toml --wait && portreeve endpoints web",
            ),
            ("Why it is not ready", "portreeve why web"),
        ],
        see: &["portreeve COMMAND --help", "docs/cli.md"],
    },
    Lesson {
        command: "dev",
        examples: &[
            (
                "One service, gone without a trace at Ctrl-C",
                "portreeve dev profiles/hello.toml",
            ),
            (
                "Three hosts, to try a drain or the loss of one",
                "portreeve dev --hosts 3 web.toml",
            ),
            (
                "Kept, and continued by the same line later",
                "portreeve dev --data ./cluster web.toml",
            ),
        ],
        see: &["portreeve endpoints", "portreeve sim", "docs/hosts.md"],
    },
    Lesson {
        command: "check",
        examples: &[
            ("Every profile here", "portreeve check *.toml"),
            (
                "With a field set over it, as a submission would",
                "portreeve check web.toml --set replicas=3",
            ),
            (
                "For a program",
                "portreeve check web.toml -o json | jq '.[].errors'",
            ),
        ],
        see: &["portreeve explain", "docs/profile.md"],
    },
    Lesson {
        command: "explain",
        examples: &[
            (
                "Would it fit now, and what does the profile come to",
                "portreeve explain web.toml",
            ),
            (
                "Why a service waits, host by host",
                "portreeve explain --service web",
            ),
            (
                "What its restart rule does in time",
                "portreeve explain web.toml --show forecast",
            ),
        ],
        see: &["portreeve why", "portreeve check", "docs/profile.md"],
    },
    Lesson {
        command: "submit",
        examples: &[
            (
                "Create it, and wait until it is ready",
                "portreeve submit web.toml --wait",
            ),
            (
                "Replace what runs, one replica at a time",
                "portreeve submit web.toml --replace",
            ),
            (
                "From a program, with a field set over it",
                "make-profile | portreeve submit - --set replicas=3",
            ),
        ],
        see: &[
            "portreeve check",
            "portreeve wait",
            "portreeve why",
            "docs/profile.md",
        ],
    },
    Lesson {
        command: "services",
        examples: &[
            ("What there is", "portreeve services"),
            (
                "Those that are not whole",
                "portreeve services -o json | jq '.services[] | select(.ready < .desired) | .service'",
            ),
        ],
        see: &["portreeve service", "portreeve why"],
    },
    Lesson {
        command: "service",
        examples: &[
            ("One's own service", "portreeve service web"),
            ("That of somebody else", "portreeve service web.alice"),
            (
                "The ports of its first replica",
                "portreeve service web -o json | jq '.replicas[0].ports'",
            ),
        ],
        see: &["portreeve why", "portreeve events", "portreeve logs"],
    },
    Lesson {
        command: "scale",
        examples: &[(
            "Three replicas, and on when they are ready",
            "portreeve scale web 3 && portreeve wait web",
        )],
        see: &["portreeve wait", "portreeve explain"],
    },
    Lesson {
        command: "start",
        examples: &[(
            "Again, with a fresh restart budget",
            "portreeve start web && portreeve wait web",
        )],
        see: &["portreeve stop", "portreeve restart", "portreeve why"],
    },
    Lesson {
        command: "restart",
        examples: &[
            (
                "One replica after the other, until all are through",
                "portreeve restart web && portreeve wait web",
            ),
            ("One replica", "portreeve restart web/2"),
        ],
        see: &["portreeve wait", "portreeve submit"],
    },
    Lesson {
        command: "stop",
        examples: &[(
            "Stop it, and wait until nothing of it runs",
            "portreeve stop web && portreeve wait web --gone",
        )],
        see: &["portreeve start", "portreeve kill", "portreeve delete"],
    },
    Lesson {
        command: "kill",
        examples: &[("The third replica", "portreeve kill web/2")],
        see: &["portreeve stop", "portreeve start"],
    },
    Lesson {
        command: "delete",
        examples: &[(
            "Stop and forget",
            "portreeve stop web && portreeve wait web --gone && portreeve delete web",
        )],
        see: &["portreeve stop"],
    },
    Lesson {
        command: "logs",
        examples: &[
            ("Follow the first replica", "portreeve logs web -f"),
            (
                "What another wrote to standard error at last",
                "portreeve logs web/2 --stderr --tail 2000",
            ),
        ],
        see: &["portreeve events", "portreeve why", "docs/jobs.md"],
    },
    Lesson {
        command: "events",
        examples: &[
            ("Of the last hour", "portreeve events web --since -1h"),
            ("As they happen", "portreeve events web -f"),
            ("Of a host", "portreeve events --host n07"),
        ],
        see: &["portreeve why", "portreeve logs"],
    },
    Lesson {
        command: "why",
        examples: &[
            ("What holds a service up", "portreeve why web"),
            (
                "One replica, with every turn of its record",
                "portreeve why web/0 --all",
            ),
        ],
        see: &["portreeve explain", "portreeve events", "docs/failures.md"],
    },
    Lesson {
        command: "run",
        examples: &[
            ("A profile, in a job script", "portreeve run web.toml"),
            (
                "A command, as each task of a Slurm step",
                "srun portreeve run --port http --ready http:/health -- ./server --port '${port.http}'",
            ),
            (
                "With more time to drain than the scheduler gives by default",
                "portreeve run web.toml --set stop.drain=60s --kill-wait 120s",
            ),
        ],
        see: &["portreeve endpoints", "portreeve env", "docs/run.md"],
    },
    Lesson {
        command: "endpoints",
        examples: &[
            (
                "Ask a ready replica",
                "curl \"http://$(portreeve endpoints web --one)/\"",
            ),
            (
                "What is not ready, and why",
                "portreeve endpoints web --all",
            ),
            (
                "A line of one's own",
                "portreeve endpoints web --template '{% for e in endpoints %}server {{ e.authority }};{% endfor %}'",
            ),
        ],
        see: &["portreeve wait", "portreeve watch", "docs/endpoints.md"],
    },
    Lesson {
        command: "wait",
        examples: &[
            (
                "Until all are ready, then the first address",
                "portreeve wait web && portreeve endpoints web --one",
            ),
            (
                "For a service that a job is about to create",
                "portreeve wait llm --allow-missing --ready 2 --timeout 30m",
            ),
            ("Until nothing of it runs", "portreeve wait web --gone"),
        ],
        see: &["portreeve endpoints", "portreeve watch"],
    },
    Lesson {
        command: "watch",
        examples: &[
            ("Each change as it comes", "portreeve watch web"),
            (
                "Keep a proxy's list, and reload it at each change",
                "portreeve watch web --output backends.conf --template-file backends.jinja --exec 'nginx -s reload'",
            ),
            (
                "Every service of a user",
                "portreeve watch --prefix '' -o json",
            ),
        ],
        see: &["portreeve endpoints", "docs/endpoints.md"],
    },
    Lesson {
        command: "whoami",
        examples: &[("What one may see", "portreeve whoami")],
        see: &["docs/cli.md"],
    },
    Lesson {
        command: "controller",
        examples: &[
            (
                "By hand, all in folders of one's own",
                "portreeve controller --data ./truth --run-dir ./run",
            ),
            (
                "On a cluster, with limits of users and the site's profiles",
                "portreeve controller --limits /etc/portreeve/limits.toml --site-profiles /etc/portreeve/profiles",
            ),
        ],
        see: &["portreeve agent", "portreeve backup", "docs/hosts.md"],
    },
    Lesson {
        command: "agent",
        examples: &[
            (
                "Whether this host could join, and what is off",
                "portreeve agent --check",
            ),
            (
                "With numbers that nobody else uses here",
                "portreeve agent --ports 20000-29999 --ephemeral exclude",
            ),
            (
                "Before the machine goes down",
                "portreeve agent --shutdown --timeout 90s",
            ),
        ],
        see: &["portreeve hosts", "portreeve host", "docs/hosts.md"],
    },
    Lesson {
        command: "hosts",
        examples: &[
            ("All", "portreeve hosts"),
            ("Those with a label", "portreeve hosts --label gpu=h100"),
        ],
        see: &["portreeve host", "portreeve ports"],
    },
    Lesson {
        command: "host",
        examples: &[
            ("One host", "portreeve host n07"),
            (
                "Take it out of service for half an hour at most",
                "portreeve host drain n07 --deadline 30m",
            ),
        ],
        see: &["portreeve hosts", "docs/hosts.md"],
    },
    Lesson {
        command: "host show",
        examples: &[(
            "A host that is called like an order",
            "portreeve host show drain",
        )],
        see: &["portreeve hosts", "portreeve ports"],
    },
    Lesson {
        command: "host drain",
        examples: &[
            (
                "Move everything, and stop what is left after half an hour",
                "portreeve host drain n07 --deadline 30m",
            ),
            (
                "Order it, and look later",
                "portreeve host drain n07 --no-wait && portreeve host n07",
            ),
        ],
        see: &["portreeve host undrain", "docs/hosts.md"],
    },
    Lesson {
        command: "host undrain",
        examples: &[("Back into service", "portreeve host undrain n07")],
        see: &["portreeve host drain"],
    },
    Lesson {
        command: "host down",
        examples: &[
            (
                "It is silent, and what may run elsewhere shall",
                "portreeve host down n07",
            ),
            (
                "Its power is off: its ports are free at once",
                "portreeve host down n07 --fenced",
            ),
        ],
        see: &["portreeve host remove", "docs/failures.md"],
    },
    Lesson {
        command: "host remove",
        examples: &[(
            "It will not come back",
            "portreeve host down n07 --fenced && portreeve host remove n07",
        )],
        see: &["portreeve host down"],
    },
    Lesson {
        command: "host adopt",
        examples: &[("After a restore", "portreeve host adopt n07 web.alice/0")],
        see: &["portreeve host fence", "portreeve restore"],
    },
    Lesson {
        command: "host fence",
        examples: &[
            ("One", "portreeve host fence n07 web.alice/0"),
            (
                "Everything that is not known",
                "portreeve host fence n07 --all",
            ),
        ],
        see: &["portreeve host adopt"],
    },
    Lesson {
        command: "ports",
        examples: &[
            ("Who holds what", "portreeve ports n07"),
            (
                "Who had a number when the alarm came",
                "portreeve ports n07 --port 20017 --at 2026-11-30T02:00:00Z",
            ),
            ("How many are free", "portreeve ports n07 --counts"),
        ],
        see: &["portreeve hosts", "docs/ports.md"],
    },
    Lesson {
        command: "backup",
        examples: &[
            (
                "Each night, of the running controller",
                "portreeve backup --force /backup/portreeve.gz",
            ),
            (
                "Of a controller that does not run",
                "portreeve backup --data /var/lib/portreeve /backup/portreeve.gz",
            ),
        ],
        see: &["portreeve restore", "docs/store.md"],
    },
    Lesson {
        command: "restore",
        examples: &[(
            "In place of what is there, which is kept beside",
            "portreeve restore /backup/portreeve.gz --force",
        )],
        see: &["portreeve backup", "portreeve host adopt", "docs/store.md"],
    },
    Lesson {
        command: "sim",
        examples: &[
            (
                "What clients see of a replacement",
                "portreeve sim scenarios/rolling-replacement.toml",
            ),
            (
                "Line by line, of one service on one host",
                "portreeve sim FILE --timeline --service web --host n1",
            ),
            (
                "Real clients before hosts that do not exist",
                "portreeve sim FILE --serve --run-dir ./run",
            ),
        ],
        see: &["portreeve explain", "portreeve replay", "docs/sim.md"],
    },
    Lesson {
        command: "worker",
        examples: &[(
            "Without a controller: a profile, its numbers, and status lines on descriptor 3",
            "portreeve worker --profile web.toml --grant grant.json --status-fd 3 3>status.ndjson",
        )],
        see: &["portreeve env", "docs/worker.md"],
    },
    Lesson {
        command: "probe http",
        examples: &[(
            "Whether it says that it is well",
            "portreeve probe http --port 8080 --path /health --expect 200-299",
        )],
        see: &["docs/supervision.md"],
    },
    Lesson {
        command: "probe tcp",
        examples: &[(
            "And whether it is this process that answers",
            "portreeve probe tcp --port 5432 --pid 4711",
        )],
        see: &["docs/supervision.md"],
    },
    Lesson {
        command: "probe listening",
        examples: &[(
            "A port and a block of them",
            "portreeve probe listening --port 8080 --port 9000-9003 --address 10.1.0.17 --pid 4711",
        )],
        see: &["docs/supervision.md"],
    },
    Lesson {
        command: "probe command",
        examples: &[(
            "A program that knows",
            "portreeve probe command --timeout 5s -- pg_isready -p 5432",
        )],
        see: &["docs/supervision.md"],
    },
    Lesson {
        command: "replay",
        examples: &[(
            "From a replica's folder",
            "portreeve replay supervision.jsonl",
        )],
        see: &["portreeve why", "portreeve sim", "docs/supervision.md"],
    },
    Lesson {
        command: "env",
        examples: &[
            ("Inside a job: its own", "portreeve env"),
            (
                "What a job of this profile would see with these numbers",
                "portreeve env web.toml --grant grant.json",
            ),
            (
                "One's own service's variables, in a shell beside it",
                "eval \"$(portreeve env web.toml --grant grant.json --export)\"",
            ),
        ],
        see: &["portreeve run", "portreeve worker", "docs/ports.md"],
    },
    Lesson {
        command: "hello",
        examples: &[
            ("By hand", "portreeve hello --port 8080"),
            (
                "One that fails after a minute",
                "portreeve hello --port 8080 --exit-after 1m --exit-code 3",
            ),
        ],
        see: &["portreeve dev"],
    },
    Lesson {
        command: "completions",
        examples: &[
            (
                "For this user's bash",
                "portreeve completions bash > ~/.local/share/bash-completion/completions/portreeve",
            ),
            (
                "For zsh, in a folder of its fpath",
                "portreeve completions zsh > ~/.zfunc/_portreeve",
            ),
            (
                "For fish",
                "portreeve completions fish > ~/.config/fish/completions/portreeve.fish",
            ),
        ],
        see: &["portreeve man"],
    },
    Lesson {
        command: "man",
        examples: &[
            ("Read it at once", "portreeve man | man -l -"),
            (
                "A page for each command",
                "portreeve man ~/.local/share/man/man1 && man portreeve-submit",
            ),
        ],
        see: &["portreeve completions"],
    },
];
