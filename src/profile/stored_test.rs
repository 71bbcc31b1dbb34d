//! What is written out reads back equal, and no input is too much.

use proptest::prelude::*;
use serde_json::json;

use super::tests::{LEAST, profile};
use super::*;

#[test]
fn hostile_sizes_are_refused_in_bounded_time() {
    let tails = [
        "=\n".repeat(100_000),
        "[".repeat(200_000),
        "x={".repeat(60_000),
        "a.".repeat(100_000),
        "k=[\n".repeat(16_000),
        (0..20_000).map(|n| format!("k{n}=1\n")).collect(),
        format!(
            "[placement]\nhosts = [{}]",
            "\"n[1-16000]\",".repeat(15_000)
        ),
        format!("[placement]\nhosts = \"n[1-9999]{}\"", "[1]".repeat(40_000)),
        format!("[placement]\nhosts = \"{}[1-9999]\"", "n".repeat(200_000)),
        format!("[ports]\n{}", "a = 1\n".repeat(30_000)),
        format!(
            "[ports]\n{}",
            (0..9_000)
                .map(|n| format!("p{n} = {{ any = 9 }}\n"))
                .collect::<String>()
        ),
    ];
    for tail in tails {
        let errors = Profile::from_toml(&format!("{LEAST}{tail}")).unwrap_err();
        assert!(errors.as_slice().len() <= ProfileErrors::MOST);
        assert!(errors.to_string().len() < 200_000);
    }
    let errors = Profile::from_toml(&" ".repeat(MAX_FILE + 1)).unwrap_err();
    assert!(errors.to_string().contains("too long"));
}

const SAMPLE: &str = r#"
name = "llm"
namespace = "chem"
replicas = 2
command = ["vllm", "serve", "--port", "${port.http}", "$$HOME", "${env.X}"]
pre_exec = "stage ${replica.index} ${service.name} ${host.name}"
working_dir = "/data/llm"
env = { HF_HOME = "/data/hf", A = "${host.address}" }
env_file = "~/.llm.env"
env_secret = ["HF_TOKEN"]
labels = { model = "m1" }
visibility = ["group:chem", "user:bob"]
logs = ["group:chem"]
rerunnable = false
on_cut_off = "stop"
min_up = "2s"

[ports]
http = { any = 1, app_protocol = "https", path = "/v1", env = "LLM_PORT" }
internal = { any = 100, publish = false, range = "20000-20999,21000-21999", network = "data", owner = "user" }
admin = { fixed = 53, protocol = "tcp+udp" }

[restart]
policy = "on-failure"
backoff = { initial = "1s", max = "90s", jitter = 0.25, reset_after = "10m" }
give_up = { max_restarts = 3, window = "1h", then = "requeue", rest = "2m", max_requeues = 7 }
success_exit = [0, 3, "TERM"]
no_restart_exit = [78]

[startup]
within = "10m"

[liveness]
http = { port = "http", path = "/health?x=${port.http}", host = "::1", expect = "200-299,404", headers = { Authorization = "Bearer ${env.HF_TOKEN}" }, require_body = "ok" }
timeout = "7s"

[readiness]
tcp = { port = "http" }
success_threshold = 2

[stop]
signal = "QUIT"
drain = "5s"
grace = "30s"
unkillable_after = "90s"

[placement]
hosts = "n[01-16],x"
exclude = "n07"
labels = { gpu = "h100" }
"#;

#[test]
fn what_is_written_out_reads_back_equal() {
    for text in [SAMPLE, LEAST] {
        let profile = Profile::from_toml(text).unwrap().profile;
        let json = serde_json::to_string(&profile).unwrap();
        let again: Profile = serde_json::from_str(&json).unwrap();
        assert_eq!(again, profile);
        assert_eq!(serde_json::to_string(&again).unwrap(), json);
        assert_eq!(Profile::from_json_text(&json).unwrap().profile, profile);
    }
}

#[test]
fn a_profile_at_the_edge_of_every_bound_can_be_stored() {
    // A stored profile that is not read again would keep its controller from starting.
    let dollars = "$".repeat(131_071);
    let codes: Vec<_> = (200..600).step_by(2).map(|code| code.to_string()).collect();
    let codes = codes.join(",");
    let lines = format!(
        "env = {{ A = '{dollars}' }}\n[ports]\nhttp = \"any\"\n[readiness]\nhttp = {{ expect = [\"{codes}\", \"300-310,305-320\"] }}\n\
         [restart]\nbackoff = {{ initial = \"1h\", max = \"1h\" }}\ngive_up = {{ max_restarts = 10000 }}\n\
         [startup]\ninterval = \"1d\"\ninitial_delay = \"1d\"\nfailure_threshold = 1000000\n\
         [placement]\nhosts = \"n[1-8000],m[1-8000],x[1-384]\"\n"
    );
    let profile = profile(&lines);
    let json = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile);
}

#[test]
fn json_nested_beyond_any_profile_is_refused() {
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = serde_json::Value::Array(vec![deep]);
    }
    let errors = Profile::from_json(&deep).unwrap_err();
    assert!(errors.to_string().contains("nested too deeply"));
    let text = format!("{}1", "[".repeat(100_000));
    assert!(Profile::from_json_text(&text).is_err());
}

#[test]
fn a_stored_profile_is_read_whatever_the_prefix_is_now() {
    let other = format!("{LEAST}env = {{ PORTREEVE_A = \"1\" }}");
    let profile = Profile::from_toml_with(&other, "XCE_").unwrap().profile;
    let json = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        let _ = Profile::from_toml(&text);
        let _ = Profile::from_json_text(&text);
    }

    #[test]
    fn no_mutation_of_a_profile_makes_the_reader_panic(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..8, "[\\[\\]{}=\"'.,#\n\\\\$a0-]{0,4}"), 1..6)
    ) {
        let mut text = SAMPLE.to_owned();
        for (at, length, new) in cuts {
            let floor = |at: usize| (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let start = floor(at.index(text.len() + 1));
            let end = floor((start + length).min(text.len())).max(start);
            text.replace_range(start..end, &new);
        }
        match Profile::from_toml(&text) {
            Ok(checked) => {
                let json = serde_json::to_string(&checked.profile).unwrap();
                prop_assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), checked.profile);
            }
            Err(errors) => {
                let lines = u32::try_from(text.lines().count()).unwrap() + 1;
                for error in errors.as_slice() {
                    prop_assert!(!error.problem.is_empty());
                    prop_assert!(error.place.is_some_and(|place| place.line <= lines));
                }
                prop_assert!(!errors.as_slice().is_empty());
            }
        }
    }

    #[test]
    fn timings_in_bounds_read_back_equal(
        initial in 100u64..3_600_000, jitter in 0u32..=1000, restarts in 0u32..200,
        interval in 100u64..100_000, threshold in 1u32..1000, within in 1_000u64..86_400_000,
    ) {
        let lines = format!(
            "{LEAST}[restart]\nbackoff = {{ initial = \"{initial}ms\", jitter = {:.3} }}\ngive_up = {{ max_restarts = {restarts} }}\n\
             [startup]\ncommand = [\"true\"]\ninterval = \"{interval}ms\"\nwithin = \"{within}ms\"\n\
             [liveness]\ncommand = [\"true\"]\nfailure_threshold = {threshold}\n",
            f64::from(jitter) / 1000.0
        );
        let profile = Profile::from_toml(&lines).unwrap().profile;
        let json = serde_json::to_string(&profile).unwrap();
        prop_assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile);
    }
}
