//! What an operator sets and looks at: limits of users, metrics.

use std::process::Command;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::world::{Outcome, World, eventually};

/// Every machine has this account.
const USER: &str = "daemon";

/// What the user gets for this body by this method.
fn as_user(world: &World, method: &str, path: &str, body: &str) -> Value {
    let mut command = world.command("setpriv");
    command.args(["--reuid=1", "--regid=1", "--clear-groups", "curl"]);
    let url = format!("http://127.0.0.1:7373{path}");
    command.args(["-sS", "--max-time", "30", "-X", method, &url]);
    if !body.is_empty() {
        command.args([
            "-H",
            "content-type: application/toml",
            "--data-binary",
            body,
        ]);
    }
    let outcome = Outcome::of(command.output().unwrap());
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|cause| panic!("{cause}: {outcome:?}"))
}

fn profile(name: &str, replicas: u32) -> String {
    format!(
        "kind = \"service\"\nname = \"{name}\"\nreplicas = {replicas}\ncommand = [\"sleep\", \"1000\"]\n\
         [ports]\nhttp = \"any\"\n"
    )
}

#[test]
fn a_user_at_its_limit_waits_says_so_and_goes_on() {
    let Some(mut cluster) = Cluster::bare(1) else {
        return;
    };
    let file = cluster.world.path("limits.toml");
    std::fs::write(&file, "[user.default]\nports = 2\nreplicas = 3\n").unwrap();
    cluster.start_controller(&["--limits", file.to_str().unwrap()]);
    cluster.start_agent(1, &[]);
    cluster.wait_until_up(1);
    let world = &cluster.world;
    let put = |name: &str, replicas| {
        let path = format!("/api/v1/services/{name}");
        as_user(world, "PUT", &path, &profile(name, replicas))
    };
    assert_eq!(put("web", 2)["changed"], true);
    assert_eq!(put("more", 1)["changed"], true);
    let limit = format!("LIMIT: {USER} holds 2 of 2 ports");
    let name = format!("more.{USER}");
    world.replica_when(&name, 0, "said what it waits for", |it| {
        it["reason"] == limit
    });
    let why = world.run(&["why", &format!("{name}/0")]);
    assert!(
        (why.stdout.clone() + &why.stderr).contains(&limit),
        "{why:?}"
    );
    let services = world.ok(&["services"]);
    assert!(services.contains(&limit), "{services}");
    let fit = world.run(&["explain", "--service", &name]);
    assert!(
        fit.stderr.contains(&limit) || fit.stdout.contains(&limit),
        "{fit:?}"
    );
    let refused = put("large", 4);
    assert_eq!(refused["code"], "beyond_limit", "{refused:#}");
    assert_eq!(
        refused["detail"],
        format!(
            "large.{USER}: LIMIT: 4 ports are asked for; {USER} may have 2: ask for fewer, or the site for more (`controller --limits`)"
        )
    );
    // P37: as one who is not root.
    let low = profile("low", 1).replace("\"any\"", "80");
    let refused = as_user(world, "PUT", "/api/v1/services/low", &low);
    let told = refused["detail"].as_str().unwrap_or_default();
    assert!(told.contains("port 80/tcp needs privilege"), "{refused:#}");
    // What the operator submits is nobody's share.
    cluster.submit("own", &profile("own", 4));
    let placed =
        |service: &str, index| eventually(|| world.replica(service, index)["job_state"] == "RUN");
    assert!(placed("own", 3));
    std::fs::write(&file, "[user.default]\nports = 3\n").unwrap();
    assert!(placed(&name, 0), "the file was changed");
}

#[test]
fn the_metrics_are_what_prometheus_takes() {
    let Some(cluster) = Cluster::of(1) else {
        return;
    };
    cluster.submit("own", &profile("own", 2));
    let world = &cluster.world;
    let text = || world.curl(&["http://127.0.0.1:7373/metrics"]);
    let running = || text().contains("portreeve_ports{state=\"held\"} 2");
    assert!(eventually(running), "{}", text());
    let told = text();
    assert!(told.contains("portreeve_hosts{state=\"up\"} 1"), "{told}");
    assert!(told.contains("portreeve_store_writable 1"), "{told}");
    // A second opinion, where there is one.
    let file = world.path("metrics.txt");
    std::fs::write(&file, told).unwrap();
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(&file).unwrap())
        .output();
    match checked.map(Outcome::of) {
        Ok(outcome) => assert_eq!(outcome.code, Some(0), "{outcome:?}"),
        Err(cause) => eprintln!("not checked by promtool: {cause}"),
    }
}

#[test]
fn a_wrong_file_of_limits_is_told_with_its_place_before_anything_listens() {
    let Some(world) = World::new() else {
        return;
    };
    let file = world.path("limits.toml");
    std::fs::write(&file, "[user.alice]\nports = \"many\"\n").unwrap();
    let file = file.to_str().unwrap();
    let data = world.path("data");
    let run = world.path("run");
    let started = world.run(&[
        "controller",
        "--limits",
        file,
        "--data",
        data.to_str().unwrap(),
        "--run-dir",
        run.to_str().unwrap(),
    ]);
    assert_eq!(started.code, Some(1), "{started:?}");
    let told = format!("{file}:2:9: write a number from 0 to 4294967294, or \"unlimited\"");
    assert!(started.stderr.contains(&told), "{started:?}");
}
