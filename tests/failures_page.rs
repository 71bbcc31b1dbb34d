//! Each row of the page of failures names tests, and they exist.
#![expect(
    clippy::disallowed_methods,
    reason = "the test reads the page and the sources; the core itself reads neither"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The columns of each table.
const HEADING: &str = "| failure | what users see | what the system does | what to do | tests |";

#[test]
fn each_row_of_the_page_of_failures_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/failures.md")).expect("the page is there");
    let mut tests = BTreeSet::new();
    for folder in ["src", "crates", "tests"] {
        gather(&root.join(folder), &mut tests);
    }
    assert!(
        tests.len() > 500,
        "the tests are not found: {}",
        tests.len()
    );
    let mut rows = 0;
    let mut wrong = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        if line == HEADING || line.starts_with("|---") {
            continue;
        }
        rows += 1;
        let cells: Vec<_> = line.trim_matches('|').split('|').collect();
        let names: Vec<_> = match cells.as_slice() {
            [_, _, _, _, tests] => tests.split('`').skip(1).step_by(2).collect(),
            _ => Vec::new(),
        };
        if names.is_empty() {
            wrong.push(format!("no test: {line}"));
        }
        let missing = names.iter().filter(|name| !tests.contains(**name));
        wrong.extend(missing.map(|name| format!("there is no test {name}")));
    }
    assert!(rows > 30, "the tables are not found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The names of the tests in a folder: functions that follow a line with a test's attribute.
fn gather(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, tests);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).expect("sources are text");
            let mut is_test = false;
            for line in text.lines().map(str::trim_start) {
                if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                    is_test = true;
                }
                let name = line
                    .strip_prefix("async ")
                    .unwrap_or(line)
                    .strip_prefix("fn ");
                if let Some((name, _)) = name.and_then(|rest| rest.split_once('(')) {
                    if is_test {
                        tests.insert(name.to_owned());
                    }
                    is_test = false;
                }
            }
        }
    }
}
