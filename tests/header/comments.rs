//! The form of the header's comments: whoever reads one line finds what it means.

use std::collections::BTreeMap;

use portreeve::plugin_abi::constants::CONSTANTS;
use portreeve::plugin_abi::types::{API_LAYOUT, LAYOUTS};

use crate::header;

/// A function of the table with what its comment says.
pub(crate) struct Function {
    pub(crate) name: String,
    /// The letter of its class.
    pub(crate) class: String,
    /// The codes of its comment, the whole call's and each element's, with their words.
    pub(crate) codes: Vec<(String, String)>,
    /// The class of the section that it stands in.
    section: String,
    comment: String,
}

/// The functions of the table, in order.
pub(crate) fn functions() -> Vec<Function> {
    let header = header();
    let (_, table) = header.split_once("typedef struct pr_api {").unwrap();
    let (table, _) = table.split_once("} pr_api;").unwrap();
    let mut functions = Vec::new();
    let (mut section, mut comment, mut is_open) = (String::new(), String::new(), false);
    for line in table.lines().map(str::trim) {
        if line.starts_with("/*") {
            comment.clear();
            is_open = true;
        }
        if is_open {
            comment.push_str(line);
            comment.push('\n');
            is_open = !line.ends_with("*/");
            if comment.ends_with("- */\n") {
                section = comment[3..4].to_owned();
            }
        } else if let Some((name, _)) = line.split_once("(*").and_then(|(_, l)| l.split_once(')')) {
            let class = comment.strip_prefix("/* [").and_then(|rest| rest.get(..1));
            functions.push(Function {
                name: name.to_owned(),
                class: class.unwrap_or_default().to_owned(),
                codes: codes(&comment),
                section: section.clone(),
                comment: std::mem::take(&mut comment),
            });
        }
    }
    functions
}

/// The lines of a comment that begin with a code.
fn codes(comment: &str) -> Vec<(String, String)> {
    let lines = comment.lines().filter_map(|line| line.strip_prefix("*   "));
    let codes = lines.filter(|line| line.starts_with("PR_E"));
    let codes = codes.filter_map(|line| line.split_once(' '));
    codes
        .map(|(code, words)| {
            let words = words.trim_end_matches("*/").trim();
            (code.to_owned(), words.to_owned())
        })
        .collect()
}

#[test]
fn every_function_says_its_class_what_it_does_and_what_each_code_means() {
    let functions = functions();
    assert_eq!(functions.len(), API_LAYOUT.members.len() - 3);
    for Function {
        name,
        class,
        codes,
        section,
        comment,
    } in functions
    {
        assert_eq!(class, section, "{name} stands in another section");
        let prose = comment.lines().next().unwrap_or_default();
        assert!(prose.len() > 24, "no comment says what {name} does");
        for (code, words) in codes {
            let known = CONSTANTS.iter().any(|(ours, _)| *ours == code);
            assert!(known, "{name}: there is no {code}");
            assert!(
                words.len() > 4,
                "{name}: no words say when it answers {code}"
            );
        }
    }
}

#[test]
fn every_struct_stands_under_a_comment() {
    let header = header();
    for layout in LAYOUTS.iter().chain([&API_LAYOUT]) {
        let begins = format!("\ntypedef struct {} {{", layout.name);
        let at = header.find(&begins);
        let before = &header[..at.unwrap_or_else(|| panic!("{} is not found", layout.name))];
        let last = before.lines().next_back().unwrap_or_default();
        assert!(
            last.ends_with(". */"),
            "no comment says what {} is",
            layout.name
        );
    }
}

#[test]
fn every_constant_is_explained_in_its_line() {
    let mut explained = BTreeMap::new();
    for line in header().lines().map(str::trim) {
        let (line, comment) = line.split_once("/* ").unwrap_or((line, ""));
        let word = line
            .trim_start_matches("#define ")
            .split_whitespace()
            .next();
        let words = comment.trim_end_matches("*/").trim();
        if let Some(word) = word.filter(|word| word.starts_with("PR_")) {
            explained.insert(word.to_owned(), words.len() > 4);
        }
    }
    for (name, _) in CONSTANTS {
        let is_explained = explained.get(*name).copied().unwrap_or(false);
        assert!(is_explained, "no comment in its line says what {name} is");
    }
}

#[test]
fn no_line_is_wider_than_a_screen() {
    for line in header().lines() {
        assert!(line.len() <= 160 && !line.contains('\t'), "{line}");
    }
}
