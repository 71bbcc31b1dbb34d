//! What the main commands print before a cluster that is always the same: on terminals of several widths, in a pipe and
//! as JSON. `PORTREEVE_RECORD_HELP=1` writes what has changed.

use std::path::Path;

use serde_json::Value;

use crate::serving::SCENARIO;
use crate::terminal::Terminal;
use crate::world::{Running, World, eventually};

/// One with a fixed port and more replicas than hosts.
const LICENCE: &str = r#"
kind = "service"
name = "licence"
command = ["./licence"]
replicas = 4

[ports]
lm = 8080
"#;

const COMMANDS: [&[&str]; 10] = [
    &["services"],
    &["service", "web.me"],
    &["service", "licence.root"],
    &["hosts"],
    &["ports", "n1"],
    &["endpoints", "web.me"],
    &["endpoints", "licence.root", "--all"],
    &["why", "licence.root/3"],
    &["explain", "--service", "licence.root"],
    &["service", "none.me"],
];

/// The scenario's cluster, as real as a controller can tell.
pub(crate) fn cluster(world: &World) -> Running {
    let scenario = world.profile("cluster.toml", SCENARIO);
    let run = world.path("run").display().to_string();
    let serving = world.start("sim", &["sim", &scenario, "--serve", "--run-dir", &run]);
    let become_ready = |name: &str, ready: u64| {
        let met = eventually(|| {
            let shown = world.run(&["service", name, "-o", "json"]);
            let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
            shown["ready"] == ready
        });
        assert!(met, "{name} never had {ready} ready replicas");
    };
    become_ready("web.me", 4);
    // One after the other, so that each finds its place as it did before.
    world.ok(&["submit", &world.profile("licence.toml", LICENCE)]);
    become_ready("licence.root", 3);
    serving
}

#[test]
fn the_main_commands_print_what_was_read_and_found_good() {
    // P37 among them: the fourth replica of a fixed port says at once why it waits.
    let Some(world) = World::new() else { return };
    let serving = cluster(&world);
    for arguments in COMMANDS {
        let mut text = String::new();
        for width in [100, 40] {
            let shown = Terminal::wide(width).run(&world, arguments);
            text.push_str(&format!("--- on a terminal of {width} columns\n{shown}"));
        }
        let piped = world.run(arguments);
        let code = piped.code.unwrap_or(-1);
        text.push_str(&format!("--- in a pipe: exit code {code}\n"));
        text.push_str(&format!(
            "{}--- standard error\n{}",
            piped.stdout, piped.stderr
        ));
        let json = world.run(&[arguments, &["-o", "json"]].concat());
        text.push_str("--- as JSON\n");
        if let Ok(mut value) = serde_json::from_str::<Value>(&json.stdout) {
            forget_what_varies(&mut value);
            text.push_str(&format!("{value:#}\n"));
        }
        let name = arguments.join("_").replace(['/', '-'], "");
        held_against(&name, &without_moments(&text));
    }
    drop(serving);
}

fn held_against(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/output");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("PORTREEVE_RECORD_HELP").is_some_and(|it| it == "1") {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "it is not {}", path.display());
}

/// Moments, and what is another one in each cluster.
fn forget_what_varies(value: &mut Value) {
    // Of a profile, other tests say what it is.
    const VARIES: [&str; 7] = [
        "epoch",
        "revision",
        "clock_skew_ms",
        "pid",
        "id",
        "profile",
        "ready_since",
    ];
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_moment = value.as_u64().is_some_and(|it| it > 1_000_000_000_000);
                if !value.is_null() && (is_moment || VARIES.contains(&name.as_str())) {
                    *value = "…".into();
                } else {
                    forget_what_varies(value);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(forget_what_varies),
        _ => {}
    }
}

/// `2026-11-30T02:00:00Z` with each digit as a 0, so that it is as wide.
fn without_moments(text: &str) -> String {
    const SHAPE: &str = "0000-00-00T00:00:00Z";
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let shape = rest.get(..SHAPE.len()).map(|it| {
            let digit = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
            it.chars().map(digit).collect::<String>()
        });
        let step = match shape {
            Some(shape) if shape == SHAPE => {
                out.push_str(SHAPE);
                SHAPE.len()
            }
            _ => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[step..];
    }
    out
}
