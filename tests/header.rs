//! Holds `include/portreeve.h` against C compilers and against its mirror in Rust.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test runs C compilers on files it writes; the core itself does neither"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run the compiler has failed"
)]

#[path = "header/answers.rs"]
mod answers;
#[path = "header/comments.rs"]
mod comments;
#[path = "header/gate.rs"]
mod gate;
#[path = "header/record.rs"]
mod record;
#[path = "header/second_look.rs"]
mod second_look;
#[path = "layering/source.rs"]
mod source;
#[path = "header/sources.rs"]
mod sources;
#[path = "header/tampering.rs"]
mod tampering;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use portreeve::plugin_abi::constants::CONSTANTS;
use portreeve::plugin_abi::types::{API_LAYOUT, LAYOUTS};

use record::without_comments;

const WARNINGS: [&str; 8] = [
    "-Wall",
    "-Wextra",
    "-Wpadded",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
    "-pedantic",
    "-fsyntax-only",
];

#[test]
fn the_header_compiles_alone_in_six_standards() {
    let included_twice =
        "#include \"portreeve.h\"\n#include \"portreeve.h\"\nint portreeve_header_compiles;\n";
    // A second opinion, where it is: nobody has to install it.
    let second = |compiler| Command::new(compiler).arg("--version").output().ok();
    let (c, cxx) = (["c99", "c11", "c17"], ["c++11", "c++17", "c++20"]);
    for (compiler, language, standards) in [
        (found("gcc"), "c", c),
        (found("g++"), "c++", cxx),
        (second("clang").map(|_| "clang"), "c", c),
        (second("clang++").map(|_| "clang++"), "c++", cxx),
    ] {
        let Some(compiler) = compiler else {
            continue;
        };
        let source = written(&format!("alone.{language}"), included_twice);
        for standard in standards {
            let mut command = Command::new(compiler);
            command.args(WARNINGS).arg(format!("-std={standard}"));
            // A C++ compiler would say that `int x;` defines it; that is the point of the line.
            command.args(["-x", language]).arg(&source);
            passed(&run(&mut command), standard);
        }
    }
}

#[test]
fn every_member_and_constant_is_where_c_puts_it() {
    let Some(compiler) = found("gcc") else { return };
    let mut program =
        String::from("#include <stdio.h>\n#include \"portreeve.h\"\nint main(void) {\n");
    let mut ours = BTreeMap::new();
    for layout in LAYOUTS.iter().chain([&API_LAYOUT]) {
        let name = layout.name;
        writeln!(program, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
        ours.insert(name.to_owned(), layout.size.to_string());
        for (member, offset, size) in layout.members {
            let at = format!("offsetof({name}, {member}), sizeof((({name} *)0)->{member})");
            writeln!(program, "printf(\"{name}.{member} %zu+%zu\\n\", {at});").unwrap();
            ours.insert(format!("{name}.{member}"), format!("{offset}+{size}"));
        }
        // No member was left out: there is no padding, so the sizes add up.
        let sum: usize = layout.members.iter().map(|(_, _, size)| size).sum();
        assert_eq!(
            sum, layout.size,
            "{name} has a member that is not mirrored, or padding"
        );
    }
    for (name, value) in CONSTANTS {
        writeln!(program, "printf(\"{name} %lld\\n\", (long long){name});").unwrap();
        ours.insert((*name).to_owned(), value.to_string());
    }
    program.push_str("return 0; }\n");
    let source = written("layout.c", &program);
    let binary = source.with_extension("run");
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-Wall", "-Werror"]).arg(&source);
    passed(&run(command.arg("-o").arg(&binary)), "the layout program");
    let printed = run(&mut Command::new(&binary));
    passed(&printed, "the layout program's run");
    let printed = String::from_utf8(printed.stdout).unwrap();
    let theirs: BTreeMap<_, _> = printed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for (name, value) in &theirs {
        assert_eq!(
            ours.get(name),
            Some(value),
            "{name} differs between C and Rust"
        );
    }
    assert_eq!(theirs.len(), ours.len());
}

#[test]
fn every_struct_function_and_constant_of_the_header_is_mirrored() {
    let header = without_comments(&header()).replace("PORTREEVE_H", "");
    let structs: Vec<_> = header
        .split("typedef struct ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    let ours: Vec<_> = LAYOUTS
        .iter()
        .chain([&API_LAYOUT])
        .map(|l| l.name)
        .collect();
    assert_eq!(structs, ours);
    let (_, table) = header.split_once("typedef struct pr_api {").unwrap();
    let (table, _) = table.split_once("} pr_api;").unwrap();
    let functions: Vec<_> = table
        .split("(*")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(name, _)| name))
        .collect();
    let ours: Vec<_> = API_LAYOUT.members[3..]
        .iter()
        .map(|(name, _, _)| *name)
        .collect();
    assert_eq!(functions, ours, "the order of the table is the contract");
    let words = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let named = words.filter(|word| word.starts_with("PR_") && *word != "PR_HAS");
    for name in named {
        let known = CONSTANTS.iter().any(|(ours, _)| *ours == name);
        assert!(known, "{name} is in the header only");
    }
}

fn header() -> String {
    std::fs::read_to_string(include().join("portreeve.h")).unwrap()
}

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// The compiler, or a printed reason why a test says nothing. With `PORTREEVE_REQUIRE_EXTERNAL=1` that is a
/// failure.
fn found(compiler: &'static str) -> Option<&'static str> {
    if Command::new(compiler).arg("--version").output().is_ok() {
        return Some(compiler);
    }
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    assert!(!required, "there is no {compiler} on this machine");
    println!("skipped: there is no {compiler} on this machine");
    None
}

fn written(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn run(command: &mut Command) -> Output {
    command.arg("-I").arg(include()).output().unwrap()
}

fn passed(output: &Output, what: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
}
