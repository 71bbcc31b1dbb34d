//! Tokens on the command line: made, kept, used where no socket tells who one is, and worth nothing once revoked.

use std::os::unix::fs::PermissionsExt;

use crate::world::{Outcome, PORTREEVE, USUAL, World, hello, quiet_dev};

/// The same over TCP, where a token counts.
fn over_tcp(world: &World, more: &[&str]) -> Outcome {
    let mut arguments = vec!["--controller", "http://127.0.0.1:7373"];
    arguments.extend(more);
    let state = world.path("state");
    let mut command = world.command(PORTREEVE);
    command.env("XDG_STATE_HOME", state);
    Outcome::of(command.args(arguments).output().unwrap())
}

#[test]
fn a_token_is_made_for_a_scraper_used_and_revoked() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&[&profile]);
    let file = world.path("scraper.token").display().to_string();
    let create = [
        "token",
        "create",
        "--role",
        "viewer",
        "--scope",
        "all",
        "--no-expiry",
        "--output-file",
        &file,
    ];
    let made = world.ok(&create);
    assert!(!made.contains("prt1."), "it is in the file alone: {made}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = world.run(&create);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("--force"), "{again:?}");

    let who = over_tcp(&world, &["--token-file", &file, "whoami"]);
    assert!(
        who.stdout
            .contains("(viewer, by token, sees all, manages none)"),
        "{who:?}"
    );
    let seen = over_tcp(&world, &["--token-file", &file, "services"]);
    assert!(seen.stdout.contains("hello"), "{seen:?}");
    let refused = over_tcp(&world, &["--token-file", &file, "stop", "hello"]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("is a viewer here"), "{refused:?}");

    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let wide = over_tcp(&world, &["--token-file", &file, "services"]);
    assert_eq!(wide.code, Some(5), "{wide:?}");
    assert!(wide.stderr.contains("chmod 600"), "{wide:?}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();

    let list = world.json(&["token", "list"]);
    let id = list["tokens"][0]["id"].as_str().unwrap().to_owned();
    let secret = std::fs::read_to_string(&file).unwrap();
    let secret = secret.trim().rsplit('.').next().unwrap();
    assert!(!list.to_string().contains(secret), "no list has it");
    world.ok(&["token", "revoke", &id]);
    let gone = over_tcp(&world, &["--token-file", &file, "services"]);
    assert_eq!(gone.code, Some(5), "{gone:?}");
    assert!(gone.stderr.contains("revoked"), "{gone:?}");
}

#[test]
fn who_logs_in_is_known_by_a_file_and_who_logs_out_is_not() {
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    let login = over_tcp(&world, &["login", "--ttl", "1h"]);
    assert_eq!(login.code, Some(0), "{login:?}");
    let file = world.path("state/portreeve/login-token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let who = over_tcp(&world, &["whoami"]);
    assert!(who.stdout.contains("by token"), "{who:?}");
    let out = over_tcp(&world, &["logout"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(!file.exists());
    let who = over_tcp(&world, &["whoami"]);
    assert!(who.stdout.contains("by loopback peer"), "{who:?}");
}
