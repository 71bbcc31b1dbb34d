//! Completions and man pages, as a shell and `man` take them.

use crate::world::{Outcome, PORTREEVE, World, names_in};

#[test]
fn bash_completes_commands_options_and_values() {
    let Some(world) = World::new() else { return };
    // What bash itself does at a tab: the words so far, and which of them is being written.
    let completes = |words: &[&str]| {
        let script = format!(
            "set -e; source <({PORTREEVE} completions bash); COMP_WORDS=({words}); COMP_CWORD={last}; \
             COMP_LINE=\"{words}\"; COMP_POINT=${{#COMP_LINE}}; _portreeve portreeve '{word}' '{before}' || true; \
             echo \"${{COMPREPLY[@]}}\"",
            words = words.join(" "),
            last = words.len() - 1,
            word = words[words.len() - 1],
            before = words[words.len() - 2],
        );
        let shell = world.command("bash").args(["-c", &script]).output();
        let shell = Outcome::of(shell.unwrap());
        assert_eq!(
            (shell.code, shell.stderr.as_str()),
            (Some(0), ""),
            "{shell:?}"
        );
        shell.stdout.trim().to_owned()
    };
    assert_eq!(completes(&["portreeve", "endp"]), "endpoints");
    assert_eq!(completes(&["portreeve", "host", "dr"]), "drain");
    assert_eq!(
        completes(&["portreeve", "wait", "--allow"]),
        "--allow-missing"
    );
    assert_eq!(completes(&["portreeve", "events", "-o", "j"]), "json");
    assert_eq!(
        completes(&["portreeve", "shi"]),
        "",
        "that is not for people"
    );
}

#[test]
fn every_command_has_a_man_page_with_its_examples() {
    let Some(world) = World::new() else { return };
    let folder = world.path("man/man1");
    let told = world.ok(&["man", &folder.display().to_string()]);
    let pages = names_in(&folder);
    assert!(
        told.ends_with(&format!(": {} pages\n", pages.len())),
        "{told}"
    );
    assert_eq!(pages.iter().filter(|name| name.contains("shim")).count(), 0);
    for page in &pages {
        let text = std::fs::read_to_string(folder.join(page)).unwrap();
        let name = page.strip_suffix(".1").unwrap();
        assert!(text.contains(&format!(".TH {name} 1")), "{page}: {text}");
        // Those that hold others, such as `probe`, have none of their own.
        let holds_others = text.contains(".SH SUBCOMMANDS");
        assert!(holds_others || text.contains("Example"), "{page}: {text}");
    }
    for page in [
        "portreeve.1",
        "portreeve-submit.1",
        "portreeve-host-drain.1",
        "portreeve-probe-http.1",
    ] {
        assert!(
            pages.iter().any(|it| it == page),
            "{page} is not in {pages:?}"
        );
    }
    // Nothing is written where nothing can be.
    let file = world.profile("file", "");
    let refused = world.run(&["man", &format!("{file}/man1")]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(&file), "{refused:?}");
}
