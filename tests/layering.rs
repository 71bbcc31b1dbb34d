//! Holds the imports of the code against the directions that ARCHITECTURE.md promises.
#![expect(
    clippy::disallowed_methods,
    reason = "the test reads the sources; the core itself reads no file"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which rooms of the core a room may use. Everybody may use the vocabulary.
const MAY_USE: [(&str, &[&str]); 14] = [
    ("port", &[]),
    ("identity", &[]),
    ("time", &[]),
    ("rights", &[]),
    ("port_pool", &[]),
    ("host_addr", &[]),
    ("supervision", &[]),
    ("allocator", &["port_pool", "host_addr", "supervision"]),
    (
        "endpoints",
        &["allocator", "port_pool", "host_addr", "supervision"],
    ),
    ("profile", &["port_pool", "supervision"]),
    ("variables", &["profile", "port_pool", "supervision"]),
    ("residency", &["supervision"]),
    (
        "registry",
        &[
            "allocator",
            "endpoints",
            "port_pool",
            "host_addr",
            "supervision",
            "profile",
            "variables",
            "residency",
            "rights",
        ],
    ),
    (
        "plugin_abi",
        &[
            "allocator",
            "endpoints",
            "port_pool",
            "host_addr",
            "supervision",
            "profile",
            "variables",
            "residency",
            "rights",
            "registry",
        ],
    ),
];
const VOCABULARY: [&str; 3] = ["port", "identity", "time"];

/// Which members a member may use beside the core.
const MEMBERS: [(&str, &[&str]); 6] = [
    ("plugin", &[]),
    ("api", &[]),
    ("controller", &["portreeve-api"]),
    ("agent", &["portreeve-api"]),
    ("worker", &["portreeve-api"]),
    (
        "cli",
        &[
            "portreeve-api",
            "portreeve-controller",
            "portreeve-agent",
            "portreeve-worker",
        ],
    ),
];

#[test]
fn the_core_imports_only_towards_the_vocabulary() {
    let allowed: BTreeMap<_, _> = MAY_USE.into_iter().collect();
    let mut wrong = Vec::new();
    for file in sources(&root().join("src")) {
        let room = room_of(&file);
        if room == "lib" {
            continue;
        }
        let may = allowed.get(room.as_str());
        let may = may.unwrap_or_else(|| panic!("{room} is a new room: draw its arrows here"));
        for used in rooms_used(&std::fs::read_to_string(&file).unwrap()) {
            if used != room && !VOCABULARY.contains(&used.as_str()) && !may.contains(&used.as_str())
            {
                wrong.push(format!("{} uses {used}", file.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that ARCHITECTURE.md does not draw:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn members_meet_only_in_the_api() {
    for (member, may) in MEMBERS {
        let manifest = root().join("crates").join(member).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let used = manifest
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next());
        let used: BTreeSet<_> = used.filter(|name| name.starts_with("portreeve-")).collect();
        for name in used {
            assert!(may.contains(&name), "crates/{member} uses {name}");
        }
    }
}

#[test]
fn unsafe_code_lives_in_the_c_table_only() {
    let mut places = sources(&root().join("src"));
    places.extend(sources(&root().join("crates")));
    for file in places {
        let inside = file.starts_with(root().join("src/plugin_abi"))
            || file.starts_with(root().join("crates/plugin"));
        let text = code(&std::fs::read_to_string(&file).unwrap());
        assert!(
            inside || !words(&text).any(|word| word == "unsafe"),
            "{} has unsafe code",
            file.display()
        );
    }
}

#[test]
fn the_reader_of_imports_sees_groups_paths_and_nothing_else() {
    let text = "use crate::{port::Port, registry::{self, View}};\nlet x: crate::profile::Profile;\n\
        // crate::allocator is only talked about\n#[cfg(test)]\nmod tests { use crate::endpoints; }\n";
    let expected = ["port", "profile", "registry"].map(String::from);
    assert_eq!(rooms_used(text), expected.into());
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" {
            found.extend(sources(&path));
        } else if name.ends_with(".rs")
            && !name.ends_with("_test.rs")
            && !path.iter().any(|part| part == "tests")
        {
            found.push(path);
        }
    }
    found
}

/// `src/port_pool/request.rs` and `src/port.rs` belong to the rooms `port_pool` and `port`.
fn room_of(file: &Path) -> String {
    let inside = file.strip_prefix(root().join("src")).unwrap();
    let first = inside
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_string_lossy()
        .into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// The code without comments and without the text of strings, up to the tests.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]").next().unwrap_or_default();
    let line = |line: &str| {
        // Every other part between quotes is a string's text.
        let outside: String = line.split('"').step_by(2).collect();
        outside.split("//").next().unwrap_or_default().to_owned()
    };
    before_tests
        .lines()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// The rooms that `crate::…` names, in groups too.
fn rooms_used(text: &str) -> BTreeSet<String> {
    let text = code(text);
    let mut rooms = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => rooms.extend(words(rest).next().map(str::to_owned)),
            Some(group) => {
                let mut depth = 0;
                let mut first = String::new();
                for letter in group.chars() {
                    match letter {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            rooms
                                .extend(words(first.split_off(0).trim()).next().map(str::to_owned));
                        }
                        other if depth == 0 => first.push(other),
                        _ => {}
                    }
                }
                rooms.extend(words(first.trim()).next().map(str::to_owned));
            }
        }
    }
    rooms.retain(|room| room.chars().next().is_some_and(char::is_lowercase));
    rooms
}
