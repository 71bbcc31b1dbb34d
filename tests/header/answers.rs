//! What the code can answer, held against what the header says it answers.
//!
//! A reader of text, no compiler: it follows calls by name, through this room only. What it finds is
//! answered on some path; what it does not find may still be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use portreeve::plugin_abi::constants::CONSTANTS;

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

/// Codes that are answered by a method of a type which the file does not name: no reader of text sees it.
const UNSEEN: [(&str, &str); 4] = [
    ("explain", "PR_ENOENT"),
    ("explain_all", "PR_ENOENT"),
    ("release_begin", "PR_ESTATE"),
    ("release_confirm", "PR_ESTATE"),
];

/// Functions that name codes which they do not answer: of a release that was queued, of a call that is counted.
const SILENT: [&str; 2] = ["apply_queue", "note"];

/// Methods that the standard library has too.
const ANYBODYS: [&str; 22] = [
    "clear",
    "contains",
    "drain",
    "entry",
    "extend",
    "find",
    "get",
    "insert",
    "iter",
    "last",
    "len",
    "new",
    "next",
    "pop",
    "push",
    "read",
    "remove",
    "reserve",
    "retain",
    "set",
    "take",
    "try_reserve",
];

#[test]
fn every_code_that_a_function_answers_is_listed_with_it_and_no_other() {
    let room = Room::read();
    let entries = entries();
    let all = functions();
    // Words are no codes: those two answer text.
    let answers_a_code = |f: &&Function| !["strerror_", "reason_"].contains(&&*f.name);
    let mut wrong = Vec::new();
    for Function { name, codes, .. } in all.iter().filter(answers_a_code) {
        let (module, function) = &entries[name];
        let entry = room.entry(module, function);
        let entry = entry.unwrap_or_else(|| panic!("{module}::{function} is not found"));
        let found = room.codes(entry);
        for (code, way) in &found {
            let is_listed = codes.iter().any(|(listed, _)| listed == code);
            let is_known = EVERYWHERE.contains(&&**code) || NEVER.contains(&(name, code));
            if !is_listed && !is_known {
                wrong.push(format!(
                    "{name}: no words for {code}, which it answers by{way}"
                ));
            }
        }
        for (code, words) in codes {
            let is_known = EVERYWHERE.contains(&&**code) || UNSEEN.contains(&(name, code));
            if !found.contains_key(code) && !is_known {
                wrong.push(format!("{name}: nothing answers {code}, {words}"));
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

/// The functions of the room, and the names of those elsewhere in the core.
struct Room(Vec<Written>, BTreeSet<String>);

/// A function: its file, the type that it is of, its name, and its text from there to its end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    file: String,
    of: String,
    name: String,
    text: String,
    /// What its file imports of the room: where it is from, and its name.
    imports: BTreeSet<(String, String)>,
}

impl Room {
    fn read() -> Self {
        let mut found = Vec::new();
        read_folder(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut found,
        );
        let (here, elsewhere): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|written| written.file.contains("/src/plugin_abi/"));
        Self(
            here,
            elsewhere.into_iter().map(|written| written.name).collect(),
        )
    }

    /// The function that the table names.
    fn entry(&self, module: &str, name: &str) -> Option<&Written> {
        let mut named = self.0.iter().filter(|written| written.name == name);
        named.find(|written| written.is_in(module))
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

    /// Those that a call may reach: of the type that it names, of the same file, or any that is called so.
    fn reached(&self, from: &Written, call: &str) -> Vec<&Written> {
        let is_method = call.starts_with('.') && !call.contains("::");
        let call = call.trim_start_matches('.');
        let (of, name) = call.rsplit_once("::").unwrap_or(("", call));
        let of = of.rsplit("::").next().unwrap_or(of);
        let of = if of == "Self" { &*from.of } else { of };
        let is_typed = of.starts_with(char::is_uppercase);
        if SILENT.contains(&name) {
            return Vec::new();
        }
        let named = |written: &&Written| {
            let fits = if is_typed {
                written.of == of
            } else {
                written.of.is_empty() != is_method
            };
            written.name == name && fits
        };
        let all = || self.0.iter().filter(named);
        let here: Vec<_> = all().filter(|it| it.file == from.file).collect();
        if is_method {
            let beside: Vec<_> = all().filter(|it| it.is_beside(from)).collect();
            // Whose method it is, is not written; a type that the file names is likely, and a name that
            // nobody else has is certain.
            let likely = |it: &&Written| from.imports.iter().any(|(_, name)| *name == it.of);
            let is_anybodys = ANYBODYS.contains(&name);
            return match beside.is_empty() {
                false => beside,
                true if is_anybodys => Vec::new(),
                true if self.1.contains(name) => all().filter(likely).collect(),
                true => all().collect(),
            };
        }
        if is_typed && here.is_empty() {
            return all().collect();
        }
        if !of.is_empty() && !is_typed {
            return all().filter(|it| it.is_in(of)).collect();
        }
        let is_imported = |it: &&Written| {
            let imported = from.imports.iter().filter(|(_, name)| *name == it.name);
            imported.clone().any(|(module, _)| it.is_in(module))
        };
        if here.is_empty() {
            all().filter(is_imported).collect()
        } else {
            here
        }
    }
}

impl Written {
    /// Whether it is in the same file, or in the same folder of those that are one part in several files.
    fn is_beside(&self, other: &Self) -> bool {
        let folder = Path::new(&self.file).parent();
        let parts = ["watch", "supervision"];
        let is_part = folder.is_some_and(|folder| parts.iter().any(|part| folder.ends_with(part)));
        self.file == other.file || (is_part && folder == Path::new(&other.file).parent())
    }

    /// Whether it is in the file or folder of a module.
    fn is_in(&self, module: &str) -> bool {
        self.file.ends_with(&format!("/{module}.rs")) || self.file.contains(&format!("/{module}/"))
    }
}

/// What `use` brings from the room: the module before the last name, and that name.
fn imports(text: &str) -> BTreeSet<(String, String)> {
    let uses = text.split("use crate::plugin_abi::").skip(1);
    let uses = uses.filter_map(|rest| rest.split(';').next());
    let named = uses.flat_map(|import| {
        let (path, names) = import.rsplit_once("::").unwrap_or(("", import));
        let (path, names) = import.split_once("::{").unwrap_or((path, names));
        let module = path.rsplit("::").next().unwrap_or(path).to_owned();
        words(names).map(move |name| (module.clone(), name.to_owned()))
    });
    named.collect()
}

fn read_folder(folder: &Path, found: &mut Vec<Written>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            read_folder(&path, found);
        // What a code means in general is no answer.
        } else if !file.ends_with("_test.rs") && !["words.rs", "constants.rs"].contains(&&*file) {
            let text = without_turbofish(&code(&std::fs::read_to_string(&path).unwrap()));
            let imports = imports(&text);
            // Formatted code: an `impl` begins and ends at the start of a line.
            for item in text
                .split("\nimpl")
                .flat_map(|part| part.split_inclusive("\n}\n"))
            {
                let (head, _) = item.split_once('{').unwrap_or((item, ""));
                let is_impl = !head.contains("fn ") && head.starts_with([' ', '<']);
                // `impl<T: Plain> Input<T>`: what it is about stands behind what it is generic over.
                let head = head
                    .strip_prefix('<')
                    .map_or(head, |rest| past_generics(rest));
                let of = head.rsplit(" for ").next().unwrap_or(head);
                let of =
                    words(of).find(|word| word.starts_with(char::is_uppercase) && word.len() > 1);
                let of = of.filter(|_| is_impl).unwrap_or_default().to_owned();
                found.extend(item.split("fn ").skip(1).map(|part| Written {
                    file: path.display().to_string(),
                    of: of.clone(),
                    name: words(part).next().unwrap_or_default().to_owned(),
                    text: body(part).to_owned(),
                    imports: imports.clone(),
                }));
            }
        }
    }
}

/// What follows the `>` that closes a list which has been opened.
fn past_generics(text: &str) -> &str {
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

/// `read::<T>(x)` is a call like `read(x)`.
fn without_turbofish(text: &str) -> String {
    let mut parts = text.split("::<");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + past_generics(part))
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

/// What stands before each opening parenthesis, with the type or module that it names, or the point before a
/// method; not the function's own.
fn called(text: &str) -> impl Iterator<Item = &str> {
    let calls = text.match_indices('(').skip(1);
    calls.filter_map(|(at, _)| {
        let before =
            text[..at].trim_end_matches(|c: char| c == '_' || c == ':' || c.is_alphanumeric());
        let start = before.len() - usize::from(before.ends_with('.'));
        let call = &text[start..at];
        (call.len() > 1).then_some(call)
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
