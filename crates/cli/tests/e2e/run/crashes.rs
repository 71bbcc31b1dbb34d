//! Daemons and jobs that are killed.

use serde_json::Value;

use crate::world::{eventually, kill, names_in};

use super::{POOL, Site, controller, hello, port, shell, standing};

/// A service that hides a child: another session, an empty environment.
const HIDES: &str = "setsid env -i sleep 4321 & exec sleep 1234";

#[test]
fn a_killed_job_takes_nothing_of_another_cluster_along_that_has_its_name() {
    let (Some(site), Some(other)) = (Site::new(POOL), Site::new(POOL)) else {
        return;
    };
    let mut job = site.job("a", &shell(&["--name", "web"], HIDES));
    let mut theirs = other.job("a", &hello(&[]));
    site.replica_when("web", 0, "runs", |it| it["job_state"] == "RUN");
    let before = other.ready("web", 0);
    job.signal("KILL");
    job.ended();
    site.replica_when("web", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(standing(&other.world.replica("web", 0)), standing(&before));
    theirs.signal("TERM");
    assert_eq!(theirs.ended(), Some(0), "{}", theirs.stderr());
}

#[test]
fn a_killed_job_leaves_no_process_and_then_no_port() {
    let Some(site) = Site::new(POOL) else { return };
    let options = [
        "--name",
        "web",
        "--port",
        "http",
        "--set",
        "readiness={ command = \"true\" }",
    ];
    let mut job = site.job("a", &shell(&options, HIDES));
    site.ready("web", 0);
    assert_eq!(site.held(), 1);
    job.signal("KILL");
    job.ended();
    let ended = |it: &Value| it["job_state"] == "EXIT";
    let replica = site.replica_when("web", 0, "ended", ended);
    // The ports are freed only after the last process.
    assert_eq!(site.others(), Vec::<String>::new(), "{replica:#}");
    assert_eq!(site.held(), 0);
    assert_eq!(site.world.run(&["endpoints", "web"]).code, Some(3));
    let left = names_in(&site.world.path(""));
    assert!(
        !left.iter().any(|it| it.starts_with("portreeve-run")),
        "{left:?}"
    );
}

#[test]
fn what_a_job_and_its_shim_leave_when_both_are_killed_is_ended_by_the_agent() {
    let Some(site) = Site::new(POOL) else { return };
    let options = [
        "--name",
        "web",
        "--port",
        "http",
        "--set",
        "readiness={ command = \"true\" }",
    ];
    let mut job = site.job("a", &shell(&options, "setsid sleep 4321 & exec sleep 1234"));
    site.ready("web", 0);
    let processes = site.world.processes();
    let shim = processes.iter().find(|(_, line)| line.contains(" shim "));
    let (shim, _) = shim.unwrap();
    // Stopped first, so that the shim cannot end its service in between.
    kill(*shim, "STOP");
    job.signal("KILL");
    kill(*shim, "KILL");
    job.ended();
    assert_eq!(site.held(), 1, "what lives keeps its ports");
    site.replica_when("web", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(site.others(), Vec::<String>::new());
    assert_eq!(site.held(), 0);
}

#[test]
fn an_agent_that_is_killed_and_started_again_disturbs_nothing() {
    let Some(site) = Site::new(POOL) else {
        return;
    };
    let agent = site.agent.take().unwrap();
    let mut job = site.job("a", &hello(&[]));
    let before = site.ready("web", 0);
    agent.end("KILL");
    // It also takes the way that the job knew.
    let mut job_2 = site.job("b", &shell(&["--name", "late"], "true"));
    assert_eq!(job_2.ended(), Some(125));
    assert!(
        job_2.stderr().contains("no agent answers"),
        "{}",
        job_2.stderr()
    );
    drop(job_2);
    let pid = job.pid();
    std::mem::forget(std::mem::replace(
        &mut job.child,
        site.world.command("true").spawn().unwrap(),
    ));
    drop(job);
    site.start_agent(POOL);
    assert_eq!(standing(&site.ready("web", 0)), standing(&before));
    assert!(!site.is_foreign(port(&before)));
    // Orders reach the job through the new agent.
    site.world.ok(&["restart", "web"]);
    site.replica_when("web", 0, "restarted", |it| {
        it["ready"] == true && it["user_restarts"] == 1
    });
    kill(pid, "TERM");
    site.replica_when("web", 0, "ended", |it| it["state"] == "stopped");
    assert!(eventually(|| site.others().is_empty()));
}

#[test]
fn a_job_that_dies_while_the_agent_is_away_is_ended_by_the_next_agent() {
    let Some(site) = Site::new(POOL) else {
        return;
    };
    let agent = site.agent.take().unwrap();
    let mut job = site.job("a", &hello(&[]));
    site.ready("web", 0);
    agent.end("KILL");
    job.signal("KILL");
    job.ended();
    drop(job);
    // Unknown is not gone: nothing is freed before somebody looked.
    assert_eq!(site.world.replica("web", 0)["job_state"], "RUN");
    site.start_agent(POOL);
    let replica = site.replica_when("web", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(site.held(), 0, "{replica:#}");
}

#[test]
fn a_controller_that_is_killed_and_started_again_disturbs_nothing() {
    let Some(site) = Site::new(POOL) else {
        return;
    };
    let old = site.controller.take().unwrap();
    let mut job = site.job("a", &hello(&[]));
    let before = site.ready("web", 0);
    old.end("KILL");
    let new = controller(&site.world);
    let up = || site.world.json(&["hosts"])["hosts"][0]["state"] == "up";
    assert!(eventually(up));
    assert_eq!(standing(&site.ready("web", 0)), standing(&before));
    // And an end while it is away is told to the next one.
    new.end("KILL");
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let _newest = controller(&site.world);
    site.replica_when("web", 0, "ended", |it| it["job_state"] == "EXIT");
    assert!(eventually(|| site.held() == 0));
}
