//! A second process's view: `examples/feed.c` serves what changes, `examples/read_feed.py` keeps a table from it, also
//! if it is slow, cut off, or the feed begins a new life.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot start what it tests has failed"
)]

mod built;
mod tools;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use built::{compiler, root, run, shared_object, temporary};
use tools::is_there;

static FEED: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = temporary().join("feed");
    run(compiler()
        .arg(root().join("examples/feed.c"))
        .args(["-ldl", "-o"])
        .arg(&program));
    program
});

/// A program that answers each line with a line; ended with its test.
struct Talk {
    child: Child,
    say: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Talk {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            say: child.stdin.take(),
            hear: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn feed(socket: &Path) -> Self {
        Self::start(Command::new(&*FEED).arg(shared_object()).arg(socket))
    }

    fn reader(socket: &Path) -> Self {
        let reader = root().join("examples/read_feed.py");
        Self::start(Command::new("python3").arg(reader).arg(socket))
    }

    fn tell(&mut self, lines: &str) {
        self.say
            .as_mut()
            .unwrap()
            .write_all(lines.as_bytes())
            .unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.hear.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(&format!("{line}\n"));
        self.answer()
    }

    /// Orders of the feed, all of which it obeys.
    fn order(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.ask(line), "ok", "{line}");
        }
    }

    /// Asks until the answer is right.
    #[expect(
        clippy::disallowed_methods,
        reason = "between two looks at another process's table, which nothing announces"
    )]
    fn await_answer(&mut self, line: &str, expected: &str) {
        let begun = Instant::now();
        loop {
            let answer = self.ask(line);
            if answer == expected {
                return;
            }
            let late = begun.elapsed() > Duration::from_secs(60);
            assert!(!late, "{line}: {answer} is not {expected}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A number of its statistics.
    fn count(&mut self, what: &str) -> u64 {
        let stats = self.ask("stats");
        let after = stats.split(&format!("\"{what}\": ")).nth(1).unwrap();
        let digits = after.split(|other: char| !other.is_ascii_digit());
        digits.into_iter().next().unwrap().parse().unwrap()
    }

    /// The endpoints that it has, without the revision.
    fn endpoints(&mut self) -> String {
        let table = self.ask("table");
        table.split_once("\"endpoints\": ").unwrap().1.to_owned()
    }

    fn end(&mut self) {
        self.say = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn a_second_process_keeps_the_table_though_it_is_slow_cut_off_or_begins_anew() {
    /// More than the plugin keeps, and than a socket holds.
    const FLAPS: usize = 17_000;
    if !is_there("python3") {
        return;
    }
    let socket = temporary().join("feed.sock");
    let mut feed = Talk::feed(&socket);
    feed.order(&[
        "host 0 n1 10.0.0.1",
        "host 1 n2 10.0.0.2",
        "service web.alice http admin",
        "service db.alice sql",
        "start 1 0 web.alice 0",
        "start 1 1 web.alice 1",
        "start 2 0 db.alice 0",
        "ready 1 0",
    ]);
    assert_eq!(feed.ask("ready 7 0"), "there is no such thing: job: 7");
    let (mut quick, mut slow) = (Talk::reader(&socket), Talk::reader(&socket));
    for reader in [&mut quick, &mut slow] {
        reader.await_answer("resolve web.alice http", "10.0.0.1:20000");
        assert_eq!(reader.count("resets"), 1);
    }
    // Changes arrive as they happen.
    feed.order(&["ready 1 1", "ready 2 0"]);
    quick.await_answer("resolve db.alice", "10.0.0.1:20002");
    let both = "10.0.0.1:20000 10.0.0.2:20000";
    quick.await_answer("resolve web.alice http", both);
    assert_eq!(quick.ask("resolve nobody.alice"), "-");

    // Cut off, it goes on from its last bookmark; what happened meanwhile is told, and nothing is sent anew.
    assert_eq!(quick.ask("cut"), "ok");
    feed.order(&[
        "unready 1 0",
        "stop 1 1",
        "start 3 5 db.alice 1",
        "ready 3 5",
    ]);
    quick.await_answer("resolve web.alice http", "-");
    quick.await_answer("resolve db.alice", "10.0.0.1:20002 10.0.0.2:20002");
    assert_eq!(quick.count("resets"), 1);

    // One that does not read holds up nobody, and begins anew once it reads again.
    slow.await_answer("resolve web.alice http", "-");
    assert_eq!(slow.ask("pause"), "ok");
    for at in (0..FLAPS).step_by(500) {
        let flaps: String = (at..at + 500)
            .map(|at| ["ready 1 0\n", "unready 1 0\n"][at % 2])
            .collect();
        feed.tell(&flaps);
        for _ in 0..500 {
            assert_eq!(feed.answer(), "ok");
        }
    }
    feed.order(&["ready 1 0", "stop 2 0", "stop 3 5", "drop db.alice"]);
    quick.await_answer("resolve db.alice", "-");
    quick.await_answer("resolve web.alice http", "10.0.0.1:20000");
    assert_eq!(slow.ask("go"), "ok");
    slow.await_answer("resolve db.alice", "-");
    slow.await_answer("resolve web.alice http", "10.0.0.1:20000");
    assert_eq!(slow.count("resets"), 2);
    let mut late = Talk::reader(&socket);
    late.await_answer("resolve web.alice http", "10.0.0.1:20000");
    let expected = late.endpoints();
    assert_eq!(
        [quick.endpoints(), slow.endpoints()],
        [&*expected, &*expected]
    );

    // Another life of the feed: the number line is another, and nobody takes the old one for it.
    feed.end();
    let resets = quick.count("resets");
    let mut feed = Talk::feed(&socket);
    feed.order(&[
        "host 0 n1 10.9.9.9",
        "service web.alice http",
        "start 8 0 web.alice 0",
        "ready 8 0",
    ]);
    for reader in [&mut quick, &mut slow, &mut late] {
        reader.await_answer("resolve web.alice", "10.9.9.9:20000");
        assert_eq!(reader.ask("resolve web.alice admin"), "-");
    }
    assert_eq!(quick.count("resets"), resets + 1);
    for talk in [&mut quick, &mut slow, &mut late, &mut feed] {
        talk.end();
    }
}
