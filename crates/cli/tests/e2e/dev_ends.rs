//! How `dev` ends: whenever it is told to, and whoever watches, it stops in order and leaves nothing.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::world::{USUAL, World, eventually, hello, kill, names_in};

/// Starts `dev` with one service and does not wait for anything.
fn dev(world: &World, stdout: Stdio) -> Child {
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let run = world.path("run").display().to_string();
    std::fs::create_dir_all(world.path("tmp")).unwrap();
    world
        .portreeve(&["dev", "--run-dir", &run, &profile])
        .env("TMPDIR", world.path("tmp"))
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn code(dev: &mut Child) -> Option<i32> {
    let mut code = None;
    let ended = eventually(|| {
        let status = dev.try_wait().unwrap();
        code = status.and_then(|status| status.code());
        status.is_some()
    });
    assert!(ended, "dev does not end");
    code
}

fn leaves_nothing(world: &World) {
    assert_eq!(world.processes(), []);
    assert_eq!(names_in(&world.path("tmp")), Vec::<String>::new());
    assert_eq!(names_in(&world.path("run")), Vec::<String>::new());
}

#[test]
fn told_to_stop_at_any_moment_of_its_beginning_it_leaves_nothing() {
    for (signal, moment) in [
        ("INT", Moment::Folder),
        ("TERM", Moment::Socket),
        ("HUP", Moment::Socket),
        ("INT", Moment::Worker),
        ("HUP", Moment::Service),
    ] {
        let Some(world) = World::new() else { return };
        let mut dev = dev(&world, Stdio::null());
        assert!(eventually(|| moment.has_come(&world)), "{moment:?}");
        kill(dev.id().cast_signed(), signal);
        assert_eq!(code(&mut dev), Some(0), "SIG{signal} at {moment:?}");
        leaves_nothing(&world);
    }
}

/// How far a beginning came.
#[derive(Debug)]
enum Moment {
    Folder,
    Socket,
    Worker,
    Service,
}

impl Moment {
    fn has_come(&self, world: &World) -> bool {
        let runs = |word: &str| {
            let mut all = world.processes().into_iter();
            all.any(|(_, line)| line.contains(word))
        };
        match self {
            Self::Folder => !names_in(&world.path("tmp")).is_empty(),
            Self::Socket => world.path("run/controller.sock").exists(),
            Self::Worker => runs(" worker --folder"),
            Self::Service => runs("hello --port"),
        }
    }
}

#[test]
fn when_nobody_reads_its_view_any_more_it_stops_in_order() {
    // dev | head -2
    let Some(world) = World::new() else { return };
    let mut dev = dev(&world, Stdio::piped());
    let mut lines = BufReader::new(dev.stdout.take().expect("it is piped")).lines();
    for _ in 0..2 {
        lines.next().unwrap().unwrap();
    }
    drop(lines);
    assert_eq!(code(&mut dev), Some(0));
    leaves_nothing(&world);
}

#[test]
fn a_view_that_cannot_be_written_ends_no_service() {
    let Some(world) = World::new() else { return };
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut dev = dev(&world, full.into());
    assert!(eventually(|| world.run(&["hosts"]).code == Some(0)));
    assert!(eventually(
        || world.run(&["service", "hello"]).code == Some(0)
    ));
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    assert_eq!(dev.try_wait().unwrap(), None);
    kill(dev.id().cast_signed(), "INT");
    assert_eq!(code(&mut dev), Some(0));
    leaves_nothing(&world);
}

#[test]
fn a_service_submitted_while_it_ends_is_stopped_too() {
    let Some(world) = World::new() else { return };
    let slow = "[stop]\ngrace = \"3s\"\n";
    let text = hello("slow", 1, "--ignore-term", &format!("{USUAL}{slow}"));
    let slow = world.profile("slow.toml", &text);
    let late = world.profile("late.toml", &hello("late", 1, "", USUAL));
    let dev = world.dev(&[&slow]);
    world.ok(&["wait", "slow", "--timeout", "30s"]);
    kill(dev.pid(), "INT");
    world.replica_when("slow", 0, "was stopped", |replica| {
        replica["state"] == "stopping"
    });
    world.ok(&["submit", &late]);
    assert_eq!(dev.end("INT"), Some(0));
    assert_eq!(world.processes(), []);
}

#[test]
fn a_service_that_does_not_listen_yet_is_no_reason_to_wait_for_its_grace() {
    let Some(world) = World::new() else { return };
    let patient = format!("{USUAL}[stop]\ngrace = \"1h\"\n");
    let text = hello("late", 1, "--listen-after 1h", &patient);
    let dev = world.dev(&[&world.profile("late.toml", &text)]);
    world.replica_when("late", 0, "was started", |replica| replica["pid"].is_i64());
    assert_eq!(dev.end("INT"), Some(0));
    assert_eq!(world.processes(), []);
}
