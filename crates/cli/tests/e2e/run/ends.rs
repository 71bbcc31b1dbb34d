//! How a job ends, and with which code.

use serde_json::Value;

use crate::world::{PORTREEVE, World, eventually, kill, names_in};

use super::{POOL, Site, hello, port, shell};

#[test]
fn how_the_service_ends_is_how_the_job_ends() {
    let Some(site) = Site::new(POOL) else { return };
    for (name, script, code) in [
        ("zero", "exit 0", 0),
        ("three", "exit 3", 3),
        ("killed", "kill -9 $$$$", 137),
    ] {
        let options = ["--name", name, "--restart", "never"];
        let mut job = site.job(name, &shell(&options, script));
        assert_eq!(job.ended(), Some(code), "{}", job.stderr());
        let state = site.replica_when(name, 0, "ended", |it| it["job_state"] != "RUN");
        assert_eq!(state["attached"], true);
    }
    // What we could not even start is our failure.
    let mut job = site.job(
        "none",
        &["--name", "none", "--restart", "never", "--", "/nowhere/x"],
    );
    assert_eq!(job.ended(), Some(125), "{}", job.stderr());
    assert!(job.stderr().contains("/nowhere/x"), "{}", job.stderr());
    assert_eq!(site.held(), 0);
    let left = names_in(&site.world.path(""));
    assert!(
        !left.iter().any(|it| it.starts_with("portreeve-run")),
        "{left:?}"
    );
}

#[test]
fn term_from_the_scheduler_is_the_normal_stop() {
    let Some(site) = Site::new(POOL) else { return };
    let more = ["--set", "stop.drain=1s", "--kill-wait", "5s"];
    let mut job = site.job("a", &hello(&more));
    let replica = site.ready("web", 0);
    assert!(
        job.stderr().contains("a stop takes up to 11s"),
        "{}",
        job.stderr()
    );
    job.signal("TERM");
    // Unpublished while it still answers.
    let unpublished = || site.world.run(&["endpoints", "web"]).code == Some(3);
    assert!(eventually(unpublished));
    let address = format!("http://127.0.0.1:{}/", port(&replica));
    assert!(site.world.curl(&[&address]).contains("hello"));
    let code = job.ended();
    let ended = site.world.replica("web", 0);
    assert_eq!(code, Some(0), "{}{ended:#}", job.stderr());
    assert_eq!((&ended["state"], site.held()), (&"stopped".into(), 0));
    assert_eq!(site.others(), Vec::<String>::new());
}

#[test]
fn a_job_under_nohup_outlives_the_hangup_of_its_terminal() {
    let Some(site) = Site::new(POOL) else { return };
    let mut job = site.job_through("a", &["nohup"], &hello(&[]), |_| ());
    site.ready("web", 0);
    job.signal("HUP");
    // A job that had heard it would stop rather than start anew.
    assert_eq!(site.world.run(&["restart", "web"]).code, Some(0));
    site.replica_when("web", 0, "ready again", |it| {
        it["run"] == 2 && it["ready"] == true
    });
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
}

#[test]
fn a_second_interrupt_waits_no_longer() {
    let Some(site) = Site::new(POOL) else { return };
    let options = [
        "--name",
        "deaf",
        "--set",
        "stop.drain=5m",
        "--set",
        "stop.grace=5m",
    ];
    let script = "trap '' TERM INT; echo up; while :; do sleep 1; done";
    let mut job = site.job("deaf", &shell(&options, script));
    assert!(eventually(|| job.stdout().contains("up")));
    job.signal("INT");
    let stopping = |it: &Value| it["ready"] == false;
    site.replica_when("deaf", 0, "stops", stopping);
    job.signal("INT");
    assert_eq!(job.ended(), Some(137), "{}", job.stderr());
    assert_eq!(site.others(), Vec::<String>::new());
}

#[test]
fn tasks_of_a_launcher_like_slurms_are_stopped_by_term_and_then_killed() {
    let Some(site) = Site::new(POOL) else { return };
    // As srun does: one environment per task, TERM for every process of the step, KILL after the wait.
    let launcher = site.world.profile(
        "launcher.sh",
        "SLURM_JOB_ID=77; SLURM_NTASKS=2; export SLURM_JOB_ID SLURM_NTASKS\n\
         pids=\n\
         for task in 0 1; do SLURM_PROCID=$task \"$@\" & pids=\"$pids $!\"; done\n\
         trap 'kill -TERM $pids' TERM\n\
         for pid in $pids; do wait $pid; done\n\
         for pid in $pids; do wait $pid; echo \"task ended with $?\"; done\n",
    );
    let out = std::fs::File::create(site.world.path("launcher.out")).unwrap();
    let mut command = site.world.command("sh");
    command
        .arg(&launcher)
        .args([PORTREEVE, "run"])
        .args(hello(&[]))
        .env("PORTREEVE_AGENT", site.socket())
        .stdout(out);
    let mut launcher = command.spawn().unwrap();
    let (one, two) = (site.ready("web", 0), site.ready("web", 1));
    assert_eq!(
        (&one["job"], &two["job"]),
        (&"slurm 77".into(), &"slurm 77".into())
    );
    // Every process of the step, the services too.
    for (pid, line) in site.world.processes() {
        if !line.contains(" controller ") && !line.contains(" agent ") {
            kill(pid, "TERM");
        }
    }
    assert!(eventually(|| launcher.try_wait().unwrap().is_some()));
    let states = || {
        let service = site.world.json(&["service", "web"]);
        service["state"] == "ended"
    };
    assert!(eventually(states));
    for (pid, line) in site.world.processes() {
        if !line.contains(" controller ") && !line.contains(" agent ") {
            kill(pid, "KILL");
        }
    }
    assert_eq!((site.held(), site.others()), (0, Vec::new()));
}

#[test]
fn without_an_agent_the_job_ends_in_time_with_the_way_out() {
    let Some(world) = World::new() else { return };
    let nowhere = world.path("nowhere.sock").display().to_string();
    let outcome = world.run(&["run", "--agent", &nowhere, "--", "true"]);
    assert_eq!(outcome.code, Some(125));
    assert!(outcome.stderr.contains("portreeve agent"), "{outcome:?}");
    let wrong = world.run(&["run", "--port", "HTTP", "--", "true"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("NAME:NUMBER"), "{wrong:?}");
}
