//! `portreeve probe`: one probe by the code of the worker, told by its exit code.

use serde_json::Value;

use crate::stranger::Stranger;
use crate::world::{Outcome, World, eventually};

const OK: Option<i32> = Some(0);
const FAILED: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);
const SAYS_NOTHING: Option<i32> = Some(75);

fn probe(world: &World, words: &str) -> Outcome {
    let words: Vec<_> = ["probe"].into_iter().chain(words.split(' ')).collect();
    world.run(&words)
}

#[track_caller]
fn says(outcome: &Outcome, code: Option<i32>, words: &str) {
    assert_eq!(outcome.code, code, "{outcome:?}");
    assert!(outcome.stdout.contains(words), "{outcome:?}");
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
}

#[test]
fn a_request_is_judged_by_its_answer() {
    let Some(world) = World::new() else { return };
    let code = "import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n def do_GET(self):\n  \
        self.send_response(503 if self.path == '/down' else 200)\n  self.end_headers()\n  \
        self.wfile.write(self.headers.get('X-Who', 'nobody').encode())\n\
        http.server.HTTPServer(('127.0.0.1', 8080), H).serve_forever()";
    let service = Stranger::running(&world, code);
    assert!(eventually(|| world.listens(8080)));
    says(
        &probe(&world, "http --port 8080"),
        OK,
        "http://127.0.0.1:8080/: 200",
    );
    says(
        &probe(&world, "http --port 8080 --path /down"),
        FAILED,
        "answered 503",
    );
    says(
        &probe(&world, "http --port 8080 --path /down --expect 200-299,503"),
        OK,
        "503",
    );
    says(
        &probe(&world, "http --port 8080 --require-body nobody"),
        OK,
        "200",
    );
    says(
        &probe(
            &world,
            "http --port 8080 --header X-Who:me --require-body nobody",
        ),
        FAILED,
        "does not contain",
    );
    says(
        &probe(&world, &format!("http --port 8080 --pid {}", service.pid())),
        OK,
        "200",
    );
    let other = Stranger::running(&world, "import time\ntime.sleep(100000)");
    let stranger = probe(&world, &format!("http --port 8080 --pid {}", other.pid()));
    says(
        &stranger,
        FAILED,
        &format!("8080 is served by python3 (pid {})", service.pid()),
    );
}

#[test]
fn a_connect_and_a_look_tell_who_listens_where() {
    let Some(world) = World::new() else { return };
    let service = Stranger::new(&world, "127.0.0.1", 8080);
    let pid = service.pid();
    says(&probe(&world, "tcp --port 8080"), OK, "takes connections");
    says(
        &probe(&world, "listening --port 8080"),
        OK,
        "every published port",
    );
    says(
        &probe(&world, "listening --port 8080 --port 9000"),
        FAILED,
        "nothing listens on 9000",
    );
    says(
        &probe(&world, "listening --port 8079-8081"),
        OK,
        "every published port",
    );
    let elsewhere = "listens on 127.0.0.1:8080 only; clients use 10.1.0.17";
    says(
        &probe(&world, "listening --port 8080 --address 10.1.0.17"),
        FAILED,
        elsewhere,
    );
    let moved = "nothing listens on 9000; processes of this replica listen on 8080";
    says(
        &probe(&world, &format!("tcp --port 9000 --pid {pid}")),
        FAILED,
        moved,
    );
    says(
        &probe(&world, "tcp --port 9000 --host 127.0.0.9"),
        FAILED,
        "127.0.0.9:9000 refuses connections",
    );
    let outcome = probe(&world, "listening --port 8080 -o json");
    let found: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(found["outcome"], "ok");
    assert!(
        found["took_ms"].is_u64() && found["text"].is_string(),
        "{found:#}"
    );
}

#[test]
fn a_command_is_judged_by_its_exit_and_ends_with_the_probe() {
    let Some(world) = World::new() else { return };
    let shell = |line: &str, more: &[&str]| {
        world.run(&[&["probe", "command"], more, &["--", "sh", "-c", line]].concat())
    };
    says(&shell("echo fine", &[]), OK, "exit 0: fine");
    says(
        &shell("echo one; echo two >&2; exit 3", &[]),
        FAILED,
        "exit 3: ",
    );
    says(
        &world.run(&["probe", "command", "--", "/nonexistent"]),
        FAILED,
        "(ENOENT)",
    );
    let folder = world.path("").display().to_string();
    says(
        &shell("pwd", &["--working-dir", &folder]),
        OK,
        folder.trim_end_matches('/'),
    );
    let sleeping = || {
        let all = world.processes();
        all.iter()
            .filter(|(_, line)| line.starts_with("sleep 4321"))
            .count()
    };
    says(
        &shell("setsid sleep 4321 & sleep 4321", &["--timeout", "200ms"]),
        FAILED,
        "no answer within 200ms",
    );
    assert!(eventually(|| sleeping() == 0), "{:?}", world.processes());
    // Told to end, it takes along what it started, and says nothing about the service.
    let mut told = world.portreeve(&["probe", "command", "--timeout", "1h", "--", "sleep", "4321"]);
    let told = told.stdout(std::process::Stdio::piped()).spawn().unwrap();
    assert!(eventually(|| sleeping() == 1));
    crate::world::kill(i32::try_from(told.id()).unwrap(), "TERM");
    let ended = told.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), SAYS_NOTHING, "{ended:?}");
    assert!(eventually(|| sleeping() == 0), "{:?}", world.processes());
}

#[test]
fn a_probe_for_which_this_machine_has_no_room_says_nothing() {
    let Some(world) = World::new() else { return };
    let _service = Stranger::new(&world, "127.0.0.1", 8080);
    // Enough descriptors to begin, and none for a socket.
    let line = format!(
        "ulimit -n 12; exec {} probe tcp --port 8080",
        crate::world::PORTREEVE
    );
    let mut found = None;
    let full = (5..40).any(|descriptors| {
        let line = line.replace("12", &descriptors.to_string());
        let output = world.command("sh").args(["-c", &line]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        found = Some((output.status.code(), said.clone()));
        said.contains("(EMFILE)")
    });
    assert!(full, "{found:?}");
    assert_eq!(found.unwrap().0, SAYS_NOTHING);
}

#[test]
fn want_of_descriptors_never_counts_against_the_service() {
    // Wherever they run out: asking the kernel, reading whose a socket is, or connecting.
    let Some(world) = World::new() else { return };
    // The listener is a child's, so that more than one process is to be read.
    let code = "import os, socket, time\nif os.fork() > 0:\n os.wait()\ns = socket.socket()\n\
        s.bind(('127.0.0.1', 8080))\ns.listen(64)\ntime.sleep(100000)";
    let service = Stranger::running(&world, code);
    assert!(eventually(|| world.listens(8080)));
    let (pid, portreeve) = (service.pid(), crate::world::PORTREEVE);
    let mut said_nothing = 0;
    for form in ["tcp", "listening --address 127.0.0.1", "http --expect 200"] {
        for descriptors in 4..24 {
            let line = format!(
                "ulimit -n {descriptors}; exec {portreeve} probe {form} --port 8080 --pid {pid} --timeout 100ms"
            );
            let output = world.command("sh").args(["-c", &line]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            match output.status.code() {
                SAYS_NOTHING => said_nothing += 1,
                OK => {}
                // It could not begin, or the service of this test takes connections and never answers.
                _ => assert!(
                    said.is_empty() || said.contains("no answer within"),
                    "{line}: {said}"
                ),
            }
        }
    }
    assert!(said_nothing > 0);
}

#[test]
fn words_that_are_off_are_usage() {
    let Some(world) = World::new() else { return };
    for words in [
        "",
        "http",
        "tcp --port 0",
        "tcp --port 80 --host localhost",
        "http --port 80 --expect 99",
        "listening",
        "listening --port 9-8",
        "tcp --port 80 --timeout 1ms",
        "tcp --port 80 --owner run",
        "http --port 80 --path health",
        "command --working-dir /nowhere -- true",
        "command",
    ] {
        let words: Vec<_> = words.split_ascii_whitespace().collect();
        let outcome = world.run(&[&["probe"][..], &words].concat());
        assert_eq!(outcome.code, USAGE, "{words:?}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "{words:?}");
    }
}
