//! What a job is given, listed as and told.

use serde_json::Value;

use crate::stranger::Stranger;
use crate::world::{PORTREEVE, eventually, kill};

use super::{POOL, Site, hello, port, shell};

#[test]
fn a_job_s_replica_is_listed_when_it_is_ready_and_is_shown_as_attached() {
    let Some(site) = Site::new(POOL) else { return };
    let job = site.job_in("a", &hello(&[]), &[("SLURM_JOB_ID", "4711")]);
    let replica = site.ready("web", 0);
    assert_eq!(replica["attached"], true);
    assert_eq!(replica["job"], "slurm 4711");
    let service = site.world.json(&["service", "web"]);
    assert_eq!(
        (&service["attached"], &service["desired"], &service["ready"]),
        (&Value::Bool(true), &1.into(), &1.into())
    );
    let resolved = site.world.ok(&["endpoints", "web"]);
    assert_eq!(resolved.trim(), format!("127.0.0.1:{}", port(&replica)));
    let greeting = site.world.curl(&[&format!("http://{}/", resolved.trim())]);
    assert!(greeting.contains("hello"), "{greeting}");
    let shown = site.world.ok(&["service", "web"]);
    assert!(
        shown.contains("attached: runs inside slurm 4711"),
        "{shown}"
    );
    let events = site.world.ok(&["events", "web"]);
    assert!(
        events.contains("attached on host n1 inside slurm 4711"),
        "{events}"
    );
    // Its own numbers are nobody's strangers.
    assert!(!site.is_foreign(port(&replica)));
    drop(job);
}

#[test]
fn two_jobs_of_one_service_are_two_replicas_and_one_index_is_nobody_elses() {
    let Some(site) = Site::new(POOL) else { return };
    let one = site.job("a", &hello(&[]));
    site.ready("web", 0);
    let two = site.job("b", &hello(&[]));
    let (first, second) = (site.ready("web", 0), site.ready("web", 1));
    assert_ne!(port(&first), port(&second));
    assert_eq!(site.world.json(&["service", "web"])["desired"], 2);
    let mut third = site.job("c", &hello(&["--replica", "1"]));
    assert_eq!(third.ended(), Some(125));
    let said = third.stderr();
    assert!(
        said.contains("replica 1 of web.root is running on host n1"),
        "{said}"
    );
    // The number of a task is a wish only: another job may have it.
    let fourth = [("SLURM_JOB_ID", "1"), ("SLURM_PROCID", "0")];
    let fourth = site.job_in("d", &hello(&[]), &fourth);
    site.replica_when("web", 0, "there", |_| {
        site.world.json(&["service", "web"])["desired"] == 3
    });
    drop((one, two, fourth));
}

#[test]
fn a_full_pool_is_waited_for_and_then_given_up_with_the_reason() {
    let Some(site) = Site::new("20000") else {
        return;
    };
    let mut first = site.job("a", &hello(&[]));
    site.ready("web", 0);
    let mut late = site.job("late", &hello(&["--port-wait", "1s"]));
    assert_eq!(late.ended(), Some(75), "{}", late.stderr());
    let said = late.stderr();
    assert!(
        said.contains("no ports within 1 s") && said.contains("web.root"),
        "{said}"
    );
    // One that waits longer gets the number that is freed; resting, where nothing else is left.
    let second = site.job("b", &hello(&[]));
    assert!(eventually(|| second.stderr().contains("waits:")));
    first.signal("TERM");
    assert_eq!(first.ended(), Some(0));
    site.ready("web", 0);
    drop(second);
}

#[test]
fn after_a_strangers_port_the_job_asks_for_the_next_incarnation() {
    let Some(site) = Site::new(POOL) else { return };
    let go = site.world.path("go").display().to_string();
    let script = format!(
        "while [ ! -e {go} ]; do sleep 0.05; done; exec {PORTREEVE} hello --port ${{port.http}}"
    );
    let options = ["--name", "web", "--port", "http", "--ready", "http:/"];
    let mut job = site.job("a", &shell(&options, &script));
    let first = site.replica_when("web", 0, "up", |it| it["pid"].is_number());
    let taken = port(&first);
    let stranger = Stranger::new(&site.world, "0.0.0.0", u16::try_from(taken).unwrap());
    std::fs::write(&go, "").unwrap();
    let next = site.replica_when("web", 0, "ready elsewhere", |it| {
        it["ready"] == true && it["incarnation"] == 1
    });
    assert_ne!(port(&next), taken);
    // The number is no longer the job's, though the job lives.
    assert!(eventually(|| site.is_foreign(taken)));
    assert!(
        job.stderr().contains("asks for other numbers"),
        "{}",
        job.stderr()
    );
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0));
    stranger.leave();
}

#[test]
fn a_restart_in_place_keeps_the_ports_and_its_owners_verbs_reach_it() {
    let Some(site) = Site::new(POOL) else { return };
    let mut job = site.job(
        "a",
        &hello(&[
            "--set",
            "restart.backoff={ initial = \"100ms\", max = \"1s\" }",
        ]),
    );
    let first = site.ready("web", 0);
    let pid = |replica: &Value| replica["pid"].as_i64().unwrap();
    kill(i32::try_from(pid(&first)).unwrap(), "KILL");
    let again = site.replica_when("web", 0, "ready again", |it| {
        it["ready"] == true && it["restarts"] == 1
    });
    assert_eq!(
        (port(&again), &again["incarnation"]),
        (port(&first), &0.into())
    );
    assert_ne!(pid(&again), pid(&first));
    let why = site.world.ok(&["why", "web"]);
    assert!(why.contains("signal 9"), "{why}");
    // The owner's verbs go through the agent.
    site.world.ok(&["restart", "web"]);
    site.replica_when("web", 0, "restarted", |it| {
        it["ready"] == true && it["user_restarts"] == 1
    });
    for verb in [&["scale", "web", "3"][..], &["start", "web"]] {
        let refused = site.world.run(verb);
        assert!(refused.stderr.contains("portreeve run"), "{refused:?}");
    }
    let logs = site.world.run(&["logs", "web"]);
    assert!(logs.stderr.contains("is attached"), "{logs:?}");
    site.world.ok(&["stop", "web"]);
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    assert_eq!(site.world.replica("web", 0)["reason"], "stopped by root");
}
