//! Jobs that turn against those who keep them: what they do ends with them, and nobody beside them notices.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use portreeve_api::containment::{Hierarchy, Rung};

use crate::users::{BIN, DAEMON, Site};
use crate::world::{eventually, kill, names_in};

/// Whether this host holds replicas by control groups; where it does not, that is said, and fails where it is required.
fn has_groups() -> bool {
    let Err(refused) = Rung::Cgroup.possible() else {
        return true;
    };
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    assert!(!required, "control groups are required here: {refused}");
    eprintln!("skipped: needs control groups: {refused}");
    false
}

/// The control group of version 2 of a process.
fn group(pid: i32) -> PathBuf {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("0::"));
    PathBuf::from(line.unwrap_or_default())
}

fn pid(replica: &serde_json::Value) -> i32 {
    i32::try_from(replica["pid"].as_i64().unwrap()).unwrap()
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// Where the groups of version 2 are seen.
fn mount() -> PathBuf {
    let own = Hierarchy::Unified.own().unwrap();
    let below = group(i32::try_from(std::process::id()).unwrap());
    let levels = below.components().count() - 1;
    own.ancestors().nth(levels).unwrap().to_owned()
}

/// Lines of a script that set `G` to the replica's own group.
fn find_group() -> String {
    format!(
        "G={}$(sed -n 's/^0:://p' /proc/self/cgroup); G=${{G%/run-*}}; ",
        mount().display()
    )
}

#[test]
fn the_group_of_a_users_job_is_the_users_and_bounded() {
    let Some(site) = Site::new() else { return };
    if !has_groups() {
        return;
    }
    let script = find_group()
        + "mkdir $G/own && echo may; n=0; while mkdir $G/own/$n 2> /dev/null; do n=$((n+1)); [ $n -lt 3000 ] || break; done; \
           echo made=$n; echo max > $G/cgroup.max.descendants || echo refused; echo $$ > ${G%/*}/cgroup.procs || echo shut; \
           echo END; exec sleep 1000000";
    let service = site.submit(DAEMON, "grouped", &script, "");
    let text = site.printed(&service);
    let service_group = group(pid(&site.ready(&service)));
    assert!(service_group.ends_with("run-1"), "{service_group:?}");
    let replica = service_group.parent().unwrap();
    assert!(replica.to_string_lossy().contains("grouped.daemon~0~1"));
    let there = mount().join(replica.strip_prefix("/").unwrap());
    let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
    assert_eq!(owner(&there), DAEMON.1);
    assert_eq!(owner(&there.join("cgroup.procs")), DAEMON.1);
    assert_eq!(owner(&there.join("cgroup.max.descendants")), 0);
    assert_eq!(group(site.worker(&service)), replica.join("worker"));
    for line in ["may", "refused", "shut"] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    // Beside its run's, its probes' and its worker's.
    let made = text.lines().find_map(|line| line.strip_prefix("made="));
    let made: u32 = made.unwrap().parse().unwrap();
    assert!((900..1_000).contains(&made), "{made}");
    site.world.ok(&["delete", &service, "--yes"]);
    assert!(eventually(|| !there.exists()), "{:?}", names_in(&there));
}

#[test]
fn a_process_that_a_folder_calls_its_worker_is_moved_nowhere() {
    let Some(mut site) = Site::new() else { return };
    if !has_groups() {
        return;
    }
    let service = site.submit(DAEMON, "claims", "exec sleep 1000000", "");
    site.ready(&service);
    let folder = site.folder(&service);
    // Alive, and the user's, as the folder is.
    let mut other = Command::new("setpriv");
    other.args([
        "--reuid=1",
        "--regid=1",
        "--clear-groups",
        "sleep",
        "1000000",
    ]);
    let mut other = other.spawn().unwrap();
    let other_pid = i32::try_from(other.id()).unwrap();
    let is_sleep = || {
        std::fs::read_to_string(format!("/proc/{other_pid}/comm")).is_ok_and(|it| it == "sleep\n")
    };
    assert!(eventually(is_sleep));
    drop(site.agent.take());
    let worker = site.worker(&service);
    let identity = portreeve_api::local::ProcessIdentity::of(other.id()).unwrap();
    let text = serde_json::to_string(&identity).unwrap();
    std::fs::write(folder.join("worker.json"), text).unwrap();
    kill(worker, "KILL");
    let before = group(other_pid);
    site.start_agent(None);
    let bystander = site.submit(BIN, "by", "exec sleep 1000000", "");
    site.ready(&bystander);
    assert_eq!(group(other_pid), before);
    // Once it is gone a real one takes over what runs.
    other.kill().unwrap();
    other.wait().unwrap();
    site.world.ok(&["stop", &service]);
    site.world
        .ok(&["wait", &service, "--gone", "--timeout", "30s"]);
}

#[test]
fn a_job_that_lets_no_worker_work_is_ended_all_the_same() {
    let Some(site) = Site::new() else { return };
    if !has_groups() {
        return;
    }
    // Its log is a pipe that nobody reads, its lock and its assignment are folders, the folder is closed.
    let script = "while ! grep -q pid worker.json; do sleep 0.1; done; sleep 0.5; \
         for f in worker.log worker.lock assignment.json assignment.new ended; do rm -f $f; mkdir -p $f/x; done; \
         rmdir worker.log/x worker.log; mkfifo worker.log; \
         W=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' worker.json); touch done; chmod 0 .; \
         while :; do kill -9 $W; sleep 0.1; done";
    let service = site.submit(DAEMON, "closed", script, "");
    let folder = site.folder(&service);
    assert!(eventually(|| folder.join("done").exists()));
    let living = pid(&site.world.replica(&service, 0));
    let bystander = site.submit(BIN, "by", "exec sleep 1000000", "");
    site.ready(&bystander);
    assert!(is_alive(living));
    site.world.ok(&["stop", &service]);
    site.world
        .ok(&["wait", &service, "--gone", "--timeout", "60s"]);
    assert!(!is_alive(living));
    site.world.ok(&["delete", &service, "--yes"]);
    assert_eq!(
        pid(&site.ready(&bystander)),
        pid(&site.world.replica(&bystander, 0))
    );
}

#[test]
fn a_job_that_left_its_group_and_killed_its_shim_is_gone_before_the_next_run() {
    let Some(site) = Site::new() else { return };
    if !has_groups() {
        return;
    }
    // No parent, no session, no variable and not the group of its run: only the replica's own group knows it.
    let script = find_group()
        + "mkdir -p $G/evil; echo $$ > $G/evil/cgroup.procs; [ -e first ] || { touch first; \
           env -i setsid sh -c '(read me rest < /proc/self/stat; echo $me > stray; exec sleep 1000000) &'; \
           while [ ! -s stray ]; do sleep 0.1; done; echo 1 > $G/evil/cgroup.freeze; }; exec sleep 1000000";
    let service = site.submit(DAEMON, "leaver", &script, "");
    let folder = site.folder(&service);
    let stray = || {
        std::fs::read_to_string(folder.join("stray"))
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    };
    assert!(eventually(|| stray().is_some()));
    let stray = stray().unwrap();
    let first = pid(&site.ready(&service));
    assert!(group(stray).ends_with("evil"), "{:?}", group(stray));
    let shim = site.world.processes().into_iter();
    let mut shim =
        shim.filter(|(_, line)| line.contains(" shim --folder ") && line.contains("leaver"));
    kill(shim.next().unwrap().0, "KILL");
    let again = site.world.replica_when(&service, 0, "ran again", |it| {
        it["ready"] == true && it["restarts"] == 1
    });
    assert!(!is_alive(stray) && !is_alive(first));
    assert_ne!(pid(&again), first);
    site.world.ok(&["delete", &service, "--yes"]);
}

#[test]
fn a_job_that_says_it_has_ended_and_goes_on_is_ended() {
    let Some(mut site) = Site::new() else { return };
    if !has_groups() {
        return;
    }
    let service = site.submit(DAEMON, "undead", "exec sleep 1000000", "");
    let living = pid(&site.ready(&service));
    let folder = site.folder(&service);
    let status = std::fs::read_to_string(folder.join("status.json")).unwrap();
    let mut status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let stopped = serde_json::to_value(portreeve::supervision::State::Final(
        portreeve::supervision::Final::Stopped,
    ));
    status["state"] = stopped.unwrap();
    status["ready"] = false.into();
    status["seq"] = 1_000_000.into();
    drop(site.agent.take());
    kill(site.worker(&service), "KILL");
    std::fs::write(folder.join("status.json"), status.to_string()).unwrap();
    site.start_agent(None);
    assert!(is_alive(living));
    site.world.run(&["delete", &service, "--yes"]);
    assert!(eventually(|| !is_alive(living)), "it still runs");
}

#[test]
fn a_folder_that_is_deep_and_wide_and_a_status_that_is_large_hold_up_nobody() {
    let Some(mut site) = Site::new() else { return };
    let bystander = site.submit(BIN, "by", "exec sleep 1000000", "");
    let fill = "import os\n\
         for i in range(20000): open('f%d' % i, 'w').close()\n\
         fd = os.open('.', os.O_RDONLY)\n\
         for i in range(1500):\n\
         \x20os.mkdir('d', dir_fd=fd); n = os.open('d', os.O_RDONLY, dir_fd=fd); os.close(fd); fd = n\n\
         open('done', 'w').close()\n";
    let fill_file = site.world.profile("fill.py", fill);
    std::fs::set_permissions(
        &fill_file,
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let script = format!("python3 {fill_file}; exec sleep 1000000");
    let service = site.submit(DAEMON, "filler", &script, "");
    let folder = site.folder(&service);
    assert!(eventually(|| folder.join("done").exists()));
    let before = site.ready(&bystander);
    // As much as a report holds, in one text.
    drop(site.agent.take());
    let status = std::fs::read_to_string(folder.join("status.json")).unwrap();
    let mut status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["not_ready_reason"] = "x".repeat(15 << 20).into();
    kill(site.worker(&service), "KILL");
    std::fs::write(folder.join("status.json"), status.to_string()).unwrap();
    site.start_agent(None);
    site.world.ok(&["delete", &service, "--yes"]);
    let another = site.submit(BIN, "another", "exec sleep 1000000", "");
    site.ready(&another);
    let left = || {
        names_in(&folder)
            .into_iter()
            .filter(|name| name.starts_with('f') || name == "d")
    };
    assert!(eventually(|| left().count() == 0), "{}", left().count());
    assert!(names_in(&site.world.path("data/a/agent/removed")).is_empty());
    let after = site.ready(&bystander);
    assert_eq!(
        (&after["pid"], &after["restarts"]),
        (&before["pid"], &before["restarts"])
    );
}
