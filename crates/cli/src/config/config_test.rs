use std::collections::BTreeSet;

use clap::parser::ValueSource;
use tempfile::TempDir;

use super::*;

/// A file of this text, and the words that name it behind a command.
fn written(text: &str) -> (TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it.toml");
    std::fs::write(&path, text).unwrap();
    let words = vec!["--config".to_owned(), path.display().to_string()];
    (folder, words)
}

/// What the command of these words is told, over a file of this text.
fn told(text: &str, words: &[&str]) -> Result<ArgMatches, String> {
    let (_folder, named) = written(text);
    let words = std::iter::once("portreeve").chain(words.iter().copied());
    let words = words.map(str::to_owned).chain(named).map(OsString::from);
    let words: Vec<OsString> = words.collect();
    let (command, _) = over_file(Cli::command(), &words).map_err(|it| it.to_string())?;
    let matches = command.try_get_matches_from(&words);
    let matches = matches.map_err(|it| it.to_string())?;
    Ok(matches.subcommand().unwrap().1.clone())
}

fn raw(matches: &ArgMatches, id: &str) -> Vec<String> {
    let values = matches.get_raw(id).into_iter().flatten();
    values.map(|it| it.to_str().unwrap().to_owned()).collect()
}

/// A value that each option takes, as a file writes it, and as a flag.
fn sample(key: &str) -> (&'static str, &'static str) {
    match key {
        "listen" => ("[\"127.0.0.2:1\", \"127.0.0.3:1\"]", "127.0.0.2:1"),
        "cooling" | "suspect_after" | "host_grace" | "keep_logs" => ("\"31s\"", "31s"),
        "coalesce" => ("\"31ms\"", "31ms"),
        "max_connections" | "max_streams" | "max_requests" => ("31", "31"),
        "log_files" => ("7", "7"),
        "log_size" => ("\"31M\"", "31M"),
        "network" => ("[\"data=10.31.0.0/16\"]", "data=10.31.0.0/16"),
        "ports" | "fixed_ports" | "reserved_ports" => ("\"31000-31009\"", "31000-31009"),
        "ephemeral" => ("\"exclude\"", "exclude"),
        "backend" => ("\"systemd\"", "systemd"),
        "containment" => ("\"process-tree\"", "process-tree"),
        "owner" => ("\"plugin\"", "plugin"),
        "host" => ("\"n31\"", "n31"),
        "address" => ("\"10.31.0.0/16\"", "10.31.0.0/16"),
        "color" => ("\"never\"", "never"),
        "log_format" => ("\"json\"", "json"),
        "jwt_algorithm" => ("\"ES256\"", "ES256"),
        "log_level" => ("\"debug\"", "debug"),
        "controller" => ("[\"https://c31:1\"]", "https://c31:1"),
        "withdraw_suspect" | "single_host" | "insecure" => ("true", "true"),
        _ => ("\"/tmp/31\"", "/tmp/31"),
    }
}

fn options(whose: Whose) -> Options {
    Options::of(&Cli::command(), whose)
}

#[test]
fn every_option_that_stays_can_be_set_by_the_file() {
    for (whose, command) in [
        (Whose::Controller, "controller"),
        (Whose::Agent, "agent"),
        (Whose::Client, "services"),
    ] {
        let options = options(whose);
        let keys: BTreeSet<_> = options.keys().map(|it| it.key.clone()).collect();
        assert!(keys.len() >= 4, "{command}: {keys:?}");
        for option in options.keys() {
            let (text, _) = sample(&option.key);
            let file = format!("{} = {text}\n", option.key);
            let matches = told(&file, &[command]).unwrap_or_else(|it| panic!("{file}: {it}"));
            let source = matches.value_source(&option.id);
            assert_eq!(source, Some(ValueSource::DefaultValue), "{file}");
            let values = raw(&matches, &option.id).join(",");
            assert!(values.contains(sample(&option.key).1), "{file}: {values}");
        }
    }
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    for whose in [Whose::Controller, Whose::Agent] {
        let command = match whose {
            Whose::Controller => "controller",
            _ => "agent",
        };
        for option in options(whose).keys().filter(|it| !it.switch) {
            let (text, flag) = sample(&option.key);
            let file = format!("{} = {text}\n", option.key);
            let long = option.key.replace('_', "-");
            let word = format!("--{long}={flag}");
            let matches = told(&file, &[command, &word]).unwrap();
            let source = matches.value_source(&option.id);
            assert_eq!(source, Some(ValueSource::CommandLine), "{file}");
        }
    }
    let cooled = |words: &[&str]| told("cooling = \"5s\"\n", words).unwrap();
    assert_eq!(raw(&cooled(&["controller"]), "cooling"), ["5s"]);
    let flag = cooled(&["controller", "--cooling", "7s"]);
    assert_eq!(raw(&flag, "cooling"), ["7s"]);
    // What is on in the file is off by a word.
    let on = |words: &[&str]| told("single_host = true\n", words).unwrap();
    assert!(on(&["agent"]).get_flag("single_host"));
    assert!(!on(&["agent", "--single-host=false"]).get_flag("single_host"));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_the_key_that_was_meant() {
    let text = "cooling = \"60s\"\ncoolin = \"60s\"\nhost_grace = \"soon\"\nmax_streams = \"many\"\n\
                insecure = \"perhaps\"\nzzzzzzzz = 1\nlisten = [\"nowhere\"]\nnew_epoch = true\n";
    let words = told(text, &["controller"]).unwrap_err();
    for (line, part) in [
        (2, "did you mean cooling?"),
        (3, "'soon' for '--host-grace <TIME>'"),
        (4, "'many' for '--max-streams <N>'"),
        (5, "insecure"),
        (6, "--help lists them"),
        (7, "'nowhere' for '--listen <ADDRESS>'"),
        (8, "no setting"),
    ] {
        let found = words
            .lines()
            .find(|it| it.contains(&format!("it.toml:{line}: ")));
        assert!(found.is_some_and(|it| it.contains(part)), "{part}: {words}");
    }
    assert_eq!(words.lines().count(), 7, "{words}");
    let broken = told("cooling = \n", &["controller"]).unwrap_err();
    assert!(broken.contains("it.toml:1: "), "{broken}");
}

#[test]
fn what_excludes_each_other_is_settled_by_who_was_nearer() {
    let file = "address_command = \"echo 10.0.0.1\"\n";
    let given = told(file, &["agent", "--address", "10.0.0.0/8"]).unwrap();
    assert!(raw(&given, "address_command").is_empty());
    let alone = told(file, &["agent"]).unwrap();
    assert_eq!(raw(&alone, "address_command"), ["echo 10.0.0.1"]);
    let both = format!("{file}address = \"10.0.0.0/8\"\n");
    let words = told(&both, &["agent"]).unwrap_err();
    assert!(words.contains("cannot stand beside"), "{words}");
}

#[test]
fn networks_may_be_a_table_and_a_named_file_has_to_be_there() {
    let table = "[networks]\ndata = \"10.20.0.0/16\"\nib = \"10.30.0.0/16\"\n";
    let mut names = raw(&told(table, &["controller"]).unwrap(), "all");
    names.sort();
    assert_eq!(names, ["data=10.20.0.0/16", "ib=10.30.0.0/16"]);
    let words = ["portreeve", "services", "--config", "/nonexistent/c.toml"];
    let words = words.map(OsString::from);
    let missing = over_file(Cli::command(), &words).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/c.toml"), "{missing}");
}

#[test]
fn a_change_of_the_file_is_told_by_its_keys() {
    let (folder, words) = written("cooling = \"5s\"\ninsecure = true\n");
    let words = ["portreeve", "controller"]
        .map(str::to_owned)
        .into_iter()
        .chain(words);
    let words: Vec<OsString> = words.map(OsString::from).collect();
    let (_, file) = over_file(Cli::command(), &words).unwrap();
    let file = file.unwrap();
    assert_eq!(file.changed().unwrap(), Vec::<String>::new());
    let path = folder.path().join("it.toml");
    std::fs::write(&path, "cooling = \"6s\"\nmax_requests = 5\n").unwrap();
    let changed = file.changed().unwrap();
    assert_eq!(changed, ["cooling", "insecure", "max_requests"]);
    std::fs::write(&path, "cooling = 6s\n").unwrap();
    assert!(file.changed().is_err());
}

#[test]
fn the_samples_of_the_page_are_files_that_can_be_used() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut seen = Vec::new();
    for block in page.split("```toml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let first = text.lines().next().unwrap();
        let command = match first.rsplit('/').next().unwrap() {
            "controller.toml" => "controller",
            "agent.toml" => "agent",
            _ => "services",
        };
        told(text, &[command]).unwrap_or_else(|it| panic!("{first}: {it}"));
        seen.push(command);
    }
    assert_eq!(seen, ["controller", "agent", "services"]);
}

#[test]
fn a_file_without_an_end_is_refused_and_not_read_into_memory() {
    let words = ["portreeve", "hosts", "--config", "/dev/zero"].map(OsString::from);
    let refused = over_file(Cli::command(), &words).unwrap_err().to_string();
    assert_eq!(refused, "/dev/zero: it is longer than 1 MiB");
}

proptest::proptest! {
    // Each builds the whole command line anew.
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]

    #[test]
    fn no_text_makes_the_reader_panic_and_a_refusal_is_bounded(
        text in "\\PC*|((controller|ca|networks\\.x|networks|color|listen|insecure) ?= ?[-a-z0-9\"\\[\\],:._{}=é ]{0,24}\n|\\[[a-z.]{0,9}\\]\n){0,8}",
    ) {
        for whose in ["hosts", "controller", "agent"] {
            if let Err(refused) = told(&text, &[whose]) {
                assert!(refused.len() < 64 << 10, "{refused}");
            }
        }
    }
}
