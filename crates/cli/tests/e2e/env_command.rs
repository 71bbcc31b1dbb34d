//! `env` prints what a job sees: held against what a job does see.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::Value;

use crate::world::{Outcome, PORTREEVE, World};

const PROFILE: &str = r#"
kind = "service"
name = "web"
command = ["env"]
env = { MODEL = "a b's ${replica.index}", NEXT = "${addr.http}" }
restart = { policy = "never" }
[ports]
http = { any = 1, env = "HTTP_PORT" }
workers = { any = 2, publish = false }
"#;

const GRANT: &str = r#"{"service": "web.batch", "replica": 2, "incarnation": 3, "host": "n1",
    "ports": {"http": 23456, "workers": {"first": 23460, "last": 23461}}}"#;

/// What begins so, or is one of the names that the profile gives.
fn of_interest(name: &str) -> bool {
    let named = ["PORT", "HTTP_PORT", "MODEL", "NEXT"];
    // Its folder is the worker's choice, told by --folder.
    let folders = ["PORTREEVE_SCRATCH", "PORTREEVE_TOKEN_FILE"];
    (name.starts_with("PORTREEVE_") || named.contains(&name)) && !folders.contains(&name)
}

#[test]
fn it_prints_what_a_job_of_the_profile_sees() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("web.toml", PROFILE);
    let grant = world.profile("grant.json", GRANT);
    // A worker's service tells its environment.
    let mut worker = world.command("sh");
    worker
        .args(["-c", "exec \"$@\" 3>/dev/null", "sh", PORTREEVE, "worker"])
        .args(["--profile", &profile, "--grant", &grant, "--status-fd", "3"])
        .arg("--folder")
        .arg(world.path("folder"))
        .env_remove("PORTREEVE_CONTROLLER")
        .stdin(Stdio::null());
    let worked = Outcome::of(worker.output().unwrap());
    assert_eq!(worked.code, Some(0), "{worked:?}");
    let seen = std::fs::read_to_string(world.path("folder/stdout.log")).unwrap();
    let seen: BTreeMap<&str, &str> = seen
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let seen: BTreeMap<_, _> = seen
        .into_iter()
        .filter(|(name, _)| of_interest(name))
        .collect();

    let told = world.json(&["env", &profile, "--grant", &grant]);
    let told: BTreeMap<&str, &str> = told
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .filter(|(name, _)| of_interest(name))
        .collect();
    assert_eq!(told, seen);
    assert_eq!(told["HTTP_PORT"], "23456");

    // A shell that reads the lines has the same.
    let script = format!(
        "eval \"$({PORTREEVE} env {profile} --grant {grant} --export)\" && {PORTREEVE} env -o json && echo \"$MODEL\""
    );
    let mut shell = world.command("sh");
    let shell = shell
        .args(["-c", &script])
        .env_remove("PORTREEVE_CONTROLLER");
    let shell = Outcome::of(shell.output().unwrap());
    let (json, model) = shell.stdout.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(model, "a b's 2", "{shell:?}");
    let inside: Value = serde_json::from_str(json).unwrap();
    assert_eq!(inside["PORTREEVE_REPLICA"], "2");
    assert_eq!(inside["PORT"], Value::Null, "the profile has two ports");
    assert_eq!(inside["MODEL"], Value::Null, "that is not ours to tell");
}

#[test]
fn what_may_be_secret_is_neither_read_nor_told() {
    let Some(world) = World::new() else { return };
    let secret = world.profile("web.env", "HF_TOKEN=marker-of-a-secret\n");
    let text = PROFILE.replace("env = {", &format!("env_file = \"{secret}\"\nenv = {{"));
    let profile = world.profile("web.toml", &text);
    let grant = world.profile("grant.json", GRANT);
    let told = world.run(&["env", &profile, "--grant", &grant]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        !format!("{told:?}").contains("marker-of-a-secret"),
        "{told:?}"
    );
    assert!(
        told.stderr.contains("is left out: it may be secret"),
        "{told:?}"
    );
}

#[test]
fn outside_of_a_job_it_says_how_to_ask() {
    let Some(world) = World::new() else { return };
    let told = world.run(&["env"]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(1), ""), "{told:?}");
    assert!(told.stderr.contains("--grant FILE"), "{told:?}");
}
