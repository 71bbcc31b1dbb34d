//! Holds the imports of the code against the directions that ARCHITECTURE.md promises.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test reads the sources and asks cargo; the core itself does neither"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

#[path = "layering/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use source::{code, rooms_used, words};

/// Which rooms of the core a room may use. Everybody may use the vocabulary.
const MAY_USE: [(&str, &[&str]); 16] = [
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
    ("attendance", &["supervision", "residency"]),
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
        "commit",
        &[
            "registry",
            "endpoints",
            "residency",
            "supervision",
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

/// Which members a member may use beside the core; its tests no more than itself.
const MEMBERS: [(&str, &[&str]); 7] = [
    ("portreeve-plugin", &[]),
    ("portreeve-api", &[]),
    ("portreeve-controller", &["portreeve-api"]),
    ("portreeve-agent", &["portreeve-api"]),
    ("portreeve-worker", &["portreeve-api"]),
    ("portreeve-sim", &[]),
    (
        "portreeve-cli",
        &[
            "portreeve-api",
            "portreeve-controller",
            "portreeve-agent",
            "portreeve-worker",
            "portreeve-sim",
        ],
    ),
];

#[test]
fn the_core_imports_only_towards_the_vocabulary() {
    let allowed: BTreeMap<_, _> = MAY_USE.into_iter().collect();
    let mut wrong = Vec::new();
    for file in sources(&root().join("src")) {
        let modules = modules_of(&file);
        let Some(room) = modules.first() else {
            continue;
        };
        let may = allowed.get(room.as_str());
        let may = may.unwrap_or_else(|| panic!("{room} is a new room: draw its arrows here"));
        let text = std::fs::read_to_string(&file).unwrap();
        for used in rooms_used(&code(&text), modules.len()) {
            if used != *room && !VOCABULARY.contains(&&*used) && !may.contains(&&*used) {
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
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--locked"])
        .args(["--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut allowed: BTreeMap<_, BTreeSet<_>> = MEMBERS
        .into_iter()
        .map(|(member, may)| (member, may.iter().copied().chain(["portreeve"]).collect()))
        .collect();
    // The core depends on no member, and on itself only in its documentation.
    allowed.insert("portreeve", BTreeSet::new());
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let may = allowed.remove(name);
        let may = may.unwrap_or_else(|| panic!("{name} is a new member: draw its arrows here"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            let is_ours = used.starts_with("portreeve");
            assert!(!is_ours || may.contains(used), "{name} uses {used}");
        }
    }
    assert!(allowed.is_empty(), "members that are gone: {allowed:?}");
}

#[test]
fn unsafe_code_lives_in_the_c_table_only() {
    let mut places = sources(&root().join("src"));
    places.extend(sources(&root().join("crates")));
    for file in places {
        let inside = file.starts_with(root().join("src/plugin_abi"));
        let text = code(&std::fs::read_to_string(&file).unwrap());
        assert!(
            inside || !words(&text).any(|word| word == "unsafe"),
            "{} has unsafe code",
            file.display()
        );
    }
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// Every Rust file below a folder that is not a test's.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && !name.ends_with("_test.rs") {
            found.push(path);
        }
    }
    found
}

/// The module that a file is, from the crate down: `port_pool`, `request`; nothing for `lib.rs`.
fn modules_of(file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(root().join("src")).unwrap();
    let inside = inside.with_extension("");
    let parts = inside
        .iter()
        .map(|part| part.to_string_lossy().into_owned());
    parts
        .filter(|part| part != "mod" && part != "lib")
        .collect()
}
