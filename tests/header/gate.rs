//! What was recorded of the contract holds: additions pass, changes do not.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::record::{Contract, broken};
use crate::tampering::TAMPERINGS;
use crate::{found, header, include, passed};

#[test]
fn what_was_recorded_of_the_contract_still_holds() {
    let Some(now) = recorded("as-it-is", &header()) else {
        return;
    };
    let path = include().join("portreeve.abi");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let wrong = broken(&committed, &now);
    assert!(
        wrong.is_empty(),
        "the contract is broken:\n{}",
        wrong.join("\n")
    );
    if std::env::var("PORTREEVE_RECORD_ABI").is_ok_and(|value| value == "1") {
        std::fs::write(path, now).unwrap();
    } else {
        assert_eq!(committed, now, "`make abi` records what was added");
    }
}

#[test]
fn the_record_tells_the_contract_that_it_was_made_of() {
    let Some(now) = recorded("round-trip", &header()) else {
        return;
    };
    assert_eq!(Contract::of_record(&now), Contract::of_header(&header()));
}

#[test]
fn an_addition_passes_the_record_and_a_change_does_not() {
    let Some(before) = recorded("untouched", &header()) else {
        return;
    };
    for tampering in TAMPERINGS {
        let after = tampering.of(&header());
        let after = recorded(tampering.name, &after).unwrap();
        let wrong = broken(&before, &after);
        assert_eq!(
            wrong.is_empty(),
            tampering.passes,
            "{}: {wrong:#?}",
            tampering.name
        );
        assert!(before != after || tampering.is_silent, "{}", tampering.name);
    }
}

/// What a C compiler makes of a header; nothing without one.
fn recorded(name: &str, header: &str) -> Option<String> {
    let compiler = found("gcc")?;
    let folder = folder(name);
    std::fs::write(folder.join("portreeve.h"), header).unwrap();
    let (source, program) = (folder.join("record.c"), folder.join("record"));
    std::fs::write(&source, Contract::of_header(header).program()).unwrap();
    let built = Command::new(compiler)
        .args(["-std=c11", "-w", "-I"])
        .arg(&folder)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    passed(&built.unwrap(), name);
    let printed = Command::new(&program).output().unwrap();
    passed(&printed, name);
    Some(String::from_utf8(printed.stdout).unwrap())
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("record")
        .join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
