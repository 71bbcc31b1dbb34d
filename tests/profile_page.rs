//! The tables of docs/profile.md against the reader itself: every default that a row names is the one in force,
//! and every bound is where the reader begins to refuse.
#![expect(
    clippy::disallowed_methods,
    reason = "the test reads the page; the core itself reads no file"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the page has failed"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use portreeve::profile::{Body, Checked, Profile, ProfileErrors, Written};
use portreeve::time::{Spelled, parse_duration};
use serde_json::Value;

/// Everything is there that a row may set one more field of, and every default is left to the reader.
const WHOLE: &str = "name = \"web\"\ncommand = [\"serve\"]\n[ports]\nweb = { any = 1 }\n\
    [startup]\nlistening = true\n[liveness]\nhttp = {}\n[readiness]\nlistening = true\n\
    [placement]\nhosts = \"n1\"\n[restart.give_up]\nmax_restarts = 10\n";
/// The same with the other form of the probe that has rows for both.
const BY_TCP: &str =
    "name = \"web\"\ncommand = [\"serve\"]\n[ports]\nweb = { any = 1 }\n[liveness]\ntcp = {}\n";
/// What stands only where something else does.
const REQUEUED: &str =
    "name = \"web\"\ncommand = [\"serve\"]\n[restart.give_up]\nthen = \"requeue\"\n";

/// Defaults in words, which tests of their own hold: fields whose default depends on others or is a rule.
const IN_WORDS: [&str; 13] = [
    "namespace",
    "working_dir",
    "restart",
    "stop",
    "readiness",
    "placement",
    "restart.backoff",
    "restart.give_up",
    "restart.give_up.window",
    "restart.backoff.reset_after",
    "readiness.listening",
    "min_up",
    "ports.NAME.network",
];

/// Rows with a figure that is no bound of theirs.
const UNHELD: [&str; 4] = [
    "ports.NAME.range",
    "startup.command",
    "startup.success_threshold",
    "liveness.success_threshold",
];

struct Row {
    field: String,
    default: String,
    allowed: String,
}

fn rows() -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/profile.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = |line: &str| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split(" | ").collect();
        let [field, default, allowed @ ..] = cells.as_slice() else {
            return None;
        };
        Some(Row {
            field: field.trim_end_matches('`').to_owned(),
            default: (*default).to_owned(),
            allowed: allowed.join(" | ").trim_end_matches(" |").to_owned(),
        })
    };
    page.lines().filter_map(row).collect()
}

fn base(field: &str) -> &'static str {
    match field {
        "liveness.tcp.port" | "liveness.tcp.host" => BY_TCP,
        "restart.give_up.rest" | "restart.give_up.max_requeues" => REQUEUED,
        _ => WHOLE,
    }
}

fn real_name(field: &str) -> String {
    field.replace("ports.NAME", "ports.web")
}

fn with(field: &str, value: &str) -> Result<Checked, ProfileErrors> {
    let flags = [format!("{}={value}", real_name(field))];
    let body = Body::Toml(base(field).as_bytes());
    let written = Written {
        body,
        flags: &flags,
    };
    Profile::from_layers(written, &BTreeMap::new())
}

/// What is told of this field if it is set so.
fn told(field: &str, value: &str) -> Vec<String> {
    let name = real_name(field);
    let errors = match with(field, value) {
        Ok(_) => return Vec::new(),
        Err(errors) => errors,
    };
    let its_own = |error: &&portreeve::profile::ProfileError| error.field.starts_with(&name);
    let its_own = errors.as_slice().iter().filter(its_own);
    its_own.map(ToString::to_string).collect()
}

#[track_caller]
fn accepts(field: &str, value: &str) {
    let told = told(field, value);
    // A rule over several fields may refuse what the bounds allow.
    let bounds = told.iter().find(|text| text.contains("out of bounds"));
    assert_eq!(bounds, None, "{field} = {value}");
}

#[track_caller]
fn refuses(field: &str, value: &str) {
    assert!(
        !told(field, value).is_empty(),
        "{field} = {value} is accepted"
    );
}

/// The first thing in code of a cell that begins with it.
fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.split('`').next()
}

#[test]
fn every_default_that_a_row_names_is_the_one_in_force() {
    let mut compared = 0;
    for row in rows()
        .iter()
        .filter(|row| !row.field.starts_with("PORTREEVE"))
    {
        let field = real_name(&row.field);
        let checked = Profile::from_toml(base(&row.field)).unwrap();
        let found = checked.values.iter().find(|value| value.field == field);
        if IN_WORDS.contains(&row.field.as_str()) {
            continue;
        }
        match (code(&row.default), row.default.as_str()) {
            // Not written out, since nothing else is possible.
            (Some("1"), _) if row.allowed == "`1`" => {
                assert_eq!(told(&row.field, "1"), [] as [String; 0]);
                refuses(&row.field, "2");
            }
            (Some(default), _) => {
                let found = found.unwrap_or_else(|| panic!("{field} has no value"));
                let default = toml_value(default);
                assert!(
                    same(&found.value, &default),
                    "{field}: {default} is {}",
                    found.value
                );
                compared += 1;
            }
            (None, "required") => {
                let without: String = base(&row.field)
                    .lines()
                    .filter(|line| !line.starts_with(&format!("{field} = ")))
                    .flat_map(|line| [line, "\n"])
                    .collect();
                let errors = Profile::from_toml(&without).unwrap_err();
                assert!(
                    errors.as_slice().iter().any(|error| error.field == field),
                    "{field}"
                );
            }
            (None, "none" | "nobody") => {
                let below = format!("{field}.");
                let written = base(&row.field).contains(&format!("[{field}]"))
                    || field == "ports"
                    || field.split_once('.').is_some_and(|(table, form)| {
                        base(&row.field).contains(&format!("[{table}]\n{form} ="))
                    });
                let set = checked
                    .values
                    .iter()
                    .find(|value| value.field == field || value.field.starts_with(&below));
                assert!(written || set.is_none(), "{field} has a default: {set:?}");
            }
            (None, words) => {
                // Said once, so that a row cannot slip from a value to words unseen.
                let known = [
                    "this or `fixed`",
                    "this or `any`",
                    "the host's pool",
                    "the only port",
                    "the replica's address",
                    "every host",
                    "the submitter's account",
                ];
                assert!(known.contains(&words), "{field}: {words:?} is not checked");
            }
        }
    }
    assert!(compared >= 35, "only {compared} defaults were compared");
}

#[test]
fn every_bound_of_a_row_is_where_the_reader_begins_to_refuse() {
    let (mut held, mut unheld) = (0, Vec::new());
    for row in rows() {
        let (field, before) = (row.field.as_str(), held);
        if let Some((low, high)) = spans(&row.allowed) {
            let ms = Duration::from_millis(1);
            accepts(field, &Spelled(low).to_string());
            accepts(field, &Spelled(high).to_string());
            refuses(field, &Spelled(high + ms).to_string());
            if let Some(below) = low.checked_sub(ms) {
                refuses(field, &Spelled(below).to_string());
            }
            held += 1;
        } else if let Some((low, high)) = lengths(&row.allowed) {
            for (length, inside) in [
                (low, true),
                (high, true),
                (low - 1, false),
                (high + 1, false),
            ] {
                let told = told(field, &format!("\"{}\"", "x".repeat(length)));
                assert_eq!(told.is_empty(), inside, "{field} of {length}: {told:?}");
            }
            held += 1;
        } else if let Some((low, high)) = numbers(&row.allowed) {
            // Parts of a whole where the bounds are one.
            let step = if row.allowed.contains("in steps of 0.001") {
                0.001
            } else {
                1.0
            };
            for (value, inside) in [
                (low, true),
                (high, true),
                (low - step, false),
                (high + step, false),
            ] {
                match inside {
                    true => accepts(field, &value.to_string()),
                    false => refuses(field, &value.to_string()),
                }
            }
            held += 1;
        } else if let Some((low, high)) = row.allowed.strip_prefix("codes from ").and_then(numbers)
        {
            accepts(field, &format!("[{low}, {high}]"));
            assert_eq!(told(field, &format!("[{low}, {high}]")), [] as [String; 0]);
            refuses(field, &format!("[{}]", low - 1.0));
            refuses(field, &format!("[{}]", high + 1.0));
            held += 1;
        }
        let counts = after(&row.allowed, "at most ");
        let counted = counts.is_some_and(|most| counted(field, &row.allowed, most));
        held += u32::from(counted);
        if before == held && row.allowed.contains(|c: char| c.is_ascii_digit()) {
            unheld.push(row.field);
        }
    }
    assert_eq!(unheld, UNHELD);
    assert!(held >= 40, "only {held} bounds were held");
}

/// Holds the most entries or bytes of a field; false: it is of another kind.
fn counted(field: &str, allowed: &str, most: usize) -> bool {
    let entries = |count: usize, one: &dyn Fn(usize) -> String| {
        (0..count).map(one).collect::<Vec<_>>().join(", ")
    };
    let value = |count: usize| -> Option<String> {
        let texts = |nth: usize| format!("n{nth} = \"x\"");
        Some(match field {
            "env" | "labels" | "liveness.http.headers" => {
                format!("{{ {} }}", entries(count, &texts))
            }
            "env_secret" => format!("[{}]", entries(count, &|nth| format!("\"N{nth}\""))),
            "visibility" => format!("[{}]", entries(count, &|nth| format!("\"user:u{nth}\""))),
            "restart.success_exit" => {
                format!("[{}]", entries(count, &|nth| (nth % 256).to_string()))
            }
            "placement.hosts" => format!("\"m[1-{count}]\""),
            "ports.NAME.path" => format!("\"/{}\"", "p".repeat(count - 1)),
            _ if allowed.contains(&format!("at most {most} bytes"))
                && !field.contains("labels") =>
            {
                format!("\"{}\"", "x".repeat(count))
            }
            _ => return None,
        })
    };
    let (Some(inside), Some(beyond)) = (value(most), value(most + 1)) else {
        return false;
    };
    assert_eq!(
        told(field, &inside),
        [] as [String; 0],
        "{field} with {most}"
    );
    refuses(field, &beyond);
    true
}

#[test]
fn every_word_of_a_row_is_one_that_the_reader_takes() {
    for (field, words) in [
        ("kind", &["service"][..]),
        ("restart.policy", &["always", "on-failure", "never"]),
        ("restart.give_up.then", &["exit", "requeue"]),
        ("on_cut_off", &["keep", "stop"]),
        ("ports.NAME.protocol", &["tcp", "udp", "tcp+udp"]),
        ("ports.NAME.owner", &["run", "user", "any"]),
    ] {
        let rows = rows();
        let row = rows.iter().find(|row| row.field == field).unwrap();
        let quoted: Vec<_> = row
            .allowed
            .split('`')
            .filter_map(|part| part.strip_prefix('"')?.strip_suffix('"'))
            .collect();
        for word in words {
            assert!(quoted.contains(word), "{field} does not name {word}");
            accepts(field, &format!("\"{word}\""));
        }
        for word in quoted {
            assert!(words.contains(&word), "{field} names {word}");
        }
        refuses(field, "\"other\"");
    }
}

/// `100ms to 1 day` at the beginning of a cell.
fn spans(cell: &str) -> Option<(Duration, Duration)> {
    let (low, rest) = cell.split_once(" to ")?;
    // What `initial` is where nothing is written.
    let low = if low == "`initial`" { "1s" } else { low };
    let low = parse_duration(low)
        .ok()
        .filter(|_| !low.bytes().all(|b| b.is_ascii_digit()))?;
    let mut words = rest.split([' ', ':', ';', ',']);
    let high = words.next()?;
    let days = words.next().is_some_and(|word| word.starts_with("day"));
    let high = if days {
        format!("{high}d")
    } else {
        high.to_owned()
    };
    Some((low, parse_duration(&high).ok()?))
}

/// `1 to 256` at the beginning of a cell.
fn numbers(cell: &str) -> Option<(f64, f64)> {
    let (low, rest) = cell.split_once(" to ")?;
    let high = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((low.parse().ok()?, high.parse().ok()?))
}

/// `1 to 63 of` such letters.
fn lengths(cell: &str) -> Option<(usize, usize)> {
    let (bounds, _) = cell.split_once(" of `")?;
    let (low, high) = bounds.rsplit_once(" to ")?;
    let low = low.rsplit(' ').next()?;
    Some((low.parse().ok()?, high.parse().ok()?))
}

/// The number that follows a word.
fn after(cell: &str, word: &str) -> Option<usize> {
    let (_, rest) = cell.split_once(word)?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// A default as it is written in the page.
fn toml_value(text: &str) -> Value {
    serde_json::from_str(text)
        .unwrap_or_else(|_| panic!("{text} is neither a text, a number nor a list"))
}

/// Equal, or the same time in other words, or the same codes in a list.
fn same(found: &Value, said: &Value) -> bool {
    let span = |value: &Value| parse_duration(value.as_str()?).ok();
    let listed = |value: &Value| match value {
        Value::Array(items) if items.len() == 1 => items[0].clone(),
        other => other.clone(),
    };
    found == said || listed(found) == *said || (span(found).is_some() && span(found) == span(said))
}
