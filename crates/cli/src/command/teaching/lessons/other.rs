//! What everybody else is taught: newcomers, clients, and users of the tools.

use super::Lesson;

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
        see: &["portreeve login", "docs/security.md"],
    },
    Lesson {
        command: "login",
        examples: &[("For a working day", "portreeve login --ttl 8h")],
        see: &["portreeve logout", "portreeve whoami", "docs/security.md"],
    },
    Lesson {
        command: "logout",
        examples: &[("End what login made", "portreeve logout")],
        see: &["portreeve login", "portreeve token list"],
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
