//! What each command tells whom, by its exit code: the owner, somebody else, root, and by tokens that read only, that are
//! none, and that are over.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::users::{BIN, DAEMON, Site};
use crate::world::Outcome;

/// Commands, and their exit codes for the owner, root, who reads as the owner, and somebody else; `SERVICE` is the
/// owner's. A bad and a revoked token are 5 everywhere.
const COMMANDS: &[(&str, [i32; 4])] = &[
    ("services", [0, 0, 0, 0]),
    ("hosts", [0, 0, 0, 0]),
    ("host n1", [0, 0, 0, 0]),
    ("ports n1", [0, 0, 0, 0]),
    ("whoami", [0, 0, 0, 0]),
    ("token list", [0, 0, 0, 0]),
    ("service SERVICE", [0, 0, 0, 4]),
    ("endpoints SERVICE", [0, 0, 0, 4]),
    ("endpoints SERVICE -o json", [0, 0, 0, 4]),
    ("wait SERVICE --timeout 20s", [0, 0, 0, 4]),
    ("events SERVICE", [0, 0, 5, 4]),
    ("logs SERVICE", [0, 0, 5, 4]),
    ("scale SERVICE 1", [0, 0, 5, 4]),
    ("start SERVICE", [0, 0, 5, 4]),
    ("host drain n1 --no-wait", [5, 0, 5, 5]),
    ("host undrain n1", [5, 0, 5, 5]),
];

/// As this account, with the token of this file if there is one.
fn run(site: &Site, user: Option<(&str, u32)>, words: &str, token: Option<&str>) -> Outcome {
    let mut arguments: Vec<&str> = words.split(' ').collect();
    arguments.extend(token.iter().flat_map(|token| ["--token-file", token]));
    match user {
        Some(user) => site.as_user(user, &site.program.display().to_string(), &arguments),
        None => site.world.run(&arguments),
    }
}

/// A file that this account alone reads.
fn kept(site: &Site, (_, uid): (&str, u32), name: &str, text: &str) -> String {
    let path = site.world.path(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
    path.display().to_string()
}

/// A token that the account makes: its id and its text.
fn made(site: &Site, user: (&str, u32), more: &str) -> (String, String) {
    let told = run(
        site,
        Some(user),
        &format!("token create -o json{more}"),
        None,
    );
    assert_eq!(told.code, Some(0), "{told:?}");
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    (text("id"), text("token"))
}

#[test]
fn every_command_is_answered_by_who_asks() {
    let Some(site) = Site::new() else { return };
    let service = site.submit(
        DAEMON,
        "mine",
        "echo said; exec python3 -m http.server $PORTREEVE_PORT_HTTP",
        "[ports]\nhttp = \"any\"\n[readiness]\ntcp = { port = \"http\" }\ninterval = \"200ms\"",
    );
    site.ready(&service);
    let (_, reads) = made(&site, DAEMON, " --role viewer");
    let reads = kept(&site, BIN, "reads", &reads);
    let (id, over) = made(&site, DAEMON, "");
    let over = kept(&site, BIN, "over", &over);
    let revoked = run(&site, Some(DAEMON), &format!("token revoke {id}"), None);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let unknown = format!("prt1.{}.{}", "0".repeat(16), "a".repeat(64));
    let unknown = kept(&site, BIN, "unknown", &unknown);
    let mut asked = 0;
    for (words, codes) in COMMANDS {
        let words = words.replace("SERVICE", &service);
        let people = [
            ("the owner", Some(DAEMON), None, codes[0]),
            ("root", None, None, codes[1]),
            ("who reads as the owner", Some(BIN), Some(&*reads), codes[2]),
            ("somebody else", Some(BIN), None, codes[3]),
            ("a revoked token", Some(BIN), Some(&*over), 5),
            ("an unknown token", Some(BIN), Some(&*unknown), 5),
        ];
        for (who, user, token, code) in people {
            let told = run(&site, user, &words, token);
            assert_eq!(told.code, Some(code), "{who}: {words}: {told:?}");
            if user == Some(BIN) && token.is_none() {
                // The name that was asked for is the asker's word.
                let told = format!("{}{}", told.stdout, told.stderr).replace(&service, "");
                assert!(!told.contains("mine"), "{words}: {told}");
            }
            asked += 1;
        }
    }
    println!("{asked} commands were answered by who asked");
    site.end(&service);
}

#[test]
fn somebody_else_is_told_of_a_hidden_service_what_is_told_of_none() {
    let Some(site) = Site::new() else { return };
    let service = site.submit(DAEMON, "mine", "exec sleep 1000000", "");
    site.ready(&service);
    for words in [
        "service",
        "endpoints",
        "logs",
        "events",
        "why",
        "start",
        "stop",
        "restart",
    ] {
        let told = |name: &str| {
            let told = run(&site, Some(BIN), &format!("{words} {name}"), None);
            let text = format!("{:?} {} {}", told.code, told.stdout, told.stderr);
            text.replace(name, "NAME")
        };
        assert_eq!(told("mine.daemon"), told("nine.daemon"), "{words}");
    }
    site.end(&service);
}
