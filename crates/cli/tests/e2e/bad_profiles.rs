//! A bad profile is refused whole, with every error at its place, and nothing is stored.

use crate::world::{USUAL, World, hello};

const BAD: &str = r#"kind = "service"
name = "bad"
replicas = 2
comand = ["x"]
command = ["server"]

[ports]
http = 65536
admin = "any"

[readiness]
http = { port = "web", path = "/" }
interval = "5"
"#;

#[test]
fn every_error_of_a_profile_is_told_at_once_and_nothing_is_stored() {
    let Some(world) = World::new() else { return };
    let file = world.profile("bad.toml", BAD);
    let good = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&[&good]);
    for verb in ["check", "submit"] {
        let outcome = world.run(&[verb, &file]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        for place in [":4:", ":8:", ":12:", ":13:"] {
            let begins = |line: &str| line.starts_with(&format!("{file}{place}"));
            assert!(
                outcome.stderr.lines().any(begins),
                "{place} is missing: {}",
                outcome.stderr
            );
        }
        for word in [
            "comand", "command", "65536", "65535", "web", "admin", "interval", "unit",
        ] {
            assert!(
                outcome.stderr.contains(word),
                "{word} is missing: {}",
                outcome.stderr
            );
        }
    }
    assert_eq!(world.run(&["service", "bad"]).code, Some(4));
    let dev = world.run(&[
        "dev",
        "--run-dir",
        &world.path("run2").display().to_string(),
        &file,
    ]);
    assert_eq!(dev.code, Some(1), "{dev:?}");
    assert!(dev.stderr.contains(":8:"), "{dev:?}");
    // Two of one name: the second would replace the first.
    let twin = world.profile("twin.toml", &hello("hello", 2, "", USUAL));
    let run = world.path("run2").display().to_string();
    let dev = world.run(&["dev", "--run-dir", &run, &good, &twin]);
    assert_eq!(dev.code, Some(1), "{dev:?}");
    for word in [good.as_str(), twin.as_str(), "choose another name"] {
        assert!(dev.stderr.contains(word), "{word} is missing: {dev:?}");
    }
}

#[test]
fn duplicate_names_and_broken_toml_are_refused_with_their_place() {
    let Some(world) = World::new() else { return };
    let twice = world.profile(
        "twice.toml",
        "kind = \"service\"\nname = \"a\"\ncommand = \"x\"\n[ports]\nhttp = \"any\"\nhttp = 80\n",
    );
    let outcome = world.run(&["check", &twice]);
    assert!(
        outcome.code == Some(1) && outcome.stderr.contains(&format!("{twice}:6:")),
        "{outcome:?}"
    );
    let broken = world.profile(
        "broken.toml",
        "kind = \"service\"\nname = \"a\ncommand = \"x\"\n",
    );
    let outcome = world.run(&["check", &broken]);
    assert!(
        outcome.code == Some(1) && outcome.stderr.contains(&format!("{broken}:2:")),
        "{outcome:?}"
    );
    // Latin-1 in a label, with the place of its first byte that is no text.
    let latin = world.path("latin.toml");
    std::fs::write(&latin, b"name = \"a\"\nlabels = { a = \"\xe9\" }\n").unwrap();
    let latin = latin.display().to_string();
    let outcome = world.run(&["check", &latin]);
    assert!(
        outcome.code == Some(1) && outcome.stderr.contains(&format!("{latin}:2:17: ")),
        "{outcome:?}"
    );
    // It read on until memory ended.
    let endless = world.run(&["check", "/dev/zero"]);
    assert!(
        endless.code == Some(1) && endless.stderr.contains("too long"),
        "{endless:?}"
    );
    let missing = world.run(&["check", "/nowhere/at/all.toml"]);
    assert!(
        missing.code == Some(1) && missing.stderr.contains("/nowhere/at/all.toml"),
        "{missing:?}"
    );
}

#[test]
fn the_rest_api_refuses_a_profile_with_its_errors_as_a_list() {
    let Some(world) = World::new() else { return };
    let file = world.profile("bad.toml", BAD);
    let good = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&[&good]);
    let data = format!("@{file}");
    let answer = world.curl(&[
        "-X",
        "PUT",
        "-H",
        "content-type: application/toml",
        "--data-binary",
        &data,
        "http://127.0.0.1:7373/api/v1/services/bad",
    ]);
    let problem: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(problem["status"], 422, "{problem:#}");
    let errors = problem["errors"].as_array().unwrap();
    assert!(errors.len() >= 4, "{problem:#}");
    assert!(errors.iter().any(|error| error["line"] == 8), "{problem:#}");
    assert_eq!(world.run(&["service", "bad"]).code, Some(4));
}

#[test]
fn a_profile_over_one_of_the_site_is_checked_and_submitted_alike() {
    let Some(world) = World::new() else { return };
    std::fs::create_dir(world.path("site")).unwrap();
    let base = world.profile(
        "site/base.toml",
        "replicas = 2\n[restart]\npolicy = \"on-failure\"\n",
    );
    let folder = world.path("site").display().to_string();
    let hello_text = hello("hello", 1, "", USUAL);
    let good = world.profile("hello.toml", &hello_text);
    let over = hello("over", 1, "", USUAL).replace("replicas = 1\n", "");
    let over = world.profile("over.toml", &format!("extends = \"site/base\"\n{over}"));
    let site = ["--site-profiles", folder.as_str()];
    let checked = world.run(&["check", &over, site[0], site[1]]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let alone = world.run(&["check", &over]);
    assert!(
        alone.code == Some(1) && alone.stderr.contains("the site has no profile site/base"),
        "{alone:?}"
    );
    let whole = world.run(&["check", site[0], site[1]]);
    assert_eq!(
        (whole.code, whole.stdout.as_str()),
        (Some(0), "site/base: ok\n"),
        "{whole:?}"
    );
    let _dev = world.dev(&[site[0], site[1], &good]);
    let submitted = world.run(&["submit", &over]);
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    assert!(submitted.stdout.contains("2 replicas"), "{submitted:?}");
    std::fs::write(&base, "replicas = 2\n[restart]\npolicy = \"alway\"\n").unwrap();
    for (verb, more) in [("check", &site[..]), ("submit", &[])] {
        let words: Vec<&str> = [verb, &over]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        let outcome = world.run(&words);
        let told = "site/base:3:10: restart.policy: \"alway\" is not known, did you mean \"always\"?; write \"always\", \"on-failure\" or \"never\"";
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(
            outcome.stderr.lines().any(|line| line == told),
            "{outcome:?}"
        );
    }
    let whole = world.run(&["check", site[0], site[1]]);
    assert!(
        whole.code == Some(1) && whole.stderr.contains("site/base:3:10: restart.policy"),
        "{whole:?}"
    );
    std::fs::write(&base, "replicas = 2\n[restart]\npolicy = \"never\"\n").unwrap();
    let differs = world.run(&["submit", &over]);
    assert!(
        differs.code == Some(1) && differs.stderr.contains("restart"),
        "{differs:?}"
    );
    let flagged = world.run(&["submit", &over, "--set", "replicas=3", "--replace"]);
    assert_eq!(flagged.code, Some(0), "{flagged:?}");
    assert!(flagged.stdout.contains("3 replicas"), "{flagged:?}");
}

#[test]
fn programs_are_told_each_error_of_each_file_with_its_place() {
    let Some(world) = World::new() else { return };
    let good = world.profile(
        "good.toml",
        "kind = \"service\"\nname = \"web\"\ncommand = \"x\"\n",
    );
    let bad = world.profile(
        "bad.toml",
        "kind = \"service\"\nname = \"WEB\"\ncommand = \"x\"\ncomand = \"y\"\n",
    );
    let nowhere = world.path("nowhere.toml").display().to_string();
    let told = world.run(&["check", &good, &bad, &nowhere, "-o", "json"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.stderr.contains("2 of 3 profiles refused"), "{told:?}");
    let found: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(found[0]["file"], good);
    assert_eq!(
        (&found[0]["service"], &found[0]["errors"]),
        (&"web".into(), &serde_json::json!([]))
    );
    let lines: Vec<_> = found[1]["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["line"].as_u64())
        .collect();
    assert_eq!(lines, [Some(2), Some(4)], "{found:#}");
    assert_eq!(found[1]["service"], serde_json::Value::Null);
    assert!(
        found[2]["errors"][0]["problem"]
            .as_str()
            .unwrap()
            .contains("nowhere.toml"),
        "{found:#}"
    );
}
