//! What operators are taught.

use super::Lesson;

pub(super) const LESSONS: &[Lesson] = &[
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
        command: "token",
        examples: &[("What there is", "portreeve token list")],
        see: &["portreeve login", "docs/security.md"],
    },
    Lesson {
        command: "token create",
        examples: &[
            (
                "For a scraper that sees what one group has, and changes nothing",
                "portreeve token create --role viewer --scope group:chem --no-expiry --output-file /etc/prometheus/portreeve-token",
            ),
            (
                "By which 200 machines may become hosts within a day",
                "portreeve token create --kind join --ttl 1d --uses 200 --output-file join-token",
            ),
        ],
        see: &["portreeve agent", "docs/operations.md", "docs/security.md"],
    },
    Lesson {
        command: "token rotate",
        examples: &[(
            "Another text for one that others have read",
            "portreeve token rotate 4f1c09a2b37d5e68 --output-file /etc/prometheus/portreeve-token --force",
        )],
        see: &["portreeve token list"],
    },
    Lesson {
        command: "token revoke",
        examples: &[("End one", "portreeve token revoke 4f1c09a2b37d5e68")],
        see: &["portreeve token list"],
    },
    Lesson {
        command: "token list",
        examples: &[("All of them, for a program", "portreeve token list -o json")],
        see: &["portreeve token revoke"],
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
];
