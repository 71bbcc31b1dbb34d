//! `worker --profile --grant --status-fd`: one replica for a scheduler that has no controller.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use crate::stranger::Stranger;
use crate::world::{PORTREEVE, World, eventually, kill};

const PORT: u16 = 23_456;

/// A worker of this test and what it told; killed with it.
struct Worker<'a> {
    world: &'a World,
    child: Child,
    stdin: Option<ChildStdin>,
}

/// A service on [`PORT`] that is ready by HTTP.
fn web(world: &World, more: &str) -> String {
    world.profile(
        "web.toml",
        &format!(
            "kind = \"service\"\nname = \"web\"\ncommand = \"exec portreeve hello --port ${{port.http}}\"\n\
             [ports]\nhttp = \"any\"\n[restart]\nbackoff = {{ initial = \"200ms\", max = \"1s\" }}\n\
             [readiness]\nhttp = {{ path = \"/\" }}\ninterval = \"200ms\"\n{more}\n"
        ),
    )
}

fn grant(world: &World) -> String {
    let text = format!(
        "{{\"service\": \"web.batch\", \"replica\": 2, \"incarnation\": 3,\n \"ports\": {{\"http\": {PORT}}}}}"
    );
    world.profile("grant.json", &text)
}

/// The worker's command; its status goes to descriptor 3, which is the file `status`.
fn command(world: &World, profile: &str, grant: &str) -> Command {
    let mut command = world.command("sh");
    command
        .args(["-c", "exec \"$@\" 3>>\"$STATUS\"", "sh", PORTREEVE])
        .args(["worker", "--profile", profile, "--grant", grant])
        .args(["--status-fd", "3", "--folder"])
        .arg(world.path("folder"))
        .env("STATUS", world.path("status"))
        .env_remove("PORTREEVE_CONTROLLER");
    command
}

impl<'a> Worker<'a> {
    fn start(world: &'a World, profile: &str, grant: &str) -> Self {
        Self::start_by(world, &mut command(world, profile, grant))
    }

    fn start_by(world: &'a World, command: &mut Command) -> Self {
        let log = File::options()
            .create(true)
            .append(true)
            .open(world.path("worker.log"))
            .unwrap();
        let mut child = command.stdin(Stdio::piped()).stderr(log).spawn().unwrap();
        let stdin = child.stdin.take();
        Self {
            world,
            child,
            stdin,
        }
    }

    /// Every line so far, of this worker and of those before it.
    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.world.path("status")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}"))
            })
            .collect()
    }

    /// Waits for a line after the first `skip` that meets the condition.
    fn line(&self, skip: usize, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        let met = eventually(|| {
            found = self
                .lines()
                .into_iter()
                .skip(skip)
                .find(|line| condition(line));
            found.is_some()
        });
        let log = || std::fs::read_to_string(self.world.path("worker.log")).unwrap_or_default();
        assert!(met, "never {what}: {:#?}\n{}", self.lines(), log());
        found.unwrap()
    }

    fn reported(&self, skip: usize, word: &str) -> Value {
        self.line(skip, word, |line| reports(line, word))
    }

    fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    /// Its exit code, once it ended.
    fn code(&mut self) -> Option<i32> {
        let mut code = None;
        let ended = eventually(|| match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                true
            }
            None => false,
        });
        assert!(ended, "it never ended: {:#?}", self.lines());
        code
    }

    fn signal(&self, signal: &str) {
        kill(self.child.id().cast_signed(), signal);
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reports(line: &Value, word: &str) -> bool {
    let reports = line["reports"].as_array().unwrap().iter();
    reports
        .filter_map(Value::as_str)
        .any(|report| report.split(' ').next() == Some(word))
}

fn pid_of(line: &Value) -> i32 {
    i32::try_from(line["status"]["pid"].as_i64().unwrap()).unwrap()
}

/// The control group of a run, where it has one of its own.
fn group_of(pid: i32) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let mut groups = places.iter().map(|place| Path::new(place).join(path));
    groups
        .find(|group| group.is_dir())
        .filter(|group| group.ends_with("run-1"))
}

fn left(world: &World) -> Vec<(i32, String)> {
    let mut left = Vec::new();
    eventually(|| {
        left = world.processes();
        left.is_empty()
    });
    left
}

#[test]
fn a_scheduler_hears_and_orders_the_whole_life_of_a_service() {
    let Some(world) = World::new() else { return };
    let mut worker = Worker::start(&world, &web(&world, ""), &grant(&world));
    let ready = worker.reported(0, "READY");
    assert_eq!(ready["service"], "web.batch");
    assert_eq!(
        (&ready["replica"], &ready["incarnation"], &ready["run"]),
        (&2.into(), &3.into(), &1.into())
    );
    assert_eq!(ready["status"]["ready"], true);
    assert!(world.listens(PORT.into()));
    let group = group_of(pid_of(&ready));

    // It crashes: told with its reason, and back on the same port.
    kill(pid_of(&ready), "KILL");
    let down = worker.reported(0, "NOTREADY");
    let words = down["reports"].to_string();
    assert!(words.contains("NOTREADY signal 9 (KILL)"), "{words}");
    let back = worker.line(0, "ready again", |line| {
        reports(line, "READY") && line["run"] == 2
    });
    assert_eq!(back["status"]["restarts"], 1);
    assert!(worker.lines().iter().any(|line| reports(line, "RESTARTED")));
    assert!(world.listens(PORT.into()));

    // What is no command is refused, and the service is none the wiser.
    for garbage in [
        "garbage",
        "{\"command\":\"fly\"}",
        "\u{1}[[[",
        &"x".repeat(100_000),
    ] {
        let before = worker.lines().len();
        worker.say(garbage);
        let answer = worker.line(before, "answered", |line| line["refused"].is_string());
        let words = answer["refused"].as_str().unwrap();
        assert!(words.ends_with("nothing changed"), "{words}");
        assert_eq!(
            (&answer["answer"], &answer["run"]),
            (&Value::Null, &2.into())
        );
    }
    worker.say("{\"command\":\"tell\",\"id\":\"seven\"}");
    let told = worker.line(0, "told", |line| line["id"] == "seven");
    assert_eq!(
        (&told["answer"], &told["refused"]),
        (&"tell".into(), &Value::Null)
    );
    assert_eq!(told["status"]["pid"], back["status"]["pid"]);

    worker.say("{\"command\":\"restart\"}");
    let third = worker.line(0, "restarted", |line| {
        reports(line, "READY") && line["run"] == 3
    });
    assert_eq!(
        (
            &third["status"]["user_restarts"],
            &third["status"]["restarts"]
        ),
        (&1.into(), &1.into())
    );

    // Numbers only rise.
    let order: Vec<_> = worker
        .lines()
        .iter()
        .map(|line| (line["run"].as_u64(), line["seq"].as_u64()))
        .collect();
    assert!(order.is_sorted(), "{order:?}");

    worker.say("{\"command\":\"stop\",\"grace\":\"5s\"}");
    let stopped = worker.reported(0, "STOPPED");
    assert_eq!(stopped["status"]["state"]["final"], "stopped");
    assert_eq!(worker.code(), Some(0));
    assert_eq!(left(&world), []);
    assert!(world.path("folder/supervision.jsonl").exists());
    // Nothing is left of what held it together either: of the run, of the replica, of all that are in the folder.
    for group in group.iter().flat_map(|group| group.ancestors().take(3)) {
        assert!(!group.exists(), "{}", group.display());
    }
}

#[test]
fn a_killed_worker_is_followed_by_one_that_takes_over_and_the_end_of_the_input_ends_nothing() {
    let Some(world) = World::new() else { return };
    let (profile, grant) = (web(&world, ""), grant(&world));
    let mut first = Worker::start(&world, &profile, &grant);
    let ready = first.reported(0, "READY");
    // Nobody supervises it any more: it goes on, and still restarts what dies.
    drop(first.stdin.take());
    kill(pid_of(&ready), "KILL");
    let back = first.line(0, "ready again", |line| {
        reports(line, "READY") && line["run"] == 2
    });
    first.signal("KILL");
    assert_eq!(first.code(), None);
    assert!(world.listens(PORT.into()));

    let told = first.lines().len();
    let mut second = Worker::start(&world, &profile, &grant);
    let full = second.line(told, "told the full state", |_| true);
    assert_eq!(full["status"]["pid"], back["status"]["pid"]);
    assert_eq!(
        (&full["run"], &full["status"]["ready"]),
        (&2.into(), &true.into())
    );
    // What was decided with the old profile is not changed by the way.
    let other = world.profile(
        "other.toml",
        &std::fs::read_to_string(&profile)
            .unwrap()
            .replace("200ms", "300ms"),
    );
    let mut changed = Worker::start(&world, &other, &grant);
    assert_eq!(changed.code(), Some(125), "the folder is taken");

    second.signal("TERM");
    second.reported(told, "STOPPED");
    assert_eq!(second.code(), Some(0));
    assert_eq!(left(&world), []);

    let mut changed = Worker::start(&world, &other, &grant);
    assert_eq!(changed.code(), Some(2));
    let log = std::fs::read_to_string(world.path("worker.log")).unwrap();
    assert!(
        log.contains("the profile changed since incarnation 3 began"),
        "{log}"
    );
    // Again with what it was: it says how it ended.
    let mut again = Worker::start(&world, &profile, &grant);
    assert_eq!(again.code(), Some(0));
    assert_eq!(
        again.lines().last().unwrap()["status"]["state"]["final"],
        "stopped"
    );
}

#[test]
fn a_stranger_on_its_port_is_told_and_has_an_exit_code_of_its_own() {
    let Some(world) = World::new() else { return };
    let _stranger = Stranger::new(&world, "0.0.0.0", PORT);
    let mut worker = Worker::start(&world, &web(&world, ""), &grant(&world));
    let conflict = worker.reported(0, "PORT_CONFLICT");
    assert_eq!(
        conflict["status"]["state"]["final"]["port-conflict"]["port"],
        PORT
    );
    assert_eq!(conflict["status"]["restarts"], 0);
    assert_eq!(worker.code(), Some(75));
}

#[test]
fn a_service_that_ends_by_itself_gives_the_worker_its_exit_code() {
    let Some(world) = World::new() else { return };
    let grant = world.profile("grant.json", "{}");
    for (policy, command, code, word) in [
        (
            "policy = \"never\"",
            "env >$HOME_OF_TEST; exit 0",
            0,
            "SUCCEEDED",
        ),
        ("policy = \"never\"", "exit 7", 1, "FAILED"),
        (
            "give_up = { max_restarts = 1 }\nbackoff = { initial = \"100ms\", max = \"1s\" }",
            "exit 1",
            1,
            "GAVEUP",
        ),
    ] {
        let profile = world.profile(
            "ends.toml",
            &format!(
                "kind = \"service\"\nname = \"ends\"\ncommand = \"{}\"\n[restart]\n{policy}\n",
                command.replace("$HOME_OF_TEST", &world.path("env").display().to_string())
            ),
        );
        std::fs::remove_dir_all(world.path("folder")).ok();
        let mut worker = Worker::start(&world, &profile, &grant);
        assert_eq!(
            worker.code(),
            Some(code),
            "{command}: {:#?}",
            worker.lines()
        );
        let last = worker.lines().pop().unwrap();
        assert!(reports(&last, word), "{last:#}");
    }
    let env = std::fs::read_to_string(world.path("env")).unwrap();
    assert!(env.contains("PORTREEVE_SERVICE=ends\n"), "{env}");
    assert!(!env.contains("PORTREEVE_CONTROLLER="), "{env}");
}

#[test]
fn a_bad_profile_grant_or_descriptor_is_refused_with_its_place_and_starts_nothing() {
    let Some(world) = World::new() else { return };
    let refused = |profile: &str, grant: &str| {
        let output = command(&world, profile, grant).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(!world.path("folder").exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let (good, fine) = (web(&world, ""), grant(&world));
    let bad = world.profile(
        "bad.toml",
        "name = \"web\"\ncommand = [\"x\"]\nreplicsa = 3\n",
    );
    let words = refused(&bad, &fine);
    assert!(words.contains("bad.toml:3:1: replicsa"), "{words}");
    let bad = world.profile("bad.json", "{\"ports\":\n  {\"http\": 70000}}");
    let words = refused(&good, &bad);
    assert!(
        words.contains("bad.json:2:4: ports.http: write a port"),
        "{words}"
    );
    let bad = world.profile("bad.json", "{\"ports\":\n  {\"htpt\": 7000}}");
    let words = refused(&good, &bad);
    assert!(
        words.contains("bad.json:1:2: ports.http is missing"),
        "{words}"
    );
    assert!(
        words.contains("bad.json:2:4: ports.htpt: the profile has no such port"),
        "{words}"
    );
    let words = refused(&good, "/nowhere/grant.json");
    assert!(
        words.contains("/nowhere/grant.json: No such file"),
        "{words}"
    );
    let arguments = [
        "worker",
        "--profile",
        &good,
        "--grant",
        &fine,
        "--status-fd",
    ];
    let outcome = world.run(&[&arguments[..], &["77"]].concat());
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("--status-fd 77: "), "{outcome:?}");
    assert_eq!(world.run(&[&arguments[..], &["0"]].concat()).code, Some(2));
    let output = world
        .command("sh")
        .args(["-c", "exec \"$@\" 3</dev/null", "sh", PORTREEVE])
        .args(&arguments[..])
        .arg("3")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(world.run(&arguments[..5]).code, Some(2));
}

#[test]
fn a_reader_that_never_reads_or_is_gone_costs_the_service_nothing() {
    let Some(world) = World::new() else { return };
    let more = "[liveness]\nhttp = { path = \"/\" }\ninterval = \"200ms\"\n";
    let (profile, grant) = (web(&world, more), grant(&world));
    let mut command = world.portreeve(&["worker", "--profile", &profile, "--grant", &grant]);
    command
        .args(["--status-fd", "1", "--folder"])
        .arg(world.path("folder"))
        .stdout(Stdio::piped());
    let mut worker = Worker::start_by(&world, &mut command);
    assert!(eventually(|| world.listens(PORT.into())));
    // Answers are lines too: far more than a pipe holds.
    for _ in 0..3_000 {
        worker.say("{\"command\":\"tell\"}");
    }
    // It still does what it is told, and restarts what dies.
    let state = || -> Value {
        let text = std::fs::read(world.path("folder/status.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    let pid = |of: &Value| i32::try_from(of["pid"].as_i64().unwrap()).unwrap();
    assert!(eventually(|| state()["ready"] == true));
    kill(pid(&state()), "KILL");
    assert!(eventually(
        || state()["ready"] == true && state()["run"] == 2
    ));
    // Then the reader goes away altogether.
    drop(worker.child.stdout.take());
    kill(pid(&state()), "KILL");
    assert!(eventually(
        || state()["ready"] == true && state()["run"] == 3
    ));
    worker.say("{\"command\":\"stop\"}");
    assert_eq!(worker.code(), Some(0));
    assert_eq!(left(&world), []);
}

#[test]
fn the_example_of_the_users_page_runs_as_it_stands() {
    let Some(world) = World::new() else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/worker.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, example) = page.split_once("```sh\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let folder = Path::new(PORTREEVE).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = world
        .command("bash")
        .args(["-euc", example])
        .env("PATH", path)
        .current_dir(world.path(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("ready: "), "{said} {words}");
    assert!(said.ends_with("ended with 0\n"), "{said} {words}");
}

#[test]
fn who_was_started_with_blocked_signals_hears_term_all_the_same() {
    // D8 worker started with blocked signals: some schedulers and threaded launchers block them all in what they start.
    const CARELESS: &str = "import os, signal, sys\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nos.execvp(sys.argv[1], sys.argv[1:])\n";
    let Some(world) = World::new() else { return };
    let through = ["python3", "-c", CARELESS];
    let path = |name: &str| world.path(name).display().to_string();
    let (data, run) = (path("data"), path("run"));
    let arguments = ["controller", "--data", &data, "--run-dir", &run];
    let controller = world.start_through(world.network(), "controller", &through, &arguments);
    assert_eq!(controller.end("TERM"), Some(0));

    let mut careless = world.command("python3");
    careless
        .args(&through[1..])
        .args(["sh", "-c", "exec \"$@\" 3>>\"$STATUS\"", "sh", PORTREEVE])
        .args([
            "worker",
            "--profile",
            &web(&world, ""),
            "--grant",
            &grant(&world),
        ])
        .args(["--status-fd", "3", "--folder"])
        .arg(world.path("folder"))
        .env("STATUS", world.path("status"));
    let mut worker = Worker::start_by(&world, &mut careless);
    worker.reported(0, "READY");
    worker.signal("TERM");
    worker.reported(0, "STOPPED");
    assert_eq!(worker.code(), Some(0));
    assert_eq!(left(&world), []);
}
