//! How the commands behave at a terminal: a real one, made by `script`.

use std::process::{Command, Stdio};

use crate::golden::cluster;
use crate::world::{Outcome, PORTREEVE, World, eventually, kill};

/// A terminal of so many columns.
pub(crate) struct Terminal {
    columns: u16,
    variables: Vec<(&'static str, &'static str)>,
}

impl Terminal {
    /// One that shows no colour.
    pub(crate) fn wide(columns: u16) -> Self {
        Self {
            columns,
            variables: vec![("NO_COLOR", "1")],
        }
    }

    fn colourful(columns: u16, variables: &[(&'static str, &'static str)]) -> Self {
        Self {
            columns,
            variables: [&[("TERM", "xterm")], variables].concat(),
        }
    }

    /// A line of shell at it.
    fn command(&self, world: &World, line: &str) -> Command {
        let mut command = world.command("script");
        let columns = self.columns;
        command
            .args([
                "-qec",
                &format!("stty cols {columns} rows 50; {line}"),
                "/dev/null",
            ])
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env("SHELL", "/bin/sh")
            .envs(self.variables.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// What it shows of `portreeve ARGUMENTS`.
    pub(crate) fn run(&self, world: &World, arguments: &[&str]) -> String {
        self.shell(world, &format!("{PORTREEVE} {}", arguments.join(" ")))
            .stdout
    }

    fn shell(&self, world: &World, line: &str) -> Outcome {
        let mut shown = Outcome::of(self.command(world, line).output().unwrap());
        shown.stdout = shown.stdout.replace("\r\n", "\n");
        shown
    }
}

#[test]
fn colour_is_for_terminals_and_for_those_who_wish_it() {
    let Some(world) = World::new() else { return };
    let serving = cluster(&world);
    let green = |text: &str| text.contains("\x1b[32mready\x1b[0m");
    let escapes = |text: &str| text.contains('\x1b');
    let shown = |variables: &[_], more: &[&str]| {
        let arguments = [&["service", "web.me"], more].concat();
        Terminal::colourful(100, variables).run(&world, &arguments)
    };
    let coloured = shown(&[], &[]);
    assert!(green(&coloured), "{coloured}");
    assert!(!escapes(&shown(&[("NO_COLOR", "1")], &[])));
    assert!(!escapes(&shown(&[("TERM", "dumb")], &[])));
    assert!(!escapes(&shown(&[], &["--color", "never"])));
    assert!(green(&shown(&[("NO_COLOR", "1")], &["--color", "always"])));
    assert!(!escapes(&shown(&[], &["-o", "json"])));
    // The same words stand at the same places.
    let without = shown(&[("NO_COLOR", "1")], &[]);
    let mut bare = coloured;
    for escape in ["\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[1m", "\x1b[0m"] {
        bare = bare.replace(escape, "");
    }
    assert_eq!(bare, without);
    // In a pipe.
    assert!(!escapes(&world.ok(&["service", "web.me"])));
    let mut forced = world.portreeve(&["service", "web.me"]);
    let forced = Outcome::of(forced.env("CLICOLOR_FORCE", "1").output().unwrap());
    assert!(green(&forced.stdout), "{forced:?}");
    drop(serving);
}

#[test]
fn an_error_at_a_terminal_says_what_to_do_and_breaks_no_word() {
    let Some(world) = World::new() else { return };
    let shown = Terminal::wide(200).shell(&world, &format!("{PORTREEVE} services"));
    assert_eq!(shown.code, Some(6), "{shown:?}");
    assert!(shown.stdout.starts_with("portreeve: "), "{shown:?}");
    assert!(shown.stdout.contains("--controller"), "{shown:?}");
    let narrow = Terminal::wide(60).shell(&world, &format!("{PORTREEVE} services"));
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(&narrow.stdout), words(&shown.stdout));
    assert!(
        narrow.stdout.contains("`portreeve dev PROFILE`"),
        "{narrow:?}"
    );
    let wide = narrow
        .stdout
        .lines()
        .filter(|line| line.contains(' ') && line.chars().count() > 60);
    // The socket's path alone may be longer.
    assert!(
        wide.clone().all(|line| line.contains("unix:")),
        "{narrow:?}"
    );
}

#[test]
fn a_reader_that_went_away_is_no_failure_and_nothing_is_said_of_it() {
    let Some(world) = World::new() else { return };
    let serving = cluster(&world);
    for command in [
        "services",
        "services -o json",
        "service web.me",
        "hosts",
        "ports n1",
        "events web.me",
        "events web.me -f",
        "endpoints web.me",
        "watch web.me",
        "why web.me",
        "explain --service web.me",
        "man",
        "completions bash",
        "--help",
        "help submit",
    ] {
        // Nobody reads from the start; the code of the command itself counts.
        let line = format!("{{ {PORTREEVE} {command}; echo code=$? >&2; }} | true");
        let mut shell = world.command("timeout");
        shell.args(["30", "sh", "-c", &line]);
        let outcome = Outcome::of(shell.output().unwrap());
        // What ended before it wrote anything has ended well too.
        let told = outcome.stderr.trim();
        assert!(told.ends_with("code=0"), "{command}: {outcome:?}");
        for word in ["portreeve:", "panicked", "pipe"] {
            assert!(!told.contains(word), "{command}: {outcome:?}");
        }
    }
    drop(serving);
}

#[test]
fn one_who_waits_sees_how_far_it_is_and_ctrl_c_ends_only_the_wait() {
    let Some(world) = World::new() else { return };
    let serving = cluster(&world);
    let out = world.path("wait.out");
    // Whoever runs the tests may ignore INT, as a shell has it for what runs in the background.
    let line = format!("exec env --default-signal=INT {PORTREEVE} wait licence.root --timeout 5m");
    let mut waiting = Terminal::wide(200).command(&world, &line);
    waiting.stdout(std::fs::File::create(&out).unwrap());
    let mut waiting = waiting.spawn().unwrap();
    let shown = || std::fs::read_to_string(&out).unwrap_or_default();
    let told = eventually(|| shown().contains("licence.root: 3 of 4 ready"));
    let of = |word: &str| {
        let processes = world.processes();
        let found = processes.iter().find(|(_, line)| line.contains(word));
        found.map(|(pid, _)| *pid)
    };
    // The command at the terminal, whose words `script` and the shell carry too.
    let command = eventually(|| of(&format!("{PORTREEVE} wait")).is_some());
    let waits = |line: &str| line.starts_with(PORTREEVE) && line.contains(" wait ");
    let processes = world.processes();
    let pid = processes.iter().find(|(_, line)| waits(line));
    if let Some((pid, _)) = pid {
        kill(*pid, "INT");
    }
    let mut code = None;
    let ended = eventually(|| {
        code = waiting.try_wait().unwrap();
        code.is_some()
    });
    if !ended {
        _ = waiting.kill();
        _ = waiting.wait();
    }
    assert!(told && command && ended, "{}\n{processes:?}", shown());
    // A shell's code for one that INT ended.
    assert_eq!(code.unwrap().code(), Some(130), "{}", shown());
    assert_eq!(world.run(&["service", "licence.root"]).code, Some(0));
    drop(serving);
}

#[test]
fn help_is_as_wide_as_the_terminal_and_never_wider_than_is_read_well() {
    let Some(world) = World::new() else { return };
    for (columns, widest) in [(40, 40), (80, 80), (200, 100)] {
        let help = Terminal::wide(columns).run(&world, &["--help"]);
        let told = help.split("\nExamples:").next().unwrap();
        let breaks =
            |line: &&str| line.chars().count() > widest && !line.trim_start().starts_with('-');
        let wide: Vec<_> = told.lines().filter(breaks).collect();
        assert_eq!(wide, Vec::<&str>::new(), "at {columns}");
        for group in [
            "Trying it:",
            "For the owner of a service:",
            "For operators:",
        ] {
            assert!(told.contains(group), "{help}");
        }
    }
}

#[test]
fn a_submission_that_waits_ends_when_it_is_ready_or_cannot_become_so() {
    let Some(world) = World::new() else { return };
    let serving = cluster(&world);
    let profile = |name: &str, more: &str| {
        let text = format!("kind = \"service\"\nname = \"{name}\"\ncommand = \"x\"\n{more}");
        world.profile(&format!("{name}.toml"), &text)
    };
    let one = profile("one", "[ports]\nhttp = \"any\"\n");
    let told = world.ok(&["submit", &one, "--wait", "--timeout", "50s"]);
    assert!(told.ends_with("one.root: 1 of 1 ready\n"), "{told}");
    let told = world.ok(&["submit", &one, "--wait", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["service"], &told["changed"]),
        (&"one.root".into(), &false.into())
    );
    // Orders answer programs as REST does.
    for order in [
        &["scale", "one", "1"][..],
        &["restart", "one"],
        &["kill", "one/0"],
        &["start", "one"],
        &["stop", "one"],
    ] {
        let told = world.json(order);
        assert_eq!(told["service"], "one.root", "{order:?}");
        assert!(
            told["changed"].is_boolean() && told["notes"].is_array(),
            "{told:#}"
        );
    }
    world.ok(&["wait", "one", "--gone"]);
    assert_eq!(world.json(&["delete", "one"])["changed"], true);
    let full = profile("full", "replicas = 4\n[ports]\nlm = 9090\n");
    let late = world.run(&["submit", &full, "--wait", "--timeout", "1s"]);
    assert_eq!(late.code, Some(7), "{late:?}");
    assert!(
        late.stderr.contains("full.root is not ready after 1s"),
        "{late:?}"
    );
    assert!(late.stdout.starts_with("full.root: "), "{late:?}");
    drop(serving);
}

#[test]
fn one_who_follows_events_is_told_each_as_it_happens() {
    let Some(world) = World::new() else { return };
    let serving = cluster(&world);
    let out = world.path("events.out");
    let mut following = world
        .portreeve(&["events", "web.me", "-f", "-o", "json"])
        .stdout(std::fs::File::create(&out).unwrap())
        .spawn()
        .unwrap();
    let kinds = || -> Vec<String> {
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines
            .map(|it: serde_json::Value| it["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = eventually(|| kinds().first().is_some_and(|it| it == "submitted"));
    world.ok(&["scale", "web.me", "5"]);
    let more = eventually(|| kinds().iter().filter(|it| *it == "ready").count() == 5);
    let told = kinds();
    _ = following.kill();
    _ = following.wait();
    assert!(first && more, "{told:?}");
    // None is told twice.
    assert_eq!(
        told.iter().filter(|it| *it == "submitted").count(),
        1,
        "{told:?}"
    );
    assert_eq!(
        told.iter().filter(|it| *it == "placed").count(),
        5,
        "{told:?}"
    );
    drop(serving);
}
