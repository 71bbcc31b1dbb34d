//! The contract as data: read from the header, or from the record of it that is committed.
//!
//! The record, `include/portreeve.abi`, is what a C compiler makes of the header: each constant with its
//! value, each struct, each member with offset, size and type. What was written there holds for ever;
//! lines may be added behind.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What the header declares, in its order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contract {
    pub(crate) constants: Vec<String>,
    /// The names of ids, each with its type.
    pub(crate) ids: Vec<(String, String)>,
    pub(crate) structs: Vec<Struct>,
}

/// A struct: its name, and its members with their types. A function is `answer (parameter, …)`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) members: Vec<(String, String)>,
}

impl Struct {
    /// Whether members may be added behind the last: it tells its size, or its array tells it.
    pub(crate) fn grows(&self) -> bool {
        self.name == "pr_port" || self.members.first().is_some_and(|(name, _)| name == "size")
    }
}

impl Contract {
    /// Reads the header.
    pub(crate) fn of_header(header: &str) -> Self {
        let text = without_comments(header);
        let mut constants = Vec::new();
        for line in text.lines() {
            let define = line
                .strip_prefix("#define PR_")
                .map(|rest| words(rest).next());
            let name = define
                .flatten()
                .filter(|name| !line.contains(&format!("{name}(")));
            constants.extend(name.map(|name| format!("PR_{name}")));
        }
        for part in text.split("enum {").skip(1) {
            let items = part.split('}').next().unwrap_or_default().split(',');
            constants.extend(
                items
                    .filter_map(|item| words(item).next())
                    .map(str::to_owned),
            );
        }
        let mut ids = Vec::new();
        for part in text.split("typedef uint64_t ").skip(1) {
            let names = part.split(';').next().unwrap_or_default();
            ids.extend(words(names).map(|name| (name.to_owned(), "uint64_t".to_owned())));
        }
        let structs = text.split("typedef struct ").skip(1).map(|part| {
            let (name, rest) = part.split_once('{').unwrap();
            let (body, _) = rest.split_once('}').unwrap();
            let declared = body.split(';').map(str::trim).filter(|it| !it.is_empty());
            Struct {
                name: name.trim().to_owned(),
                members: declared.flat_map(members).collect(),
            }
        });
        let structs = structs.collect();
        Self {
            constants,
            ids,
            structs,
        }
    }

    /// Reads what [`Contract::program`] printed once.
    pub(crate) fn of_record(record: &str) -> Self {
        let mut contract = Self {
            constants: Vec::new(),
            ids: Vec::new(),
            structs: Vec::new(),
        };
        for line in record.lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.splitn(3, ' ');
            let (Some(kind), Some(name), Some(rest)) = (parts.next(), parts.next(), parts.next())
            else {
                panic!("a line of the record is cut: {line:?}");
            };
            match kind {
                "constant" => contract.constants.push(name.to_owned()),
                "id" => contract.ids.push((name.to_owned(), rest.to_owned())),
                "frozen" | "grows" => contract.structs.push(Struct {
                    name: name.to_owned(),
                    members: Vec::new(),
                }),
                "member" => {
                    let (of, member) = name.split_once('.').unwrap();
                    let kind = rest.splitn(3, ' ').nth(2).unwrap();
                    let its = contract.structs.iter_mut().find(|it| it.name == of);
                    its.unwrap()
                        .members
                        .push((member.to_owned(), kind.to_owned()));
                }
                other => panic!("the record knows no {other}"),
            }
        }
        contract
    }

    /// A C program that prints the record of the header that it includes.
    pub(crate) fn program(&self) -> String {
        let mut text = String::from(PROGRAM);
        for name in &self.constants {
            writeln!(text, "  CONSTANT({name});").unwrap();
        }
        for (name, kind) in &self.ids {
            writeln!(text, "  printf(\"id {name} {kind}\\n\");").unwrap();
        }
        for one in &self.structs {
            let name = &one.name;
            if one.grows() {
                writeln!(
                    text,
                    "  printf(\"grows {name} from {}\\n\");",
                    first_of(one)
                )
                .unwrap();
            } else {
                writeln!(text, "  printf(\"frozen {name} %zu\\n\", sizeof({name}));").unwrap();
            }
            for (member, kind) in &one.members {
                writeln!(text, "  MEMBER({name}, {member}, \"{kind}\");").unwrap();
            }
        }
        text.push_str("  return 0;\n}\n");
        text
    }
}

/// What is wrong with a record beside the committed one: lines that are gone or differ.
pub(crate) fn broken(committed: &str, now: &str) -> Vec<String> {
    let kept: BTreeSet<_> = now.lines().collect();
    let gone = committed.lines().filter(|line| !kept.contains(line));
    let mut wrong: Vec<_> = gone
        .map(|line| format!("recorded, and not so any more: {line}"))
        .collect();
    // What is new stands behind what was there: between, it would have moved something, and in a hole
    // it would be read by nobody who asks for the size.
    let ends = |text: &str, of: &str| -> usize {
        let start = format!("member {of}.");
        let members = text.lines().filter(|line| line.starts_with(&start));
        members.map(|line| place(line).1).max().unwrap_or(0)
    };
    let old: BTreeSet<_> = committed.lines().collect();
    for line in now.lines().filter(|line| !old.contains(line)) {
        let Some((of, _)) = line
            .strip_prefix("member ")
            .and_then(|rest| rest.split_once('.'))
        else {
            continue;
        };
        if place(line).0 < ends(committed, of) {
            wrong.push(format!("added before the end: {line}"));
        }
    }
    wrong
}

/// Where a member begins and ends.
fn place(line: &str) -> (usize, usize) {
    let mut numbers = line
        .split(' ')
        .skip(2)
        .map(|word| word.parse().unwrap_or(0));
    let (offset, size) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (offset, offset + size)
}

fn first_of(one: &Struct) -> &str {
    one.members.first().map_or("", |(name, _)| name)
}

/// The members that one declaration makes.
fn members(declared: &str) -> Vec<(String, String)> {
    if let Some((answer, rest)) = declared.split_once("(*") {
        let (name, rest) = rest.split_once(')').unwrap();
        let list = rest.trim().trim_start_matches('(').trim_end_matches(')');
        let parameters: Vec<_> = list.split(',').map(parameter).collect();
        let kind = format!("{} ({})", spaced(answer), parameters.join(", "));
        return vec![(name.to_owned(), kind)];
    }
    let (first, more) = declared.split_once(',').unwrap_or((declared, ""));
    let at = first.rfind([' ', '*']).unwrap() + 1;
    let base = spaced(&first[..at]);
    assert!(
        more.is_empty() || !declared.contains('*'),
        "a pointer in a list: {declared}"
    );
    let names = [&first[at..]]
        .into_iter()
        .chain(more.split(',').filter(|it| !it.is_empty()));
    names
        .map(|name| match name.trim().split_once('[') {
            Some((name, count)) => (name.to_owned(), format!("{base}[{count}")),
            None => (name.trim().to_owned(), base.clone()),
        })
        .collect()
}

/// A parameter's type, without its name.
fn parameter(text: &str) -> String {
    let text = spaced(text);
    match text.rsplit_once([' ', '*']) {
        Some((before, name)) if !name.is_empty() && before != "const" => {
            text[..text.len() - name.len()].trim_end().to_owned()
        }
        _ => text,
    }
}

/// With one blank between words, and none behind a star.
fn spaced(text: &str) -> String {
    let text = text.replace('*', " * ");
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace("* ", "*")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

pub(crate) fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    for part in text.split("/*") {
        kept.push_str(part.split_once("*/").map_or(part, |(_, after)| after));
    }
    kept
}

/// The sign of a constant is part of it: compared with another, it decides how both are read.
const PROGRAM: &str = r##"#include <stdio.h>
#include "portreeve.h"
#define CONSTANT(name) ((name) * 0 - 1 > 0 \
    ? printf("constant %s %llu unsigned %zu\n", #name, (unsigned long long)(name), sizeof(name)) \
    : printf("constant %s %lld signed %zu\n", #name, (long long)(name), sizeof(name)))
#define MEMBER(of, name, type) \
    printf("member %s.%s %zu %zu %s\n", #of, #name, offsetof(of, name), sizeof(((of *)0)->name), type)
int main(void) {
  puts("# What portreeve.h means to a C compiler; `make abi` adds to it. Lines may be added, none changed or removed.");
"##;
