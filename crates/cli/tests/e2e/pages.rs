//! The examples of the pages do what the pages say.
//!
//! Every block fenced as `sh` in the pages below is run, in their order, as a newcomer would after
//! `portreeve dev profiles/hello.toml`: at the usual address, with the usual socket. The first word of a fence is its
//! language, the others say what is to be made of it:
//!
//! * `sh`: runs and succeeds; an answer of 400 and above is no success, the end that an example sets itself
//!   (`curl --max-time`, `timeout`) is one.
//! * `sh fails`: runs and does not succeed.
//! * `sh no-run`: is not run; there are few of these.
//! * `text output`, `json output`: what the block before prints; `…` stands for what varies, and in JSON white space
//!   does not count.

use std::path::Path;

use crate::world::{Outcome, PORTREEVE, World, eventually};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// How many blocks of a page may be left out.
const LEFT_OUT: usize = 3;

/// The longest that a block may take, in seconds.
const LONGEST: &str = "30";

/// What comes before each block: refusals are failures, ends that the example itself set are none.
const BEFORE: &str = r#"
curl() {
    command curl -sS --fail-with-body "$@" || { c=$?; [ $c = 28 ] && return 0; return $c; }
}
timeout() {
    command timeout "$@" || { c=$?; [ $c = 124 ] && return 0; return $c; }
}
"#;

/// The usual socket, for the processes of a block alone.
const USUAL_PLACES: &str = "mount -t tmpfs tmpfs /run && mkdir /run/portreeve && mount --bind \"$1\" /run/portreeve && exec \
     timeout -k 1 \"$2\" sh -eu -c \"$3\"";

#[test]
fn the_examples_of_the_page_of_rest_work() {
    play("docs/rest.md");
}

#[test]
fn the_examples_of_the_page_of_endpoints_work() {
    play("docs/endpoints.md");
}

#[test]
fn the_examples_of_the_page_of_the_command_line_work() {
    play("docs/cli.md");
}

/// One fenced block of a page.
#[derive(Debug)]
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    /// The words of its fence.
    words: Vec<String>,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn is(&self, language: &str) -> bool {
        self.words.first().is_some_and(|word| word == language)
    }

    pub(crate) fn says(&self, word: &str) -> bool {
        self.words.iter().skip(1).any(|one| one == word)
    }
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open = false;
    for (at, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(words), false) => {
                let words = words.split_ascii_whitespace().map(str::to_owned).collect();
                let (line, text) = (at + 1, String::new());
                found.push(Block { line, words, text });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => {
                let block = found.last_mut().expect("one was opened");
                block.text += line;
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!open, "the last block has no end");
    found
}

fn play(name: &str) {
    let page = std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    let blocks = blocks(&page);
    let shell = || blocks.iter().filter(|block| block.is("sh"));
    let left_out = shell().filter(|block| block.says("no-run")).count();
    assert!(
        left_out <= LEFT_OUT,
        "{name}: {left_out} blocks are not run"
    );
    assert!(shell().count() > left_out, "{name} has no example");
    let Some(world) = World::new() else { return };
    let profile = Path::new(ROOT).join("profiles/hello.toml");
    let _dev = world.dev(&[&profile.display().to_string()]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let here = world.path("here");
    std::fs::create_dir(&here).unwrap();
    std::os::unix::fs::symlink(Path::new(ROOT).join("profiles"), here.join("profiles")).unwrap();
    for (at, block) in blocks.iter().enumerate() {
        if !block.is("sh") || block.says("no-run") {
            continue;
        }
        // A block before may have changed the service; each begins with it ready.
        let ready = || world.run(&["wait", "hello", "--timeout", "30s"]).code == Some(0);
        assert!(
            eventually(ready),
            "{name}:{}: hello is not ready",
            block.line
        );
        let outcome = run(&world, &here, &block.text);
        let place = format!("{name}:{}\n{}{outcome:#?}", block.line, block.text);
        assert_eq!(outcome.code != Some(0), block.says("fails"), "{place}");
        assert_ne!(outcome.code, Some(124), "longer than {LONGEST} s: {place}");
        if let Some(shown) = blocks.get(at + 1).filter(|next| next.says("output")) {
            let kept = |text: &str| match shown.is("json") {
                true => text.split_whitespace().collect(),
                false => lines(text),
            };
            assert!(
                is_like(&kept(&outcome.stdout), &kept(&shown.text)),
                "not what line {} shows: {place}",
                shown.line
            );
        }
    }
}

fn run(world: &World, here: &Path, text: &str) -> Outcome {
    let binaries = Path::new(PORTREEVE)
        .parent()
        .expect("a binary is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = world.command("unshare");
    command
        .args(["--mount", "sh", "-c", USUAL_PLACES, "sh"])
        .arg(world.path("run"))
        .args([LONGEST, &format!("{BEFORE}{text}")])
        .env("PATH", format!("{}:{path}", binaries.display()))
        .current_dir(here);
    Outcome::of(command.output().unwrap())
}

/// Without spaces at the ends of lines and empty lines at the end.
fn lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

/// Whether a text is the pattern, in which each `…` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[test]
fn what_varies_is_any_text_and_the_rest_is_itself() {
    for (text, pattern) in [
        ("a", "a"),
        (
            "127.0.0.1:20000\n127.0.0.1:20001",
            "127.0.0.1:…\n127.0.0.1:…",
        ),
        ("abcabc", "…abc"),
        ("", "…"),
    ] {
        assert!(is_like(text, pattern), "{text:?} {pattern:?}");
    }
    for (text, pattern) in [
        ("a", "b"),
        ("ab", "a"),
        ("ab", "…a"),
        ("ab", "b…"),
        ("", "…a"),
    ] {
        assert!(!is_like(text, pattern), "{text:?} {pattern:?}");
    }
    let found = blocks("a\n```sh no-run\nx\ny\n```\n```json output\n{}\n```\n");
    assert_eq!(found.len(), 2);
    assert!(found[0].is("sh") && found[0].says("no-run") && found[0].text == "x\ny\n");
    assert!(found[1].says("output") && found[1].line == 6);
}
