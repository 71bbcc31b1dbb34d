//! What services write: kept within bounds, read over parts and incarnations, and never in a service's way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::world::{Running, World, eventually, kill, names_in};

/// A dev whose files of output are small; its replicas' folders are below `data`.
fn dev(world: &World, profile: &str, files: &str, more: &[&str]) -> Running {
    let data = world.path("data").display().to_string();
    let small = ["--log-size", "65536", "--log-files", files, "--data", &data];
    world.dev(&[&[profile][..], &small[..], more].concat())
}

fn service(world: &World, name: &str, script: &str, more: &str) -> String {
    let script = script.replace('$', "$$");
    let text = format!(
        "kind = \"service\"\nname = \"{name}\"\nmin_up = \"50ms\"\ncommand = '''{script}'''\n{more}\n\
         [restart]\nbackoff = {{ initial = \"100ms\", max = \"1s\" }}\n[stop]\ngrace = \"1s\"\n"
    );
    world.profile(&format!("{name}.toml"), &text)
}

/// The folder of the newest incarnation of replica 0.
fn folder(world: &World, service: &str) -> PathBuf {
    let replicas = world.path("data/agent/replicas");
    let names = names_in(&replicas);
    let prefix = format!("{service}.root~0~");
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix(&prefix)?.parse::<u32>().ok());
    let newest = numbers
        .max()
        .unwrap_or_else(|| panic!("{prefix} is not in {names:?}"));
    replicas.join(format!("{prefix}{newest}"))
}

/// The parts and the growing file: names and lengths.
fn files(folder: &Path) -> BTreeMap<String, u64> {
    let names = names_in(folder).into_iter();
    let files = names.filter(|name| name.starts_with("stdout"));
    files
        .map(|name| {
            let length = fs::metadata(folder.join(&name)).map_or(0, |about| about.len());
            (name, length)
        })
        .collect()
}

/// Kilobytes of `/proc/PID/status`.
fn memory(pid: i32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(what))
        .unwrap();
    line.split_ascii_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

fn process(world: &World, word: &str) -> i32 {
    let processes = world.processes();
    let found = processes.iter().find(|(_, line)| line.contains(word));
    found
        .unwrap_or_else(|| panic!("no {word} in {processes:?}"))
        .0
}

/// `portreeve logs NAME -f`, its output in a file.
struct Follower {
    child: Child,
    out: PathBuf,
}

impl Follower {
    fn of(world: &World, name: &str) -> Self {
        let out = world.path(&format!("{name}.followed"));
        let file = fs::File::create(&out).unwrap();
        let child = world
            .portreeve(&["logs", name, "-f", "--tail", "4000000"])
            .stdout(file)
            .stderr(Stdio::null())
            .spawn();
        Self {
            child: child.unwrap(),
            out,
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    fn signal(&self, signal: &str) {
        kill(self.child.id().cast_signed(), signal);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills the service's process.
fn crash(world: &World, service: &str) {
    let pid = world.replica(service, 0)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
}

fn numbers(text: &str) -> Vec<u64> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn a_gigabyte_of_output_stays_within_bounds_and_takes_no_memory() {
    // Point 8: 1 GB on stdout
    let Some(world) = World::new() else { return };
    let gigabytes = if std::env::var("PORTREEVE_LONG").is_ok() {
        "10"
    } else {
        "1"
    };
    let script = format!(
        "until [ -e {go} ]; do sleep 0.1; done; yes 'a line as long as lines often are' | \
         head -c {gigabytes}000000000; echo END; exec sleep 1000000",
        go = world.path("go").display()
    );
    let profile = service(&world, "loud", &script, "");
    let _dev = dev(&world, &profile, "3", &[]);
    world.replica_when("loud", 0, "was ready", |replica| replica["ready"] == true);
    let (worker, shim) = (process(&world, " worker "), process(&world, " shim "));
    let before = [worker, shim].map(|pid| memory(pid, "VmHWM:"));
    fs::write(world.path("go"), "").unwrap();
    let folder = folder(&world, "loud");
    let ended = || {
        world
            .ok(&["logs", "loud", "--tail", "100"])
            .ends_with("END\n")
    };
    assert!(eventually(ended), "{:?}", files(&folder));
    // Within bounds once the writer rests.
    let kept = || files(&folder).values().sum::<u64>();
    assert!(eventually(|| kept() <= 3 * 65_536), "{:?}", files(&folder));
    let after = [worker, shim].map(|pid| memory(pid, "VmHWM:"));
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + 2_048, "{before} kB became {after} kB");
    }
    let replica = world.replica("loud", 0);
    assert_eq!(
        (&replica["ready"], &replica["restarts"]),
        (&true.into(), &0.into())
    );
    assert_eq!(process(&world, " worker "), worker);
}

#[test]
fn every_line_is_followed_once_over_parts_restarts_and_incarnations() {
    let Some(world) = World::new() else { return };
    // Each run writes some 100 kB in small steps, and goes on where the one before stopped.
    let script = format!(
        "f={counter}; n=$(cat $f 2>/dev/null || echo 0); end=$((n + 6000)); echo $end > $f.new; mv $f.new $f; \
         while [ $n -lt $end ]; do m=$((n + 100)); while [ $n -lt $m ]; do printf '%015d\\n' $n; n=$((n + 1)); done; \
         sleep 0.01; done; exec sleep 1000000",
        counter = world.path("counter").display()
    );
    let profile = service(&world, "count", &script, "");
    let _dev = dev(&world, &profile, "9", &[]);
    let follower = Follower::of(&world, "count");
    let reaches = |last: u64| {
        let met = eventually(|| numbers(&follower.text()).last() == Some(&(last - 1)));
        let seen = numbers(&follower.text());
        assert!(met, "{:?} of {last}", seen.last());
        let first_wrong = seen
            .iter()
            .enumerate()
            .find(|(place, number)| *place as u64 != **number);
        assert_eq!(first_wrong, None, "of {} lines", seen.len());
    };
    reaches(6_000);
    crash(&world, "count");
    reaches(12_000);
    let parts = files(&folder(&world, "count")).len();
    assert!(parts > 1, "nothing was cut off");
    // Another profile is another incarnation.
    let changed = service(&world, "count", &script, "env = { OTHER = \"1\" }");
    world.ok(&["submit", "--replace", &changed]);
    reaches(18_000);
    crash(&world, "count");
    reaches(24_000);
    // What is there is read as one, without following.
    let text = world.ok(&["logs", "count", "--tail", "4000000"]);
    assert_eq!(numbers(&text), (12_000..24_000).collect::<Vec<_>>());
}

#[test]
fn a_reader_that_is_stopped_holds_nothing_up_and_reads_on() {
    // Point 5: a dead reader
    let Some(world) = World::new() else { return };
    let script = "n=0; while :; do printf '%015d\\n' $n; n=$((n + 1)); [ $((n % 500)) = 0 ] && sleep 0.01; done";
    let profile = service(&world, "tick", script, "");
    let _dev = dev(&world, &profile, "2", &[]);
    let follower = Follower::of(&world, "tick");
    assert!(eventually(|| !numbers(&follower.text()).is_empty()));
    follower.signal("STOP");
    let folder = folder(&world, "tick");
    let begin = || {
        let names = files(&folder).into_keys();
        let ends = names.filter_map(|name| {
            name.strip_prefix("stdout.")?
                .strip_suffix(".log")?
                .parse()
                .ok()
        });
        ends.max().unwrap_or(0_u64)
    };
    let stopped_at = begin();
    assert!(
        eventually(|| begin() > stopped_at + 4 * 65_536),
        "the service waits"
    );
    assert!(files(&folder).values().sum::<u64>() < 4 * 65_536);
    let seen = numbers(&follower.text()).len();
    follower.signal("CONT");
    // It goes on with what is kept.
    let target = begin() / 16;
    assert!(eventually(|| numbers(&follower.text())
        .last()
        .is_some_and(|last| *last > target)));
    let all = numbers(&follower.text());
    assert!(all.is_sorted(), "something was read twice");
    assert!(all.len() > seen);
}

#[test]
fn a_full_disk_neither_stops_nor_blocks_a_service() {
    // Point 5: full disk
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    if !nix::unistd::geteuid().is_root() {
        assert!(!required, "this test needs root: a small disk of its own");
        eprintln!("skipped: needs root, to mount a small disk");
        return;
    }
    let Some(world) = World::new() else { return };
    let (data, run, socket) = (world.path("disk"), world.path("run"), world.socket());
    fs::create_dir(&data).unwrap();
    let (data, run) = (data.display().to_string(), run.display().to_string());
    let controller = ["controller", "--single-host", "--data"];
    let controller_data = world.path("c").display().to_string();
    let more = [controller_data.as_str(), "--run-dir", &run];
    let _controller = world.start("controller", &[&controller[..], &more[..]].concat());
    // A disk that only this agent and its children see, gone with them.
    let mut agent = world.command("unshare");
    agent.args(["--mount", "sh", "-c"]);
    agent.arg(format!(
        "mount -t tmpfs -o size=2m none {data} && exec {} \"$@\"",
        crate::world::PORTREEVE
    ));
    agent.arg("sh");
    let arguments = [
        "agent",
        "--host",
        "n1",
        "--single-host",
        "--log-size",
        "65536",
    ];
    let more = ["--data", &data, "--controller", &socket];
    let _agent = world.start_by(agent, "agent", &[&arguments[..], &more[..]].concat());

    let alive = world.path("alive").display().to_string();
    let script = format!(
        "while :; do echo a line of a service 2>/dev/null; date +%s%N > {alive}.new; mv {alive}.new {alive}; sleep 0.02; done"
    );
    let ready = format!(
        "[readiness]\ncommand = [\"test\", \"!\", \"-e\", \"{alive}.not\"]\ninterval = \"100ms\"\n"
    );
    let profile = service(&world, "stubborn", &script, &ready);
    world.ok(&["submit", &profile]);
    let before = world.replica_when("stubborn", 0, "was ready", |replica| {
        replica["ready"] == true
    });
    let pid = before["pid"].as_i64().unwrap();
    // Seen through a process that has it mounted.
    let disk = PathBuf::from(format!("/proc/{pid}/root{data}"));
    let filler = disk.join("filler");
    let fill = || {
        let mut file = fs::File::options()
            .append(true)
            .create(true)
            .open(&filler)
            .unwrap();
        while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
    };
    fill();
    let beat = || fs::read_to_string(&alive).unwrap_or_default();
    for _ in 0..10 {
        // Whatever is freed is taken again.
        fill();
        let then = beat();
        assert!(eventually(|| beat() != then), "the service is blocked");
    }
    // Its state is still told, although nothing of it can be written down.
    fs::write(format!("{alive}.not"), "").unwrap();
    world.replica_when("stubborn", 0, "was not ready", |replica| {
        replica["ready"] == false
    });
    fs::remove_file(format!("{alive}.not")).unwrap();
    let after = world.replica_when("stubborn", 0, "was ready", |replica| {
        replica["ready"] == true
    });
    assert_eq!(
        (&after["pid"], &after["restarts"]),
        (&before["pid"], &before["restarts"])
    );
    fs::remove_file(&filler).unwrap();
    let log = names_in(&disk.join("agent/replicas"));
    let log = disk.join("agent/replicas").join(&log[0]);
    let length = || files(&log).values().sum::<u64>();
    let then = length();
    assert!(
        eventually(|| length() > then),
        "nothing is written any more"
    );
}

#[test]
fn the_output_of_what_ended_is_let_go_after_its_time() {
    let Some(world) = World::new() else { return };
    let profile = service(&world, "brief", "echo hello; exec sleep 1000000", "");
    let _dev = dev(&world, &profile, "3", &["--keep-logs", "3s"]);
    let met = eventually(|| world.ok(&["logs", "brief"]).contains("hello"));
    assert!(met);
    let folder = folder(&world, "brief");
    world.ok(&["stop", "brief"]);
    assert!(eventually(|| folder.join("ended").exists()));
    assert!(folder.join("stdout.log").exists());
    assert!(eventually(|| !folder.exists()), "{:?}", names_in(&folder));
}
