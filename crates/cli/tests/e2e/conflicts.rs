//! Numbers that somebody else has when a run begins or ends, and numbers of the replica's own that are not free yet.

use std::collections::BTreeSet;

use crate::stranger::Stranger;
use crate::world::{USUAL, World, eventually, hello, kill, quiet_dev};

fn pid_of(world: &World, service: &str) -> i32 {
    i32::try_from(world.replica(service, 0)["pid"].as_i64().unwrap()).unwrap()
}

fn service(world: &World, name: &str, code: &str, more: &str) -> String {
    let path = world.profile(&format!("{name}.py"), code);
    format!("kind = \"service\"\nname = \"{name}\"\ncommand = \"exec python3 {path}\"\n{more}\n")
}

#[test]
fn an_old_run_that_still_listens_makes_no_new_one_ready() {
    // D8 old run still listening while the new one sleeps: the listener left the group, the session and its parent,
    // shares its number and ignores TERM; the second run never listens.
    let Some(world) = World::new() else { return };
    let code = "import os, signal, socket, sys, time\n\
        if os.environ['PORTREEVE_RUN'] != '1':\n time.sleep(1000000)\n\
        r, w = os.pipe()\n\
        if os.fork() == 0:\n os.setsid()\n if os.fork() > 0: os._exit(0)\n signal.signal(signal.SIGTERM, signal.SIG_IGN)\n \
        s = socket.socket()\n s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n \
        s.bind(('0.0.0.0', int(os.environ['PORTREEVE_PORT_HTTP'])))\n s.listen()\n os.write(w, b'x')\n time.sleep(1000000)\n\
        os.read(r, 1)\ntime.sleep(1000000)\n";
    let more = "[ports]\nhttp = \"any\"\n[restart]\nbackoff = { initial = \"100ms\", max = \"1s\" }\n\
                [readiness]\ninterval = \"100ms\"\nfailure_threshold = 1\nlistening = true\n";
    let profile = world.profile("old.toml", &service(&world, "old", code, more));
    let _dev = world.dev(&[&profile]);
    let before = world.replica_when("old", 0, "was ready", |it| it["ready"] == true);
    let port = before["ports"]["http"].as_u64().unwrap();
    kill(pid_of(&world, "old"), "KILL");
    let words = format!("nothing listens on {port}");
    let after = world.replica_when("old", 0, "was found not to listen", |it| {
        it["restarts"] == 1
            && it["reason"]
                .as_str()
                .is_some_and(|why| why.contains(&words))
    });
    assert_eq!(
        after["incarnation"], before["incarnation"],
        "its own leftover is no stranger"
    );
    assert_eq!(after["ready"], false);
    assert!(!world.listens(port), "the old run still listens");
}

#[test]
fn a_stranger_who_shares_the_number_makes_no_replica_ready_and_is_named() {
    // A process outside the replica on the same number, while the replica sleeps: found by owner, not by answer.
    let Some(world) = World::new() else { return };
    let code = "import os, socket, time\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n\
        while not os.path.exists('go'): time.sleep(0.02)\n\
        s.bind(('0.0.0.0', int(os.environ['PORTREEVE_PORT_HTTP'])))\ns.listen()\ntime.sleep(1000000)\n";
    let more = format!(
        "working_dir = \"{}\"\n[ports]\nhttp = \"any\"\n[readiness]\ntcp = {{}}\ninterval = \"100ms\"\n",
        world.path("").display()
    );
    let profile = world.profile("late.toml", &service(&world, "late", code, &more));
    let _dev = world.dev(&[&profile]);
    let placed = world.replica_when("late", 0, "was started", |it| it["pid"].is_i64());
    let port = placed["ports"]["http"].as_u64().unwrap();
    let share = format!(
        "import socket, time\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n\
         s.bind(('0.0.0.0', {port}))\ns.listen()\ntime.sleep(1000000)"
    );
    let stranger = Stranger::running(&world, &share);
    let words = format!("{port} is served by python3 (pid {})", stranger.pid());
    let told = |words: &str| {
        world.replica_when("late", 0, words, |it| {
            it["reason"].as_str().is_some_and(|why| why.contains(words))
        })
    };
    assert_eq!(told(&words)["ready"], false);
    std::fs::write(world.path("go"), "").unwrap();
    // Half of what clients send would go astray.
    assert_eq!(told(&words)["ready"], false);
    stranger.leave();
    world.ok(&["wait", "late", "--timeout", "30s"]);
    assert_eq!(world.replica("late", 0)["restarts"], 0);
}

#[test]
fn a_stranger_that_comes_between_check_and_bind_costs_no_restart_and_the_retry_has_other_numbers() {
    // P38: four numbers, one of which is taken after the look and before the bind; the program says so and ends.
    let Some(world) = World::new() else { return };
    let code = "import os, socket, time\nkept = []\nwhile not os.path.exists('go'): time.sleep(0.02)\n\
        for name in 'ABCD':\n s = socket.socket()\n s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n \
        s.bind(('0.0.0.0', int(os.environ['PORTREEVE_PORT_' + name])))\n s.listen()\n kept.append(s)\n\
        time.sleep(1000000)\n";
    let more = format!(
        "working_dir = \"{}\"\n[ports]\na = \"any\"\nb = \"any\"\nc = \"any\"\nd = \"any\"\n\
         [restart]\ngive_up = {{ max_restarts = 0 }}\n",
        world.path("").display()
    );
    let _dev = quiet_dev(&world, &["--cooling", "1s"]);
    let profile = world.profile("mpi.toml", &service(&world, "mpi", code, &more));
    world.ok(&["submit", &profile]);
    let before = world.replica_when("mpi", 0, "was started", |it| it["pid"].is_i64());
    let numbers = |replica: &serde_json::Value| {
        let of = |name: &str| replica["ports"][name].as_u64().unwrap();
        ["a", "b", "c", "d"].map(of)
    };
    let taken = numbers(&before)[2];
    let stranger = Stranger::new(&world, "0.0.0.0", u16::try_from(taken).unwrap());
    std::fs::write(world.path("go"), "").unwrap();
    let after = world.replica_when("mpi", 0, "was ready on other numbers", |it| {
        it["ready"] == true
    });
    assert!(
        after["incarnation"].as_u64() > before["incarnation"].as_u64(),
        "{after:#}"
    );
    // Not one restart: the rule would have ended it at the first.
    assert_eq!(
        (&after["restarts"], &after["restarts_total"]),
        (&0.into(), &0.into())
    );
    assert!(!numbers(&after).contains(&taken), "{after:#}");
    let events = world.ok(&["events", "mpi"]);
    let told = format!("port {taken}/tcp is taken by python3");
    for words in [told, stranger.pid().to_string()] {
        assert!(events.contains(&words), "{words} is missing: {events}");
    }
    // Given back are all four, and the taken one rests as long as the stranger has it.
    let host = after["host"].as_str().unwrap();
    let held = || {
        let ports = world.json(&["ports", host]);
        let held = ports["ports"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|port| port["state"] == "held");
        held.filter(|port| {
            port["service"]
                .as_str()
                .is_some_and(|name| name.starts_with("mpi"))
        })
        .flat_map(|port| match port["numbers"].as_u64() {
            Some(number) => number..=number,
            None => {
                port["numbers"]["first"].as_u64().unwrap()
                    ..=port["numbers"]["last"].as_u64().unwrap()
            }
        })
        .collect::<BTreeSet<_>>()
    };
    let now: BTreeSet<_> = numbers(&after).into();
    assert!(
        eventually(|| held() == now),
        "{:?} are held, not {now:?}",
        held()
    );
    assert!(world.ok(&["ports", host]).contains("foreign"));
}

#[test]
fn a_service_that_closes_first_and_sets_no_option_is_back_on_its_number_at_once() {
    // D8 service without SO_REUSEADDR that closes first: a close in order by a probe would leave its number in
    // TIME_WAIT, and the bind of the next run would be refused.
    let Some(world) = World::new() else { return };
    let code = "import os, socket\ns = socket.socket()\ns.bind(('0.0.0.0', int(os.environ['PORTREEVE_PORT_HTTP'])))\n\
        s.listen(64)\nwhile True:\n c, _ = s.accept()\n c.settimeout(1)\n try:\n  c.recv(4096)\n  \
        c.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\nhere')\n except OSError:\n  pass\n c.close()\n";
    let more = "[ports]\nhttp = \"any\"\n[restart]\nbackoff = { initial = \"100ms\", max = \"1s\" }\n\
        [readiness]\nhttp = { path = \"/\", require_body = \"here\" }\ninterval = \"100ms\"\n\
        [liveness]\ntcp = {}\ninterval = \"100ms\"\nfailure_threshold = 600\n";
    let profile = world.profile("first.toml", &service(&world, "first", code, more));
    let _dev = world.dev(&[&profile]);
    let before = world.replica_when("first", 0, "was ready", |it| it["ready"] == true);
    for restart in 1..=3 {
        kill(pid_of(&world, "first"), "KILL");
        let after = world.replica_when("first", 0, "came back", |it| {
            it["ready"] == true && it["restarts"].as_u64() >= Some(restart)
        });
        assert_eq!(after["restarts"], restart, "a bind was refused: {after:#}");
        assert_eq!(after["ports"], before["ports"]);
        assert_eq!(after["incarnation"], before["incarnation"]);
    }
}

#[test]
fn a_stopped_service_is_noticed_by_a_request_and_not_by_a_connect() {
    // D8 SIGSTOP of the service
    let Some(world) = World::new() else { return };
    let by = |form: &str| {
        format!(
            "{USUAL}[liveness]\n{form}\ninterval = \"200ms\"\ntimeout = \"200ms\"\nfailure_threshold = 3\n"
        )
    };
    let asked = world.profile(
        "asked.toml",
        &hello("asked", 1, "", &by("http = { path = \"/\" }")),
    );
    let touched = hello("touched", 1, "", &by("tcp = {}"));
    let touched = world.profile("touched.toml", &touched);
    // Said at submit, where there is still time to choose another.
    let check = world.run(&["check", &touched]);
    assert!(
        check.stderr.contains("a tcp probe notices a hang late"),
        "{check:?}"
    );
    let _dev = world.dev(&[&asked, &touched]);
    for service in ["asked", "touched"] {
        world.ok(&["wait", service, "--timeout", "30s"]);
    }
    let stopped = pid_of(&world, "touched");
    kill(stopped, "STOP");
    kill(pid_of(&world, "asked"), "STOP");
    world.replica_when("asked", 0, "was restarted", |it| {
        it["ready"] == true && it["restarts"] == 1
    });
    // Its readiness asks, so clients are spared it all the same.
    world.replica_when("touched", 0, "was not ready", |it| it["ready"] == false);
    let touched = world.replica("touched", 0);
    assert_eq!(
        (&touched["restarts"], &touched["pid"]),
        (&0.into(), &stopped.into())
    );
    kill(stopped, "CONT");
    world.replica_when("touched", 0, "was ready again", |it| it["ready"] == true);
}
