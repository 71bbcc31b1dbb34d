//! The example scheduler, run to its end, killed at each point around a commit, and started again.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run its scheduler has failed"
)]

mod built;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use built::{compiler, root, run, shared_object, temporary};

static SCHEDULER: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = temporary().join("mini_scheduler");
    let source = root().join("examples/mini_scheduler.c");
    run(compiler().arg(source).args(["-ldl", "-o"]).arg(&program));
    program
});

const HOSTS: &str = "n1 4 10.0.0.1\nn2 4 10.0.0.2\nn3 2 fd00::3\n";
const KINDS: &str = "web web.alice http=any rpc=any*4\nadmin admin.bob console=8080\n";
/// The third is more important than the first, and too large to run beside it.
const JOBS: &str = "# ID AT KIND REPLICAS CPUS PRIORITY RUNTIME\n\
    1 0 web 3 2 1 30000\n2 1000 admin 3 1 1 20000\n3 5000 admin 2 1 5 20000\n4 2000 web 2 1 2 10000\n";

/// The files of one scheduler.
struct World(PathBuf);

/// The same hosts in another order.
const TURNED: &str = "n3 2 fd00::3\nn1 4 10.0.0.1\nn2 4 10.0.0.2\n";

/// One started job of the log: its key, and each replica's host and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Started {
    job: String,
    incarnation: String,
    replicas: Vec<(String, Vec<u16>)>,
}

impl World {
    fn new(name: &str) -> Self {
        let folder = temporary().join("mini_scheduler_files").join(name);
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(folder.join("run")).unwrap();
        let world = Self(folder);
        for (file, text) in [("hosts", HOSTS), ("kinds", KINDS), ("jobs", JOBS)] {
            world.write(file, text);
        }
        world
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }

    fn arguments(&self) -> Vec<PathBuf> {
        let files = ["hosts", "kinds", "jobs", "log", "run"].map(|name| self.0.join(name));
        let mut all = vec![SCHEDULER.clone(), shared_object()];
        all.extend(files);
        all
    }

    fn start(&self, with: &[&str]) -> Output {
        let arguments = self.arguments();
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]).args(with);
        command.output().unwrap()
    }

    /// The words with which it refuses to go on.
    fn refuses(&self) -> String {
        let refused = self.start(&[]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        String::from_utf8(refused.stderr).unwrap()
    }

    /// What it said; it must come to its end.
    fn finish(&self) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.start(&[]);
        let errors = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{status}: {errors}");
        String::from_utf8(stdout).unwrap()
    }

    /// The whole lines of the log, without their sums.
    fn log(&self) -> Vec<Vec<String>> {
        let log = std::fs::read_to_string(self.0.join("log")).unwrap_or_default();
        let whole = log
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let words = |line: &str| {
            let (line, _) = line.rsplit_once(" #").unwrap();
            line.split(' ').map(str::to_owned).collect()
        };
        whole.map(words).collect()
    }

    /// What the log says is held at its end. At no moment of it is a number held twice.
    fn held(&self) -> Vec<Started> {
        let mut held: Vec<Started> = Vec::new();
        for line in self.log() {
            let job = line[2].clone();
            match line[1].as_str() {
                "start" => {
                    let replicas = line[4..].iter().map(|replica| {
                        let (host, numbers) = replica.split_once(':').unwrap();
                        let numbers = numbers.split(',').map(|number| number.parse().unwrap());
                        (host.to_owned(), numbers.collect())
                    });
                    held.push(Started {
                        job,
                        incarnation: line[3].clone(),
                        replicas: replicas.collect(),
                    });
                }
                "end" => held.retain(|started| started.job != job),
                _ => {}
            }
            let mut taken = BTreeSet::new();
            for (host, numbers) in held.iter().flat_map(|started| &started.replicas) {
                for number in numbers {
                    assert!(taken.insert((host.clone(), *number)), "{host}: {number}");
                }
            }
        }
        held
    }

    /// Nothing is held, every job has ended, and each placement in the log was launched with its own numbers.
    fn came_to_its_end(&self, when: &str) {
        assert_eq!(self.held(), [], "{when}");
        let mut placed = BTreeMap::new();
        let log = self.log();
        for line in log.iter().filter(|line| line[1] == "start") {
            for (replica, told) in line[4..].iter().enumerate() {
                let (_, numbers) = told.split_once(':').unwrap();
                let numbers: Vec<u16> = numbers.split(',').map(|it| it.parse().unwrap()).collect();
                // Of a block the first is told.
                let told = numbers.iter().take(2).copied().collect();
                let key = format!("{}.{replica}.{}", line[2], line[3]);
                assert_eq!(placed.insert(key, told), None, "placed twice");
            }
        }
        let launched: BTreeMap<String, BTreeSet<u16>> = self.launched();
        assert_eq!(launched, placed, "{when}");
        for job in 1..=4 {
            let job = job.to_string();
            let ends = log.iter().filter(|line| line[1] == "end" && line[2] == job);
            assert!(ends.count() >= 1, "{when}: job {job} is lost");
        }
    }

    /// The files of started replicas with the numbers that each was told.
    fn launched(&self) -> BTreeMap<String, BTreeSet<u16>> {
        let files = std::fs::read_dir(self.0.join("run")).unwrap();
        let launched = files.map(|file| {
            let file = file.unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            let ports = text.lines().filter_map(|line| {
                let (name, value) = line.split_once('=')?;
                let name = name.strip_prefix("PORTREEVE_PORT_")?;
                let first = !name.ends_with("_LAST") && !name.ends_with("_COUNT");
                first.then(|| value.parse().unwrap())
            });
            (file.file_name().into_string().unwrap(), ports.collect())
        });
        launched.collect()
    }
}

/// The lines by which a scheduler says what its plugin holds.
fn held_lines(said: &str) -> BTreeSet<String> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("held "));
    lines.map(str::to_owned).collect()
}

fn lines_of(held: &[Started]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for started in held {
        for (replica, (host, numbers)) in started.replicas.iter().enumerate() {
            let numbers: Vec<String> = numbers.iter().map(u16::to_string).collect();
            let (job, incarnation) = (&started.job, &started.incarnation);
            let numbers = numbers.join(",");
            lines.insert(format!("{job}.{replica}.{incarnation} {host}:{numbers}"));
        }
    }
    lines
}

#[test]
fn a_scheduler_places_preempts_resolves_and_watches() {
    let world = World::new("whole");
    let said = world.finish();
    for expected in [
        "       0 ms  launch job 1 replica 0 on n1",
        "    1000 ms  job 2 waits: no cpus",
        "    5000 ms  job 1 is stopped for job 3",
        "    6000 ms  job 1 has ended",
        "    6000 ms  launch job 3 replica 0 on n1",
        "    1000 ms  + web.alice http replica 0 at 10.0.0.1 port 20004, state 1",
        "    5000 ms  + web.alice http replica 0 at 10.0.0.1 port 20004, state 4",
        "    6000 ms  - web.alice http replica 0 at 10.0.0.1 port 20004, state 4",
    ] {
        let found = said.lines().any(|line| line == expected);
        assert!(found, "{expected:?} not in:\n{said}");
    }
    // Whoever was stopped runs again, as another placement, and nothing is held at the end.
    assert_eq!(world.held(), []);
    assert_eq!(held_lines(&said), BTreeSet::new());
    let launched = world.launched();
    assert!(launched.contains_key("1.0.0") && launched.contains_key("1.0.1"));
    assert!(launched.contains_key("2.2.0"), "{launched:?}");
}

#[test]
fn a_scheduler_that_is_killed_around_a_commit_holds_what_it_logged_and_nothing_else() {
    let points = ["reserve", "torn", "log", "commit", "launch"];
    for (point, time) in points.into_iter().flat_map(|it| [1, 2, 5].map(|n| (it, n))) {
        let world = World::new(&format!("{point}-{time}"));
        let killed = world.start(&["--kill-at", &format!("{point}:{time}")]);
        assert_eq!(killed.status.signal(), Some(9), "{point}:{time}");
        if point == "torn" {
            let log = std::fs::read(world.0.join("log")).unwrap();
            assert_ne!(log.last(), Some(&b'\n'), "nothing is torn");
        }
        let logged = world.held();
        // Another order of hosts: the names say where everything is.
        world.write("hosts", TURNED);
        let said = world.finish();
        assert_eq!(
            held_lines(&said),
            lines_of(&logged),
            "{point}:{time}:\n{said}"
        );
        world.came_to_its_end(&format!("{point}:{time}"));
    }
}
#[test]
fn a_log_that_is_damaged_before_its_end_is_refused_rather_than_cut() {
    let world = World::new("damaged");
    world.finish();
    let path = world.0.join("log");
    let mut log = std::fs::read(&path).unwrap();
    log[3] ^= 1;
    std::fs::write(&path, &log).unwrap();
    let refused = world.start(&[]);
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(
        errors.contains("a line in the middle is damaged"),
        "{errors}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), log, "the log was touched");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the instant of a kill is a time and no condition; nothing is hoped for meanwhile"
)]
fn a_scheduler_that_is_killed_at_any_instant_goes_on_from_its_log() {
    let world = World::new("instants");
    let mut killed = 0;
    // A small generator: no instant is better than another.
    let mut dice: u64 = 0x9e37_79b9_7f4a_7c15;
    for round in 0..24 {
        world.write("hosts", if round % 2 == 0 { HOSTS } else { TURNED });
        let arguments = world.arguments();
        let mut scheduler = Command::new(&arguments[0])
            .args(&arguments[1..])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The instant itself; nothing is waited for.
        std::thread::sleep(Duration::from_micros((dice >> 33) % 30_000));
        scheduler.kill().unwrap();
        let status = scheduler.wait().unwrap();
        world.held();
        if status.signal() == Some(9) {
            killed += 1;
            continue;
        }
        assert!(status.success(), "{status}");
        world.came_to_its_end(&format!("round {round}"));
        for file in ["log", "run"] {
            let path = world.0.join(file);
            _ = std::fs::remove_file(&path);
            _ = std::fs::remove_dir_all(&path);
        }
        std::fs::create_dir(world.0.join("run")).unwrap();
    }
    assert!(killed > 0, "it was quicker than every kill");
    world.finish();
    world.came_to_its_end("the end");
}

#[test]
fn a_log_that_has_no_room_ends_the_scheduler_and_costs_it_nothing_that_was_promised() {
    let world = World::new("full");
    let jobs: String = (1..=60)
        .map(|id| format!("{id} 0 web 2 1 1 2000\n"))
        .collect();
    world.write("jobs", &jobs);
    // 512 or 1024 bytes, as the shell counts; a longer write comes short and the next one fails.
    let full = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 1; exec \"$@\" >/dev/null",
            "sh",
        ])
        .args(world.arguments())
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(1));
    let words = String::from_utf8(full.stderr).unwrap();
    assert!(
        words.starts_with("log: ") && !words.contains("Success"),
        "{words}"
    );
    let logged = world.held();
    assert!(!logged.is_empty(), "it never had room");
    let said = world.finish();
    assert_eq!(held_lines(&said), lines_of(&logged));
    assert_eq!(world.held(), []);
}

/// What a victim held cools, and its own service may have that at once: it must not come back before the one that it made room for.
#[test]
fn a_victim_waits_until_the_one_that_it_was_stopped_for_runs() {
    let world = World::new("victim");
    world.write("hosts", "n1 4 10.0.0.1\n");
    world.write(
        "kinds",
        "web web.alice http=any\nadmin admin.bob console=8080\nother other.eve console=8080\n",
    );
    world.write(
        "jobs",
        "1 0 admin 1 1 2 300000\n2 0 web 1 1 1 300000\n3 3000 other 1 1 5 5000\n",
    );
    // Killed after the stop as well: the log says for whom it was.
    let killed = world.start(&["--until", "10000"]);
    assert!(killed.status.success());
    let said = world.finish();
    let words = world.log();
    let words: Vec<String> = words.iter().map(|line| line[..3].join(" ")).collect();
    // Nobody else is stopped while it only has to wait for the number to cool.
    let expected = [
        "0 start 1",
        "0 start 2",
        "3000 stop 1",
        "4000 end 1",
        "64000 start 3",
        "69000 end 3",
        "129000 start 1",
    ];
    assert_eq!(words[..expected.len()], expected, "{said}");
}

#[test]
fn files_that_change_between_lives_are_followed_or_refused_with_words() {
    let world = World::new("changed");
    // At this moment job 1 has ended once, and its numbers rest on a host that nobody runs on.
    assert!(world.start(&["--until", "40000"]).status.success());
    let before = world.held();
    assert!(!before.is_empty());
    let kinds = "web web.alice http=any\nadmin admin.bob console=8080\n";
    world.write("kinds", kinds);
    let holds_web = before
        .iter()
        .any(|started| started.job == "1" || started.job == "4");
    assert!(holds_web);
    let words = world.refuses();
    assert!(
        words.contains("web: a job of the log runs with another number"),
        "{words}"
    );
    world.write("kinds", KINDS);
    world.write("hosts", "n4 8 10.0.0.4\n");
    let words = world.refuses();
    assert!(
        words.contains("runs on a host that is not in this file"),
        "{words}"
    );
    // All have ended: what rests is restored by its numbers, and hosts may go.
    world.write("hosts", TURNED);
    world.finish();
    world.write("kinds", kinds);
    let more = format!("{JOBS}9 0 web 2 1 1 1000\n");
    world.write("jobs", &more);
    for hosts in ["n2 4 10.0.0.2\n", "n4 8 10.0.0.4\n"] {
        world.write("hosts", hosts);
        world.finish();
        assert_eq!(world.held(), []);
    }
}
