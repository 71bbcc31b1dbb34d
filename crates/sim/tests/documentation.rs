//! What docs/supervision.md shows is what the simulator prints.

use std::path::Path;

use portreeve_sim::{Entry, Scenario, play};

#[test]
fn the_timelines_of_the_users_page_are_what_their_scenarios_give() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/supervision.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut examples = 0;
    for example in page.split("```toml\n").skip(1) {
        let (scenario, rest) = example.split_once("```\n").unwrap();
        let shown = rest.trim_start().strip_prefix("```text\n").unwrap();
        let (shown, _) = shown.split_once("```").unwrap();
        let scenario = Scenario::from_toml(scenario, |_| Err("not here".to_owned()));
        let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}"));
        let lines = play(&scenario).unwrap().timeline;
        let lines = lines.iter().map(|entry| format!("{entry}\n"));
        let played = format!("{}\n{}", Entry::HEADING, lines.collect::<String>());
        assert_eq!(shown, played);
        examples += 1;
    }
    assert_eq!(examples, 3);
}
