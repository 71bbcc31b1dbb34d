//! What the code can answer, held against what the header says it answers.
//!
//! A reader of text, no compiler: it follows calls by name, through this room only. What it finds is
//! answered on some path; what it does not find may still be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use portreeve::plugin_abi::constants::CONSTANTS;
use portreeve::plugin_abi::types::API_LAYOUT;

use crate::comments::{Function, functions};
use crate::source::{code, words};

/// Every call may answer these; the header's first comment says so once.
const EVERYWHERE: [&str; 4] = ["PR_EINVAL", "PR_ESTALE", "PR_EFORK", "PR_EPOISON"];

/// Codes that a reader of text finds and that no caller gets.
const NEVER: [(&str, &str); 7] = [
    // Of grants that it passes over.
    ("release_job", "PR_ESTATE"),
    // Of a defect of ours, in a build that does not stop there.
    ("reserve", "PR_ESTATE"),
    // Of a text of 4 GiB.
    ("env", "PR_ELIMIT"),
    ("last_error", "PR_ELIMIT"),
    ("sup_save", "PR_ELIMIT"),
    ("text", "PR_ELIMIT"),
    ("dump", "PR_ELIMIT"),
];

/// Functions that keep to themselves what they were refused: nobody is in a call that could answer it.
const SILENT: [&str; 1] = ["apply_queue"];

/// Methods that the standard library has too: whose they are cannot be read off their names.
const ANYBODYS: [&str; 9] = [
    "new", "insert", "next", "push", "get", "take", "remove", "set", "find",
];

#[test]
fn every_code_that_a_function_answers_is_listed_with_it() {
    let room = Room::read();
    let entries = entries();
    let all = functions();
    // Words are no codes: those two answer text.
    let answers_a_code =
        |f: &&Function| f.is_built() && !["strerror_", "reason_"].contains(&&*f.name);
    let mut wrong = Vec::new();
    for Function { name, codes, .. } in all.iter().filter(answers_a_code) {
        let (module, function) = &entries[name];
        let entry = room.entry(module, function);
        let entry = entry.unwrap_or_else(|| panic!("{module}::{function} is not found"));
        for (code, way) in room.codes(entry) {
            let is_listed = codes.iter().any(|(listed, _)| *listed == code);
            let is_known = EVERYWHERE.contains(&&*code) || NEVER.contains(&(name, &code));
            if !is_listed && !is_known {
                wrong.push(format!(
                    "{name}: no words for {code}, which it answers by{way}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_class_of_a_function_is_the_one_that_its_code_names() {
    let room = Room::read();
    let entries = entries();
    for function in functions() {
        let (module, name) = &entries[&function.name];
        let Some(written) = room.entry(module, name) else {
            continue;
        };
        for (word, class) in [
            ("Control", "C"),
            ("Hot", "H"),
            ("Report", "R"),
            ("Read", "A"),
        ] {
            if written.text.contains(&format!("Class::{word},")) {
                assert_eq!(function.class, class, "{}", function.name);
            }
        }
    }
}

/// The functions of the room.
struct Room(Vec<Written>);

/// A function: its file, the type that it is of, its name, and its text from there to its end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    file: String,
    of: String,
    name: String,
    text: String,
}

impl Room {
    fn read() -> Self {
        let mut found = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        read_folder(&root.join("src/plugin_abi"), &mut found);
        Self(found)
    }

    /// The function that the table names.
    fn entry(&self, module: &str, name: &str) -> Option<&Written> {
        let (file, folder) = (format!("/{module}.rs"), format!("/{module}/"));
        let mut named = self.0.iter().filter(|written| written.name == name);
        named.find(|written| written.file.ends_with(&file) || written.file.contains(&folder))
    }

    /// The codes that are named in a function or in what it calls, each with a way to it.
    fn codes(&self, entry: &Written) -> BTreeMap<String, String> {
        let mut codes = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut next = vec![(entry, String::new())];
        while let Some((function, way)) = next.pop() {
            if !seen.insert(function) {
                continue;
            }
            let way = format!("{way} {}", function.name);
            let is_code = |word: &&str| CONSTANTS.iter().any(|(n, v)| n == word && *v < -1);
            for code in words(&function.text)
                .filter(|w| w.starts_with("PR_E"))
                .filter(is_code)
            {
                codes.entry(code.to_owned()).or_insert_with(|| way.clone());
            }
            for callee in called(&function.text) {
                let reached = self.reached(function, callee);
                next.extend(reached.into_iter().map(|function| (function, way.clone())));
            }
        }
        codes
    }

    /// Those that a call may reach: of the type that it names, of the same file, or the only one.
    fn reached(&self, from: &Written, call: &str) -> Vec<&Written> {
        let (of, name) = call.rsplit_once("::").unwrap_or(("", call));
        let of = of.rsplit("::").next().unwrap_or(of);
        let of = if of == "Self" { &*from.of } else { of };
        let all = || self.0.iter().filter(|written| written.name == name);
        if SILENT.contains(&name) {
            return Vec::new();
        }
        let is_typed = of.starts_with(char::is_uppercase);
        let all = || all().filter(|written| !is_typed || written.of == of);
        let here: Vec<_> = all().filter(|written| written.file == from.file).collect();
        if is_typed && here.is_empty() {
            return all().collect();
        }
        let is_clear = !ANYBODYS.contains(&name) && !is_entry(name) && all().count() == 1;
        if here.is_empty() && is_clear {
            return all().collect();
        }
        here
    }
}

/// Whether C calls it: then nobody here does.
fn is_entry(name: &str) -> bool {
    API_LAYOUT.members.iter().any(|(of, _, _)| *of == name)
}

fn read_folder(folder: &Path, found: &mut Vec<Written>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            read_folder(&path, found);
        // What a code means in general is no answer.
        } else if !file.ends_with("_test.rs") && !["words.rs", "constants.rs"].contains(&&*file) {
            let text = code(&std::fs::read_to_string(&path).unwrap());
            // Formatted code: an `impl` begins and ends at the start of a line.
            for item in text
                .split("\nimpl")
                .flat_map(|part| part.split_inclusive("\n}\n"))
            {
                let (head, _) = item.split_once('{').unwrap_or((item, ""));
                let is_impl = !head.contains("fn ") && head.starts_with([' ', '<']);
                let of = head.rsplit(" for ").next().unwrap_or(head);
                let of =
                    words(of).find(|word| word.starts_with(char::is_uppercase) && word.len() > 1);
                let of = of.filter(|_| is_impl).unwrap_or_default().to_owned();
                found.extend(item.split("fn ").skip(1).map(|part| Written {
                    file: path.display().to_string(),
                    of: of.clone(),
                    name: words(part).next().unwrap_or_default().to_owned(),
                    text: body(part).to_owned(),
                }));
            }
        }
    }
}

/// From a function's name to the brace that closes it.
fn body(text: &str) -> &str {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return &text[..at],
            '}' => depth -= 1,
            ';' if depth == 0 => return &text[..at],
            _ => {}
        }
    }
    text
}

/// What stands before each opening parenthesis, with the type or module that it names; not the function's own.
fn called(text: &str) -> impl Iterator<Item = &str> {
    let calls = text.match_indices('(').skip(1);
    calls.filter_map(|(at, _)| {
        let before =
            text[..at].trim_end_matches(|c: char| c == '_' || c == ':' || c.is_alphanumeric());
        let call = &text[before.len()..at];
        (!call.is_empty()).then_some(call)
    })
}

/// The names in the table: where each function is written.
fn entries() -> BTreeMap<String, (String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(root.join("src/plugin_abi/table.rs")).unwrap();
    let (_, table) = table.split_once("static API: PrApi = PrApi {").unwrap();
    let (table, _) = table.split_once("\n};").unwrap();
    let lines = table.lines().filter_map(|line| {
        let (name, path) = line.trim().trim_end_matches(',').split_once(": ")?;
        let (module, function) = path.rsplit_once("::")?;
        let module = module.rsplit("::").next()?;
        Some((name.to_owned(), (module.to_owned(), function.to_owned())))
    });
    lines.collect()
}
