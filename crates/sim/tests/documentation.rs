//! What the users' pages show is what the simulator prints.
//!
//! `PORTREEVE_WRITE_PAGES=1 cargo test -p portreeve-sim --test documentation` writes into the pages what it prints now.

use std::path::{Path, PathBuf};

use portreeve_sim::{Entry, Played, Scenario, account, play};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

fn played(text: &str) -> Played {
    let scenario = Scenario::from_toml(text, |_| Err("not here".to_owned()));
    let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}"));
    let played = play(&scenario).unwrap_or_else(|cause| panic!("{cause}"));
    assert_eq!(played.broken, None);
    let unmet: Vec<_> = played.unmet.iter().map(ToString::to_string).collect();
    assert!(
        unmet.is_empty(),
        "{}\n{}",
        unmet.join("\n"),
        account(&played)
    );
    played
}

/// Holds the page against itself with the right outputs in their places.
fn hold(page: &Path, shown: &str, right: &str) {
    if std::env::var_os("PORTREEVE_WRITE_PAGES").is_some() {
        std::fs::write(page, right).expect("a page of this repository can be written");
    } else {
        assert_eq!(shown, right, "{} is not what is printed", page.display());
    }
}

/// The page with what `print` makes of each example in the block of text behind it, and how many there are.
fn with_outputs(page: &str, print: impl Fn(&Played) -> String) -> (String, usize) {
    let mut parts = page.split("```toml\n");
    let mut right = parts.next().unwrap_or_default().to_owned();
    let mut examples = 0;
    for part in parts {
        let (scenario, rest) = part.split_once("```\n").expect("a block has an end");
        right.push_str("```toml\n");
        right.push_str(scenario);
        right.push_str("```\n");
        let Some(text) = rest.trim_start().strip_prefix("```text\n") else {
            right.push_str(rest);
            continue;
        };
        let (_, behind) = text.split_once("```").expect("a block has an end");
        right.push_str("\n```text\n");
        right.push_str(&print(&played(scenario)));
        right.push_str("```");
        right.push_str(behind);
        examples += 1;
    }
    (right, examples)
}

#[test]
fn the_timelines_of_the_page_about_supervision_are_what_their_scenarios_give() {
    let page = folder("docs/supervision.md");
    let shown = std::fs::read_to_string(&page).expect("the page is there");
    let (right, examples) = with_outputs(&shown, |played| {
        let lines = played.timeline.iter();
        // As `--service` leaves them.
        let lines = lines.filter(|entry| entry.service.is_some());
        let lines = lines.map(|entry| format!("{entry}\n"));
        format!("{}\n{}", Entry::HEADING, lines.collect::<String>())
    });
    assert_eq!(examples, 3);
    hold(&page, &shown, &right);
}

#[test]
fn the_examples_of_the_page_about_scenarios_print_what_it_shows() {
    let page = folder("docs/sim.md");
    let shown = std::fs::read_to_string(&page).expect("the page is there");
    let (right, examples) = with_outputs(&shown, account);
    assert!(examples > 0);
    hold(&page, &shown, &right);
}

/// One page: that of a scenario whose file has its name.
fn holds_page(name: &str) {
    let page = folder("docs/scenarios").join(format!("{name}.md"));
    let shown = std::fs::read_to_string(&page).expect("each has a page");
    let text = std::fs::read_to_string(folder("scenarios").join(format!("{name}.toml")));
    let printed = account(&played(&text.expect("each has a scenario")));
    let (before, rest) = shown
        .split_once("```text\n")
        .expect("it shows what happens");
    let (_, behind) = rest.split_once("```").expect("a block has an end");
    hold(
        &page,
        &shown,
        &format!("{before}```text\n{printed}```{behind}"),
    );
}

#[test]
fn the_page_of_the_rolling_replacement_shows_it() {
    holds_page("rolling-replacement");
}

#[test]
fn the_page_of_the_host_loss_shows_it() {
    holds_page("host-loss-during-rollout");
}

#[test]
fn the_page_of_the_flapping_service_shows_it() {
    holds_page("flapping-service");
}

#[test]
fn the_page_of_the_exhausted_pool_shows_it() {
    holds_page("exhausted-pool");
}

#[test]
fn the_page_of_the_partition_shows_it() {
    holds_page("partition-around-the-grace");
}

#[test]
fn the_page_of_the_restart_storm_shows_it() {
    holds_page("controller-restart-storm");
}

#[test]
fn the_page_of_the_start_storm_shows_it() {
    // Ten thousand replicas take minutes without optimisation.
    if std::env::var_os("PORTREEVE_LONG").is_some() {
        holds_page("start-storm");
    }
}
