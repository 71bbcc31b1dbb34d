//! The example scheduler, run to its end, killed at each point around a commit, and started again.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run its scheduler has failed"
)]

mod built;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

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
            std::fs::write(world.0.join(file), text).unwrap();
        }
        world
    }

    fn start(&self, with: &[&str]) -> Output {
        let files = ["hosts", "kinds", "jobs", "log", "run"].map(|name| self.0.join(name));
        let mut command = Command::new(&*SCHEDULER);
        command.arg(shared_object()).args(files).args(with);
        command.output().unwrap()
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
        let hosts = ["n3 2 fd00::3", "n1 4 10.0.0.1", "n2 4 10.0.0.2"].join("\n");
        std::fs::write(world.0.join("hosts"), hosts).unwrap();
        let said = world.finish();
        assert_eq!(
            held_lines(&said),
            lines_of(&logged),
            "{point}:{time}:\n{said}"
        );
        assert_eq!(world.held(), [], "{point}:{time}");
        // Every job came to its end, and each placement in the log was launched with its own numbers.
        let mut placed = BTreeMap::new();
        let log = world.log();
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
        let launched: BTreeMap<String, BTreeSet<u16>> = world.launched();
        assert_eq!(launched, placed, "{point}:{time}");
        for job in 1..=4 {
            let job = job.to_string();
            let ends = log.iter().filter(|line| line[1] == "end" && line[2] == job);
            assert!(ends.count() >= 1, "{point}:{time}: job {job} is lost");
        }
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
