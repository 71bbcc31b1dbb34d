//! The deliberate faults of `mutations/` fit the tree of today, and their table says what their heads say.
//!
//! `crates/sim/mutations/run` builds each and shows that seeds find it; that takes minutes.
//! `PORTREEVE_WRITE_PAGES=1 cargo test -p portreeve-sim --test mutations` writes the table from the heads.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// So many kinds of faults are to be found at least.
const LEAST_FOUND: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn patches() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutations");
    let files = std::fs::read_dir(folder).expect("the folder is part of the crate");
    let mut patches: Vec<PathBuf> = files
        .map(|file| file.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|it| it == "patch"))
        .collect();
    patches.sort();
    patches
}

fn name(patch: &Path) -> String {
    let stem = patch.file_stem().expect("it has an extension");
    stem.to_string_lossy().into_owned()
}

/// What the head of a patch says under `key`.
fn said(head: &str, key: &str) -> Option<String> {
    let mut lines = head.lines().take_while(|line| !line.starts_with("diff "));
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))?;
    Some(value.to_owned())
}

#[test]
fn every_deliberate_fault_can_be_put_into_the_tree() {
    let mut unfit = String::new();
    for patch in patches() {
        let git = Command::new("git")
            .args(["apply", "--check"])
            .arg(&patch)
            .current_dir(root())
            .output();
        let Ok(git) = git else {
            eprintln!("skipped: git, which applies patches, is not here");
            return;
        };
        if !git.status.success() {
            let told = String::from_utf8_lossy(&git.stderr);
            write!(unfit, "{}: {told}", name(&patch)).unwrap();
        }
    }
    assert!(unfit.is_empty(), "write them anew:\n{unfit}");
}

#[test]
fn the_table_of_faults_says_what_their_heads_say() {
    let mut table = String::from("| fault | what is wrong then | found in |\n|---|---|---|\n");
    let mut found = 0;
    for patch in patches() {
        let head = std::fs::read_to_string(&patch).expect("it can be read");
        let what = said(&head, "What").expect("a patch says what is wrong");
        let seed = said(&head, "Found");
        found += usize::from(seed.is_some());
        let seed = seed.unwrap_or_else(|| "not yet".to_owned());
        writeln!(table, "| `{}` | {what} | {seed} |", name(&patch)).unwrap();
    }
    assert!(found >= LEAST_FOUND, "only {found} faults were found");
    let page = root().join("crates/sim/mutations/README.md");
    let shown = std::fs::read_to_string(&page).expect("the folder has a page");
    let (before, _) = shown.split_once("| fault |").expect("it has a table");
    let right = format!("{before}{table}");
    if std::env::var_os("PORTREEVE_WRITE_PAGES").is_some() {
        std::fs::write(&page, right).expect("a page of this repository can be written");
    } else {
        assert_eq!(shown, right, "PORTREEVE_WRITE_PAGES=1 writes it anew");
    }
}
