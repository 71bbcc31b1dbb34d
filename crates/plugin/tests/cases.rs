//! Hosts in C that try each rule of the table, and the same under tools that see every wrong access. What a test
//! tries is in `c/`; one program has them all.

mod built;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use built::{compiler, root, run, shared_object, temporary};

/// The program of all cases.
static CASES: LazyLock<PathBuf> = LazyLock::new(|| build("cases", &["-O1"], &["-ldl"]));

/// Compiles `c/` into one program.
fn build(name: &str, with: &[&str], and: &[&str]) -> PathBuf {
    let program = temporary().join(name);
    let folder = root().join("crates/plugin/tests/c");
    let mut sources: Vec<_> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "c"))
        .collect();
    sources.sort();
    run(compiler()
        .args(with)
        .args(sources)
        .args(and)
        .args(["-lpthread", "-o"])
        .arg(&program));
    program
}

macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* #[test] fn $name() {
            run(Command::new(&*CASES).arg(shared_object()).arg(stringify!($name)));
        })*

        /// The names above are those that the program has: none is forgotten here.
        #[test]
        fn every_case_of_the_program_is_a_test_here() {
            let listed = run(Command::new(&*CASES).arg(shared_object()).arg("-l"));
            assert_eq!(listed.lines().collect::<Vec<_>>(), [$(stringify!($name)),*]);
        }
    };
}

cases! {
    each_call_succeeds_with_its_arguments,
    null_is_refused_for_each_pointer,
    null_where_it_may_be,
    a_misaligned_pointer_is_refused,
    an_unknown_flag_is_refused_in_each_call,
    an_unknown_flag_is_refused_in_each_struct,
    a_count_too_large_is_refused_before_anything_is_read,
    a_huge_cap_is_no_reason_to_write_more,
    a_buffer_too_small_says_what_it_needs,
}

#[test]
#[ignore = "make external: under valgrind"]
fn under_valgrind() {
    if !is_there("valgrind") {
        return;
    }
    run(Command::new("valgrind")
        .args([
            "-q",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ])
        .arg(&*CASES)
        .arg(shared_object())
        .arg("-s"));
}

/// Whether a tool is installed. A run that must skip nothing fails without it.
fn is_there(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&paths).any(|folder| folder.join(tool).is_file()) {
        return true;
    }
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    assert!(!required, "{tool} is not installed");
    eprintln!("skipped: {tool} is not installed");
    false
}

/// A host under the address and undefined-behaviour sanitizers.
fn sanitized(name: &str, with: &[&str], and: &[&Path]) {
    let libraries: Vec<_> = and.iter().filter_map(|path| path.to_str()).collect();
    let mut flags = vec![
        "-O1",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-DSANITIZED",
    ];
    flags.extend(with);
    let program = build(name, &flags, &[&libraries[..], &["-ldl", "-lm"]].concat());
    run(Command::new(program).arg(shared_object()).arg("-s"));
}

#[test]
#[ignore = "make external: under sanitizers"]
fn under_sanitizers_with_the_shared_object() {
    sanitized("cases_sanitized", &[], &[]);
}

#[test]
#[ignore = "make external: under sanitizers"]
fn under_sanitizers_with_the_static_library() {
    let library = built::PLUGIN.join("libportreeve_plugin.a");
    sanitized("cases_sanitized_static", &["-DLINKED"], &[&library]);
}
