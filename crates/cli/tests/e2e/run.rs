//! `portreeve run`: replicas inside jobs of another scheduler.

use std::path::PathBuf;
use std::process::Child;

use serde_json::Value;

use crate::stranger::Stranger;
use crate::world::{PORTREEVE, Running, World, eventually, kill, names_in};

/// A host with an agent that jobs can ask.
struct Site {
    world: World,
    agent: Option<Running>,
    controller: Option<Running>,
}

impl Site {
    fn new(ports: &str) -> Option<Self> {
        let world = World::new()?;
        let mut site = Self {
            controller: Some(controller(&world)),
            agent: None,
            world,
        };
        site.start_agent(ports);
        Some(site)
    }

    fn socket(&self) -> String {
        self.world.path("agent.sock").display().to_string()
    }

    fn start_agent(&mut self, ports: &str) {
        let data = self.world.path("host").display().to_string();
        let (controller, socket) = (self.world.socket(), self.socket());
        let arguments = [
            "agent",
            "--host",
            "n1",
            "--data",
            &data,
            "--controller",
            &controller,
            "--single-host",
            "--socket",
            &socket,
            "--ports",
            ports,
        ];
        self.agent = Some(self.world.start("agent", &arguments));
        let up = || self.world.json(&["hosts"])["hosts"][0]["state"] == "up";
        assert!(eventually(up), "the host never joined");
    }

    /// Starts `portreeve run` with these arguments; its output is in files.
    fn job(&self, name: &str, arguments: &[&str]) -> Job<'_> {
        self.job_in(name, arguments, &[])
    }

    /// The same with further variables.
    fn job_in(&self, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Job<'_> {
        let out = self.world.path(&format!("{name}.out"));
        let err = self.world.path(&format!("{name}.err"));
        let file = |path: &PathBuf| std::fs::File::create(path).unwrap();
        let mut command = self.world.command(PORTREEVE);
        command
            .arg("run")
            .args(arguments)
            .env("PORTREEVE_AGENT", self.socket())
            .envs(variables.iter().copied())
            .stdout(file(&out))
            .stderr(file(&err));
        Job {
            child: command.spawn().unwrap(),
            site: self,
            out,
            err,
        }
    }

    /// The replica, once it is ready.
    fn ready(&self, service: &str, index: u32) -> Value {
        self.replica_when(service, index, "ready", |it| it["ready"] == true)
    }

    /// The replica, once there is one and it meets the condition.
    fn replica_when(
        &self,
        service: &str,
        index: u32,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut replica = Value::Null;
        let met = eventually(|| {
            let shown = self.world.run(&["service", service, "-o", "json"]);
            let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
            let all = shown["replicas"].as_array();
            let mut all = all.into_iter().flatten();
            replica = all
                .find(|it| it["replica"] == index)
                .cloned()
                .unwrap_or_default();
            condition(&replica)
        });
        assert!(met, "{service}/{index} never {what}: {replica:#}");
        replica
    }

    /// The processes of this world that are neither the daemons nor what asks.
    fn others(&self) -> Vec<String> {
        let daemons = [" controller ", " agent "];
        let processes = self.world.processes().into_iter();
        let lines = processes.map(|(_, line)| line);
        lines
            .filter(|line| !line.is_empty() && !daemons.iter().any(|it| line.contains(it)))
            .collect()
    }

    /// Whether the number is a stranger's to the host.
    fn is_foreign(&self, port: u64) -> bool {
        let ports = self.world.json(&["ports", "n1"]);
        let mut all = ports["ports"].as_array().unwrap().iter();
        all.any(|it| it["state"] == "foreign" && it["numbers"] == port)
    }

    /// How many numbers of the host are held.
    fn held(&self) -> u64 {
        self.world.json(&["hosts"])["hosts"][0]["counts"]["held"]
            .as_u64()
            .unwrap()
    }
}

/// A controller that lets a freed number rest for a moment only.
fn controller(world: &World) -> Running {
    let data = world.path("controller").display().to_string();
    let run = world.path("run").display().to_string();
    let arguments = [
        "controller",
        "--data",
        &data,
        "--run-dir",
        &run,
        "--single-host",
        "--cooling",
        "1s",
    ];
    world.start("controller", &arguments)
}

/// A running `portreeve run`; killed with its test.
struct Job<'a> {
    child: Child,
    site: &'a Site,
    out: PathBuf,
    err: PathBuf,
}

impl Job<'_> {
    /// The run itself, which `nsenter` becomes.
    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn signal(&self, signal: &str) {
        kill(self.pid(), signal);
    }

    fn stdout(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap()
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap()
    }

    /// Waits for its end; gives the exit code.
    fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        let ended = eventually(|| match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                true
            }
            None => false,
        });
        assert!(ended, "it never ended: {}", self.stderr());
        code
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}: {}{}", self.out.display(), self.stdout(), self.stderr());
            for name in ["agent.out", "controller.out"] {
                let text = std::fs::read_to_string(self.site.world.path(name));
                eprintln!("{name}: {}", text.unwrap_or_default());
            }
        }
    }
}

const POOL: &str = "20000-20009";

/// A web service in a few words, asked often whether it is ready.
const HELLO: [&str; 12] = [
    "--name",
    "web",
    "--port",
    "http",
    "--ready",
    "http:/",
    "--set",
    "readiness.interval=200ms",
    "--",
    PORTREEVE,
    "hello",
    "--port=${port.http}",
];

/// The same with further options.
fn hello<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [options, &HELLO].concat()
}

/// A shell command without a port.
fn shell<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [options, &["--", "sh", "-c", script]].concat()
}

fn port(replica: &Value) -> u64 {
    let text = replica["ports"]["http"].as_str();
    text.map_or_else(
        || replica["ports"]["http"].as_u64().unwrap(),
        |it| it.parse().unwrap(),
    )
}

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
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let ended = site.world.replica("web", 0);
    assert_eq!((&ended["state"], site.held()), (&"stopped".into(), 0));
    assert_eq!(site.others(), Vec::<String>::new());
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

/// A service that hides a child: another session, an empty environment.
const HIDES: &str = "setsid env -i sleep 4321 & exec sleep 1234";

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

/// What must not change.
fn standing(replica: &Value) -> Vec<Value> {
    let fields = ["incarnation", "ports", "pid", "restarts", "run", "ready"];
    fields.iter().map(|it| replica[*it].clone()).collect()
}

#[test]
fn an_agent_that_is_killed_and_started_again_disturbs_nothing() {
    let Some(mut site) = Site::new(POOL) else {
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
    let Some(mut site) = Site::new(POOL) else {
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
    let Some(mut site) = Site::new(POOL) else {
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
fn output_and_environment_are_the_jobs_own() {
    let Some(site) = Site::new(POOL) else { return };
    let script = "echo out $JOBS_OWN $PORT $PORTREEVE_PORT_HTTP ${port.http} $PORTREEVE_LEFT; \
         pwd; echo err >&2; head -c 3000000 /dev/zero | tr '\\0' x; echo; cat \"$PORTREEVE_TOKEN_FILE\" | head -c 4";
    let options = ["--name", "web", "--port", "http", "--restart", "never"];
    let variables = [
        ("JOBS_OWN", "mine"),
        ("PORT", "1"),
        ("PORTREEVE_LEFT", "outer"),
    ];
    let mut job = site.job_in("a", &shell(&options, script), &variables);
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let out = job.stdout();
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("out mine 20000 20000 20000"));
    let here = std::env::current_dir().unwrap();
    assert_eq!(lines.next(), here.to_str());
    assert_eq!(lines.next().map(str::len), Some(3_000_000));
    assert_eq!(lines.next(), Some("pj1."));
    assert!(job.stderr().contains("err\n"), "{}", job.stderr());
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

#[test]
fn a_profile_is_run_as_well_and_a_bad_one_is_refused() {
    let Some(site) = Site::new(POOL) else { return };
    let text = crate::world::hello("web", 3, "", crate::world::USUAL);
    let file = site.world.profile("web.toml", &text);
    let mut job = site.job("a", &[&file]);
    site.ready("web", 0);
    assert_eq!(site.world.json(&["service", "web"])["desired"], 1);
    // The name is theirs as long as they live.
    let refused = site.world.run(&["submit", &file]);
    assert!(refused.stderr.contains("portreeve run"), "{refused:?}");
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let bad = site.world.profile(
        "bad.toml",
        "kind = \"service\"\nname = \"x\"\ncomand = \"y\"\n",
    );
    let mut job = site.job("b", &[&bad]);
    assert_eq!(job.ended(), Some(125));
    assert!(job.stderr().contains("comand"), "{}", job.stderr());
    let elsewhere = shell(&["--name", "web.nobody"], "true");
    let mut job = site.job("c", &elsewhere);
    assert_eq!(job.ended(), Some(125));
    assert!(
        job.stderr().contains("may not attach to web.nobody"),
        "{}",
        job.stderr()
    );
}

#[test]
fn a_job_of_another_account_is_that_accounts_and_nobody_elses() {
    use std::os::unix::fs::PermissionsExt;
    let Some(site) = Site::new(POOL) else { return };
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to become another account");
        return;
    }
    // Everything on its way is open to that account, the binary too.
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open(&site.world.path(""), 0o755);
    let program = site.world.path("portreeve");
    std::fs::copy(PORTREEVE, &program).unwrap();
    let theirs = site.world.path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    open(&theirs, 0o777);
    let nobody = |arguments: &[&str]| {
        let mut command = site.world.command("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(arguments)
            .env("PORTREEVE_AGENT", site.socket())
            .env("TMPDIR", &theirs)
            .current_dir(&theirs);
        command
    };
    let output = nobody(&["run", "--name", "web.root", "--", "true"]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("nobody may not attach to web.root"), "{said}");
    let script = "setsid sleep 4321 & exec sleep 1234";
    let mut run = nobody(&["run", "--name", "web", "--", "sh", "-c", script])
        .spawn()
        .unwrap();
    let replica = site.replica_when("web.nobody", 0, "up", |it| it["ready"] == true);
    let service = site.world.json(&["service", "web.nobody"]);
    assert_eq!(service["owner"], "nobody", "{replica:#}");
    kill(run.id().cast_signed(), "KILL");
    run.wait().unwrap();
    site.replica_when("web.nobody", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(site.others(), Vec::<String>::new());
}
