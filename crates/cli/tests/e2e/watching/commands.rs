//! `watch --exec`: one command at a time, and never without the newest state at last.

use std::fs;

use crate::world::{World, eventually};

use super::scripted::Scripted;

#[test]
fn a_command_runs_alone_and_the_last_state_is_never_left_out() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let (log, gate) = (world.path("log"), world.path("gate"));
    // It says `both` if another runs, and runs until the gate is open.
    let script = format!(
        "if ! mkdir {lock} 2>/dev/null; then echo both >> {log}; fi; \
         read line; echo \"$PORTREEVE_EVENT $PORTREEVE_SERVICE $PORTREEVE_READY/$PORTREEVE_DESIRED \
         $PORTREEVE_REVISION [$PORTREEVE_ENDPOINTS]\" >> {log}; echo \"$line\" >> {log}.json; \
         while ! test -e {gate}; do sleep 0.05; done; rmdir {lock}; test $PORTREEVE_EVENT = endpoints",
        lock = world.path("lock").display(),
        log = log.display(),
        gate = gate.display(),
    );
    let address = controller.address();
    let arguments = [
        "--controller",
        &address,
        "watch",
        "web",
        "db",
        "--exec",
        &script,
    ];
    let watch = world.start_alone("watch", &arguments);
    let text = || fs::read_to_string(&log).unwrap_or_default();
    let holds = |expected: &str| {
        let met = eventually(|| text() == expected);
        assert!(met, "{:?}, not {expected:?}: {}", text(), watch.output());
    };
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    asked.bookmark(5);
    holds("endpoints web.alice 1/2 5 [10.0.0.1:31007]\n");
    // While it runs, much happens; the next run is told how it is then.
    for revision in 6..60 {
        asked.set(
            "web.alice",
            revision,
            &[31007, 31000 + u16::try_from(revision).unwrap()],
        );
    }
    asked.set("db.alice", 60, &[]);
    asked.set("web.alice", 61, &[31007, 31009]);
    asked.say("id: e.62\nevent: removed\ndata: {\"service\":\"db.alice\"}\n\n");
    asked.bookmark(62);
    // They are read when the next event is: a cut is seen only behind them.
    drop(asked);
    let asked = controller.watched();
    assert!(asked.head.contains("last-event-id: e.62"), "{}", asked.head);
    fs::write(&gate, "").unwrap();
    holds(
        "endpoints web.alice 1/2 5 [10.0.0.1:31007]\n\
         endpoints web.alice 2/2 61 [10.0.0.1:31007 10.0.0.1:31009]\n\
         removed db.alice 0/0 0 []\n",
    );
    let met = eventually(|| watch.output().contains("for db.alice ended with code 1"));
    assert!(met, "{}", watch.output());
    let told = fs::read_to_string(world.path("log.json")).unwrap();
    let told: Vec<serde_json::Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told[1]["data"]["endpoints"][1]["ports"][0]["port"], 31009);
    assert_eq!(
        told[2],
        serde_json::json!({ "event": "removed", "id": "e.62", "data": { "service": "db.alice" } })
    );
    // Nothing new, no run.
    asked.set("web.alice", 70, &[31007, 31009]);
    asked.set("web.alice", 71, &[]);
    let met = eventually(|| text().ends_with("endpoints web.alice 0/2 71 []\n"));
    assert!(met && text().lines().count() == 4, "{}", text());
    assert_eq!(watch.end("TERM"), Some(0));
}

#[test]
fn with_a_file_the_command_runs_when_the_file_is_written_and_once_at_the_start() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let (file, log) = (world.path("web"), world.path("log"));
    // As a watch left it that was killed before it ran the command.
    fs::write(&file, "10.0.0.1:31007\n").unwrap();
    let (name, script) = (
        file.display().to_string(),
        format!(
            "cat \"$PORTREEVE_FILE\" >> {0}; echo . >> {0}",
            log.display()
        ),
    );
    let address = controller.address();
    let arguments = [
        "--controller",
        &address,
        "watch",
        "web",
        "--output",
        &name,
        "--exec",
        &script,
    ];
    let watch = world.start_alone("watch", &arguments);
    let holds = |expected: &str| {
        let text = || fs::read_to_string(&log).unwrap_or_default();
        let met = eventually(|| text() == expected);
        assert!(met, "{:?}, not {expected:?}: {}", text(), watch.output());
    };
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    asked.bookmark(5);
    holds("10.0.0.1:31007\n.\n");
    asked.set("web.alice", 6, &[31007, 31009]);
    holds("10.0.0.1:31007\n.\n10.0.0.1:31007\n10.0.0.1:31009\n.\n");
}

#[test]
fn a_watch_that_ends_takes_its_command_with_it() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let pid = world.path("pid");
    let script = format!(
        "trap '' TERM; sleep 1000 & echo $! > {}; wait; wait",
        pid.display()
    );
    let address = controller.address();
    let watch = world.start_alone(
        "watch",
        &["--controller", &address, "watch", "web", "--exec", &script],
    );
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    let met = eventually(|| fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    assert!(met, "{}", watch.output());
    assert_eq!(watch.end("INT"), Some(130));
    let gone = || {
        world
            .processes()
            .iter()
            .all(|(_, line)| !line.contains("sleep 1000"))
    };
    assert!(eventually(gone), "{:?}", world.processes());
}

#[test]
fn a_failed_command_ends_the_watch_on_wish_alone() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let address = controller.address();
    let arguments = [
        "--controller",
        &address,
        "watch",
        "web",
        "--exec",
        "exit 7",
        "--exec-or-end",
    ];
    let mut watch = world.start_alone("watch", &arguments);
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    assert_eq!(watch.code(), Some(1), "{}", watch.output());
    assert!(
        watch.output().contains("for web.alice ended with code 7"),
        "{}",
        watch.output()
    );
}
