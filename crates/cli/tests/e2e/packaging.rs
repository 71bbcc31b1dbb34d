//! What is shipped beside the program: its units under a real service manager, and the Debian packages, installed by dpkg.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::units::{Managed, is_inside, where_a_manager_can_be};
use crate::world::{Outcome, PORTREEVE, World, eventually, hello, kill};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The shipped unit with these options behind its command, and without the condition that it is configured.
fn shipped(unit: &str, command: &str, options: &str) -> String {
    let path = Path::new(ROOT).join("packaging/systemd").join(unit);
    let text = fs::read_to_string(path).unwrap();
    let start = format!("ExecStart=/usr/bin/portreeve {command}\n");
    assert!(text.contains(&start), "{unit} does not begin by {command}");
    let text = text.replace(
        &start,
        &format!("ExecStart={PORTREEVE} {command} {options}\n"),
    );
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("ConditionPathExists="));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn no_stop_restart_or_crash_of_the_shipped_units_touches_a_service() {
    if !is_inside() {
        return where_a_manager_can_be(
            "packaging::no_stop_restart_or_crash_of_the_shipped_units_touches_a_service",
        );
    }
    let managed = Managed::new();
    let world = &managed.world;
    let runtime = std::env::var("XDG_RUNTIME_DIR").unwrap();
    let units = Path::new(&runtime).join("systemd/user");
    fs::create_dir_all(&units).unwrap();
    let (data, run) = (world.path("data"), world.path("run"));
    let (data, run) = (data.display(), run.display());
    let options = format!("--data {data} --run-dir {run} --single-host");
    let controller = shipped("portreeve-controller.service", "controller", &options);
    // The world's folders stand for the usual places, which are the unit's own to write; and a user's manager, or one in a
    // container, may not hide everything that the system's may.
    let places = format!(
        "[Service]\nReadWritePaths={data} {run}\nPrivateTmp=no\nProtectHome=no\nProtectKernelTunables=no\nProtectKernelLogs=no\n"
    );
    let controller = controller + &places;
    fs::create_dir(world.path("data")).unwrap();
    fs::create_dir(world.path("run")).unwrap();
    fs::write(units.join("portreeve-controller.service"), controller).unwrap();
    let socket = world.socket();
    let options =
        format!("--data {data} --socket {run}/agent.sock --single-host --controller {socket}");
    let agent = shipped("portreeve-agent.service", "agent", &options);
    fs::write(units.join("portreeve-agent.service"), agent).unwrap();
    managed.systemctl(&["daemon-reload"]);

    let started = |unit: &str| {
        managed.systemctl(&["start", unit]);
        let state = managed.systemctl(&["is-active", unit]);
        let status = managed.systemctl(&["status", "--lines=50", unit]);
        assert_eq!(state.trim(), "active", "{status}");
    };
    // Each is there once it answers: what follows need not wait.
    started("portreeve-controller");
    world.ok(&["services"]);
    started("portreeve-agent");
    // By its whole path: a unit has the service manager's PATH.
    let ports =
        "[ports]\nhttp = \"any\"\n[readiness]\nhttp = { port = \"http\" }\ninterval = \"200ms\"";
    let profile =
        hello("hello", 2, "", ports).replace("exec portreeve", &format!("exec {PORTREEVE}"));
    let profile = world.profile("hello.toml", &profile);
    world.ok(&["submit", &profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let standing = || {
        let replicas = [0, 1].map(|index| world.replica("hello", index));
        replicas.map(|it| (it["pid"].clone(), it["run"].clone(), it["ports"].clone()))
    };
    let before = standing();
    let main = |unit: &str| {
        let shown = managed.systemctl(&["show", "--property", "MainPID", "--value", unit]);
        shown.trim().parse::<i32>().unwrap()
    };
    let is_well = |when: &str| {
        let back = eventually(|| {
            let here = world.run(&["wait", "hello", "--timeout", "5s"]);
            here.code == Some(0) && standing() == before
        });
        assert!(back, "{when}: {:?}, were {before:?}", standing());
    };
    for unit in ["portreeve-agent", "portreeve-controller"] {
        let first = main(unit);
        managed.systemctl(&["restart", unit]);
        assert_ne!(main(unit), first);
        is_well("after a restart");
        let second = main(unit);
        kill(second, "KILL");
        assert!(eventually(|| ![0, second].contains(&main(unit))), "{unit}");
        is_well("after a crash");
        let third = main(unit);
        managed.systemctl(&["reload", unit]);
        is_well("after a reload");
        assert_eq!(main(unit), third, "a reload is no restart");
    }
    managed.systemctl(&["stop", "portreeve-agent"]);
    is_well("while the agent is stopped");
    started("portreeve-agent");
    is_well("after its start");
    world.ok(&["stop", "hello"]);
    world.ok(&["wait", "hello", "--gone", "--timeout", "30s"]);
}

#[test]
fn the_debian_packages_install_work_and_leave_nothing_but_what_is_somebodys() {
    let Some(world) = World::new() else { return };
    let folder = world.path("deb");
    let target = Path::new(PORTREEVE).parent().unwrap();
    let built = target.parent().unwrap();
    // A shared object is nothing that a test can depend on; as the plugin's own tests, by the same words.
    let plugin = Command::new(env!("CARGO"))
        .args(["build", "--locked", "-p", "portreeve-plugin"])
        .args((target.file_name() == Some("release".as_ref())).then_some("--release"))
        .arg("--target-dir")
        .arg(built)
        .current_dir(ROOT)
        .output()
        .unwrap();
    let plugin = Outcome::of(plugin);
    assert_eq!(plugin.code, Some(0), "{}", plugin.stderr);
    let built_by = Command::new(Path::new(ROOT).join("packaging/deb/build"))
        .arg(&folder)
        .env("BUILD", target.file_name().unwrap())
        .env("CARGO_TARGET_DIR", built)
        .output()
        .unwrap();
    let built = Outcome::of(built_by);
    assert_eq!(built.code, Some(0), "{}{}", built.stdout, built.stderr);
    let installed = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(Path::new(ROOT).join("crates/cli/tests/e2e/packaging.sh"))
        .arg(&folder)
        .output()
        .unwrap();
    let installed = Outcome::of(installed);
    assert_eq!(
        installed.code,
        Some(0),
        "{}{}",
        installed.stdout,
        installed.stderr
    );
    assert!(
        installed.stdout.ends_with("all well\n"),
        "{}",
        installed.stdout
    );
}
