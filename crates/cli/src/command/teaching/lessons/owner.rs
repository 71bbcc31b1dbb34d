//! What the owner of a service is taught.

use super::Lesson;

pub(super) const LESSONS: &[Lesson] = &[
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
];
