//! Profiles in layers: what stands over what, where each value comes from, and what is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::tests::LEAST;
use super::*;
use crate::identity::Label;
use crate::port::Port;
use crate::supervision::{RestartPolicy, Then, Window};
use std::time::Duration;

type Site = BTreeMap<Label, String>;

fn site(files: &[(&str, &str)]) -> Site {
    let file = |(name, text): &(&str, &str)| (name.parse().unwrap(), (*text).to_owned());
    files.iter().map(file).collect()
}

fn read(text: &str, flags: &[&str], site: &Site) -> Result<Checked, ProfileErrors> {
    let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
    let body = Body::Toml(text.as_bytes());
    Profile::from_layers(
        Written {
            body,
            flags: &flags,
        },
        site,
    )
}

/// The least profile with these lines over one profile of the site.
fn over(lower: &str, upper: &str) -> Checked {
    let site = site(&[("base", lower)]);
    let text = format!("{LEAST}extends = \"site/base\"\n{upper}");
    read(&text, &[], &site).unwrap_or_else(|errors| panic!("{errors}"))
}

fn told(errors: &ProfileErrors) -> String {
    errors.in_file("web.toml").to_string()
}

fn layer(checked: &Checked, field: &str) -> String {
    let found = checked.values.iter().find(|value| value.field == field);
    let found = found.unwrap_or_else(|| panic!("no {field} in {:#?}", checked.values));
    found.layer.to_string()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn each_field_comes_from_the_highest_layer_that_writes_it() {
    let site = site(&[
        (
            "gpu-service",
            "extends = \"site/any-service\"\nlabels = { gpu = \"yes\", floor = \"2\" }\n[restart]\npolicy = \"on-failure\"\nbackoff = { initial = \"10s\", max = \"300s\" }\n[stop]\ngrace = \"1m\"\n",
        ),
        (
            "any-service",
            "logs = [\"group:staff\"]\nlabels = { floor = \"1\", site = \"north\" }\n[stop]\ndrain = \"5s\"\ngrace = \"20s\"\n",
        ),
    ]);
    let text = format!(
        "{LEAST}extends = \"site/gpu-service\"\nlabels = {{ gpu = \"h100\" }}\n[restart]\nbackoff = {{ initial = \"5s\" }}\n"
    );
    let checked = read(&text, &["stop.drain=1s", "replicas=3"], &site).unwrap();
    let profile = &checked.profile;
    assert_eq!(profile.replicas, Replicas::Count(3));
    assert_eq!(profile.supervision.restart, RestartPolicy::OnFailure);
    assert_eq!(profile.supervision.backoff.initial, secs(5));
    assert_eq!(profile.supervision.backoff.max, secs(300));
    assert_eq!(profile.supervision.stop.drain, secs(1));
    assert_eq!(profile.supervision.stop.grace, secs(60));
    let labels = profile
        .labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    assert_eq!(
        labels.collect::<Vec<_>>(),
        ["floor=2", "gpu=h100", "site=north"]
    );
    for (field, from) in [
        ("name", "profile"),
        ("replicas", "flag"),
        ("kind", "default"),
        ("command", "profile"),
        ("labels.gpu", "profile"),
        ("labels.floor", "site/gpu-service"),
        ("labels.site", "site/any-service"),
        ("logs", "site/any-service"),
        ("restart.policy", "site/gpu-service"),
        ("restart.backoff.initial", "profile"),
        ("restart.backoff.max", "site/gpu-service"),
        ("restart.backoff.jitter", "default"),
        ("stop.drain", "flag"),
        ("stop.grace", "site/gpu-service"),
        ("stop.unkillable_after", "default"),
    ] {
        assert_eq!(layer(&checked, field), from, "{field}");
    }
    for value in &checked.values {
        let json = serde_json::to_value(value).unwrap();
        assert_eq!(
            &serde_json::from_value::<EffectiveValue>(json).unwrap(),
            value
        );
    }
    let names: Vec<_> = checked.extends.iter().map(Label::as_str).collect();
    assert_eq!(names, ["gpu-service", "any-service"]);
}

#[test]
fn the_effective_profile_stands_alone_and_reads_back_equal() {
    let checked = over(
        "[restart]\nbackoff = { initial = \"10s\", max = \"300s\" }\n[ports]\nhttp = { any = 2, publish = false }\n",
        "[ports]\nhttp = 9100\n",
    );
    let json = serde_json::to_string(&checked.profile).unwrap();
    assert!(!json.contains("extends"));
    assert_eq!(
        serde_json::from_str::<Profile>(&json).unwrap(),
        checked.profile
    );
}

#[test]
fn every_value_of_the_effective_profile_is_told_once_with_its_layer() {
    let checked = Profile::from_toml(&format!(
        "{LEAST}env = {{ \"A\" = \"1\" }}\n[ports]\nhttp = \"any\"\nadmin = 9100\n[startup]\nwithin = \"1m\"\n"
    ))
    .unwrap();
    let value = |field: &str| {
        let found = checked
            .values
            .iter()
            .find(|value| value.field == field)
            .unwrap();
        (found.value.clone(), found.layer.to_string())
    };
    assert_eq!(value("env.A"), ("1".into(), "profile".into()));
    assert_eq!(value("ports.http.any"), (1.into(), "profile".into()));
    assert_eq!(
        value("ports.http.protocol"),
        ("tcp".into(), "default".into())
    );
    assert_eq!(value("ports.admin.fixed"), (9100.into(), "profile".into()));
    // Said as `within`.
    assert_eq!(
        value("startup.failure_threshold"),
        (7.into(), "profile".into())
    );
    assert_eq!(value("startup.listening"), (true.into(), "default".into()));
    assert_eq!(
        value("readiness.listening"),
        (true.into(), "default".into())
    );
    assert_eq!(
        value("restart.success_exit"),
        (serde_json::json!([0]), "default".into())
    );
    let mut fields: Vec<_> = checked.values.iter().map(|value| &value.field).collect();
    let count = fields.len();
    fields.sort_unstable();
    fields.dedup();
    assert_eq!(fields.len(), count);
}

#[test]
fn lists_replace_and_named_things_merge_by_name() {
    let checked = over(
        "env = { A = \"1\", B = \"1\" }\nenv_secret = [\"X\", \"Y\"]\npre_exec = [\"stage\", \"all\"]\n[ports]\nhttp = \"any\"\nadmin = 9100\n[restart]\nsuccess_exit = [0, 3]\n",
        "env = { B = \"2\", C = \"2\" }\nenv_secret = [\"Z\"]\npre_exec = \"true\"\n[ports]\nmetrics = 9101\n[restart]\nsuccess_exit = [4]\n",
    );
    let profile = &checked.profile;
    let env: Vec<_> = profile
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(env, ["A=1", "B=2", "C=2"]);
    assert_eq!(profile.env_secret, ["Z"]);
    assert!(matches!(profile.pre_exec, Some(Command::Shell(_))));
    let ports: Vec<_> = profile
        .ports
        .iter()
        .map(|port| port.name.as_str())
        .collect();
    assert_eq!(ports, ["http", "admin", "metrics"]);
    assert_eq!(profile.supervision.success_exit.len(), 1);
    assert_eq!(layer(&checked, "env.A"), "site/base");
    assert_eq!(layer(&checked, "ports.admin.fixed"), "site/base");
}

#[test]
fn a_port_keeps_what_the_upper_layer_does_not_say_and_asks_for_one_number() {
    let lower = "[ports]\nhttp = { any = 4, range = \"20000-20999\", publish = false, app_protocol = \"http\" }\n";
    let port = |upper: &str| over(lower, upper).profile.ports[0].clone();
    let fixed = port("[ports]\nhttp = 9100\n");
    assert_eq!(fixed.want, Want::Fixed(Port::new(9100).unwrap()));
    assert_eq!((fixed.within, fixed.publish), (None, false));
    let block = port("[ports.http]\nany = 2\npublish = true\n");
    assert!(block.publish && block.within.is_some());
    assert_eq!(block.app_protocol.as_deref(), Some("http"));
    let narrowed = port("[ports.http]\nrange = \"20000-20099\"\n");
    assert_eq!(
        narrowed.want,
        Want::Any {
            count: 4.try_into().unwrap()
        }
    );
    let any = over("[ports]\nhttp = 9100\n", "[ports]\nhttp = \"any\"\n")
        .profile
        .ports[0]
        .clone();
    assert!(matches!(any.want, Want::Any { .. }));
}

#[test]
fn the_form_of_a_probe_replaces_the_one_below_and_its_timing_stays() {
    let lower = "[ports]\nhttp = \"any\"\n[liveness]\nhttp = { path = \"/live\", require_body = \"ok\" }\ninterval = \"30s\"\nfailure_threshold = 5\n";
    let liveness = |upper: &str| {
        let profile = over(lower, upper).profile;
        (
            profile.liveness.unwrap(),
            profile.supervision.liveness.clone().unwrap(),
        )
    };
    let (form, timing) = liveness("[liveness]\ncommand = [\"true\"]\ntimeout = \"2s\"\n");
    assert!(matches!(form, Probe::Command(_)));
    assert_eq!(
        (timing.interval, timing.timeout, timing.failure_threshold),
        (secs(30), secs(2), 5)
    );
    // Also by the same form: half of another's check would be no check that anybody wrote.
    let (form, _) = liveness("[liveness]\nhttp = { path = \"/health\" }\n");
    let Probe::Http(http) = form else {
        panic!("{form:?}");
    };
    assert_eq!(
        (http.path.to_string(), http.require_body),
        ("/health".to_owned(), None)
    );
    let (form, timing) = liveness("[liveness]\ninterval = \"5s\"\n");
    assert!(matches!(form, Probe::Http(_)));
    assert_eq!(timing.interval, secs(5));
}

#[test]
fn what_excludes_the_lower_layers_words_takes_their_place() {
    let within = "[startup]\ncommand = [\"true\"]\nwithin = \"1m\"\n";
    let counted = over(within, "[startup]\nfailure_threshold = 4\n").profile;
    assert_eq!(
        counted
            .supervision
            .startup
            .clone()
            .unwrap()
            .failure_threshold,
        4
    );
    let counted = "[startup]\ncommand = [\"true\"]\nfailure_threshold = 4\n";
    let within = over(counted, "[startup]\nwithin = \"1m\"\n").profile;
    assert_eq!(
        within
            .supervision
            .startup
            .clone()
            .unwrap()
            .failure_threshold,
        7
    );
    let requeue = "[restart]\ngive_up = { max_restarts = 4, then = \"requeue\", rest = \"5m\", window = \"lifetime\" }\n";
    let exit = over(requeue, "[restart]\ngive_up = { then = \"exit\" }\n").profile;
    let rule = exit.supervision.give_up.clone().unwrap();
    assert_eq!(
        (rule.max_restarts, rule.window, rule.then),
        (4, Window::Lifetime, Then::Exit)
    );
    let never = over(requeue, "[restart]\ngive_up = \"never\"\n").profile;
    assert_eq!(never.supervision.give_up, None);
    let again = over(
        "[restart]\ngive_up = \"never\"\n",
        "[restart]\ngive_up = { max_restarts = 2 }\n",
    );
    assert_eq!(
        again
            .profile
            .supervision
            .give_up
            .clone()
            .unwrap()
            .max_restarts,
        2
    );
    // The site says how long to rest, and the profile that it is requeued at all.
    let rest = over(
        "[restart]\ngive_up = { rest = \"5m\" }\n",
        "[restart]\ngive_up = { then = \"requeue\" }\n",
    );
    let then = rest.profile.supervision.give_up.clone().unwrap().then;
    assert!(matches!(then, Then::Requeue { rest, .. } if rest == secs(300)));
}

#[test]
fn a_flag_is_read_as_toml_or_else_as_a_text() {
    let none = Site::new();
    let flags = [
        "name=db",
        "min_up=5s",
        "restart.give_up.max_restarts=2",
        "restart.give_up.max_restarts=3",
        "logs=[\"user:bob\"]",
        "env.A=say \"hi\"\\there",
    ];
    let checked = read(LEAST, &flags, &none).unwrap();
    let profile = &checked.profile;
    assert_eq!(profile.name.as_str(), "db");
    assert_eq!(profile.supervision.min_up, secs(5));
    assert_eq!(
        profile.supervision.give_up.as_ref().unwrap().max_restarts,
        3
    );
    assert_eq!(profile.env["A"].to_string(), "say \"hi\"\\there");
    assert_eq!(profile.logs.len(), 1);
    assert_eq!(layer(&checked, "name"), "flag");
    let errors = read(
        LEAST,
        &["replicas=-1", "restart.polcy=never", "nothing", "=x"],
        &none,
    )
    .unwrap_err();
    assert_eq!(
        told(&errors),
        "--set replicas: replicas: -1 is out of bounds; write a whole number from 0 to 100000, or \"per-host\"\n\
         --set restart.polcy: restart.polcy: unknown key (did you mean \"policy\"?); known here: policy, backoff, give_up, success_exit, no_restart_exit\n\
         --set nothing: \"nothing\" sets no field; write FIELD=VALUE, such as restart.policy=never\n\
         --set : \"=x\" sets no field; write FIELD=VALUE, such as restart.policy=never"
    );
}

#[test]
fn everything_wrong_in_every_layer_is_told_at_once_with_its_layer_and_place() {
    let site = site(&[
        (
            "near",
            "extends = \"site/far\"\n[restart]\npolicy = \"alway\"\n[stop\n",
        ),
        (
            "far",
            "replicas = 0\nlabls = {}\n[liveness]\nhttp = { port = \"web\" }\ntimeout = 5\n",
        ),
    ]);
    let text =
        "name = \"web\"\nextends = \"site/near\"\nreplicas = \"many\"\n[ports]\nhttp = \"any\"\n";
    let errors = read(text, &["min_up=2h"], &site).unwrap_err();
    assert_eq!(
        told(&errors),
        "web.toml:1:1: command: what to run is not said; write command = [\"PROGRAM\", …]\n\
         web.toml:3:12: replicas: \"many\" is no number of replicas; write a whole number from 0 to 100000, or \"per-host\"\n\
         --set min_up: min_up: 2h is out of bounds; write a time with its unit, such as \"10s\", from \"0s\" to \"1h\"\n\
         site/near:3:10: restart.policy: \"alway\" is not known, did you mean \"always\"?; write \"always\", \"on-failure\" or \"never\"\n\
         site/near:4:6: broken TOML: unclosed table; expected `]`\n\
         site/far:2:1: labls: unknown key (did you mean \"labels\"?); known here: kind, name, namespace, replicas, command, pre_exec, working_dir, env, env_file, env_secret, labels, visibility, logs, rerunnable, on_cut_off, min_up, ports, restart, startup, liveness, readiness, stop, placement, extends\n\
         site/far:4:17: liveness.http.port: no port is called \"web\"; the profile's ports: http\n\
         site/far:5:11: liveness.timeout: 5 has no unit; write a time with its unit, such as \"10s\", from \"10ms\" to \"1h\""
    );
    let json = serde_json::to_value(&errors).unwrap();
    assert_eq!(json["errors"][3]["layer"], "site/near");
    assert_eq!(json["errors"][3]["line"], 3);
    assert_eq!(json["errors"][1].get("layer"), None);
}

#[test]
fn a_wrong_value_below_is_told_even_where_a_layer_hides_it() {
    let site = site(&[("base", "replicas = \"many\"\n")]);
    let errors = read(
        &format!("{LEAST}extends = \"site/base\"\nreplicas = 2\n"),
        &[],
        &site,
    );
    assert!(told(&errors.unwrap_err()).starts_with("site/base:1:12: replicas: \"many\""));
}

#[test]
fn an_extends_that_leads_nowhere_is_refused_with_what_would() {
    let known = site(&[("gpu", ""), ("cpu", "")]);
    let refused = |extends: &str| {
        told(&read(&format!("{LEAST}extends = {extends}\n"), &[], &known).unwrap_err())
    };
    for (extends, words) in [
        (
            "\"site/gqu\"",
            "web.toml:3:11: extends: the site has no profile site/gqu, did you mean \"site/gpu\"?; known here: site/cpu, site/gpu",
        ),
        (
            "\"gpu\"",
            "web.toml:3:11: extends: \"gpu\" is not known, did you mean \"site/gpu\"?; write the name of a profile of the site, such as \"site/gpu-service\"",
        ),
        (
            "\"site/../gpu\"",
            "web.toml:3:11: extends: \"site/../gpu\" names no profile of the site; write the name of a profile of the site, such as \"site/gpu-service\"",
        ),
        (
            "[\"site/gpu\"]",
            "web.toml:3:11: extends: a list does not stand here; write the name of a profile of the site, such as \"site/gpu-service\"",
        ),
    ] {
        assert_eq!(refused(extends), words);
    }
    let errors = read("name = \"web\"\nextends = \"site/x\"\n", &[], &Site::new()).unwrap_err();
    // The command may stand in what is not there.
    assert_eq!(
        told(&errors),
        "web.toml:2:11: extends: the site has no profile site/x; no profile of the site is known here"
    );
    let errors = Profile::from_toml(&format!("{LEAST}extends = \"site/gpu\"\n")).unwrap_err();
    assert!(told(&errors).contains("the site has no profile site/gpu"));
}

#[test]
fn eight_layers_are_read_and_a_ninth_or_a_circle_is_refused() {
    let mut files = Vec::new();
    for nth in 1..=9 {
        let mut text = format!("labels = {{ l{nth} = \"x\" }}\n");
        if nth < 9 {
            let _ = writeln!(text, "extends = \"site/l{}\"", nth + 1);
        }
        files.push((format!("l{nth}"), text));
    }
    let files: Vec<_> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let chain = site(&files);
    let text = |from: u32| format!("{LEAST}extends = \"site/l{from}\"\n");
    let checked = read(&text(2), &[], &chain).unwrap();
    assert_eq!(
        (checked.profile.labels.len(), checked.extends.len()),
        (8, 8)
    );
    let errors = read(&text(1), &[], &chain).unwrap_err();
    assert_eq!(
        told(&errors),
        "site/l8:2:11: extends: site/l9 would be layer 9 of the site; stand on at most 8"
    );
    let circle = site(&[("a", "extends = \"site/b\""), ("b", "extends = \"site/a\"")]);
    let errors = read(&format!("{LEAST}extends = \"site/a\"\n"), &[], &circle).unwrap_err();
    assert_eq!(
        told(&errors),
        "site/b:1:11: extends: the chain comes back to itself: site/a -> site/b -> site/a; extend a profile that does not extend this one"
    );
}

#[test]
fn a_rule_over_several_fields_is_asked_of_the_whole() {
    // Alone it would be unreachable; over the site's waits it is not.
    over(
        "[restart]\nbackoff = { max = \"2s\" }\n",
        "[restart]\ngive_up = { max_restarts = 20, window = \"1m\" }\n",
    );
    let site = site(&[(
        "slow",
        "[restart]\nbackoff = { initial = \"10s\", max = \"10s\" }\ngive_up = { max_restarts = 5, window = \"40s\" }\n",
    )]);
    let errors = read(&format!("{LEAST}extends = \"site/slow\"\n"), &[], &site).unwrap_err();
    assert!(
        told(&errors).starts_with(
            "site/slow:3:40: restart.give_up.window: 5 restarts in 40s can never happen"
        ),
        "{errors}"
    );
    // A profile above may mend it.
    read(
        &format!("{LEAST}extends = \"site/slow\"\n"),
        &["restart.backoff.initial=1s"],
        &site,
    )
    .unwrap();
}

#[test]
fn a_profile_of_the_site_is_checked_without_what_others_add() {
    let site = site(&[
        (
            "part",
            "extends = \"site/good\"\n[readiness]\nhttp = { port = \"http\" }\n[restart]\ngive_up = { rest = \"5m\" }\n",
        ),
        ("good", "[stop]\ngrace = \"1m\"\n"),
        ("bad", "extends = \"site/gone\"\nreplicas = \"x\"\n"),
    ]);
    let name = |name: &str| name.parse::<Label>().unwrap();
    assert_eq!(check_site_profile(&name("part"), &site), Ok(()));
    let errors = check_site_profile(&name("bad"), &site).unwrap_err();
    let told = errors.to_string();
    assert!(
        told.contains("site/bad:1:11: extends: the site has no profile site/gone"),
        "{told}"
    );
    assert!(told.contains("site/bad:2:12: replicas: \"x\""), "{told}");
}

#[test]
fn a_profile_in_json_stands_on_the_site_too() {
    let site = site(&[("base", "replicas = 4\n[stop]\ngrace = 5\n")]);
    let json = br#"{"name": "web", "command": ["serve"], "extends": "site/base", "replicas": 2}"#;
    let flags = &[];
    let body = Body::Json(json);
    let errors = Profile::from_layers(Written { body, flags }, &site).unwrap_err();
    assert_eq!(
        told(&errors),
        "site/base:3:9: stop.grace: 5 has no unit; write a time with its unit, such as \"10s\", from \"0s\" to \"24h\""
    );
    let site = BTreeMap::from([(
        "base".parse().unwrap(),
        "replicas = 4\n[stop]\ngrace = \"5s\"\n".to_owned(),
    )]);
    let checked = Profile::from_layers(Written { body, flags }, &site).unwrap();
    assert_eq!(checked.profile.replicas, Replicas::Count(2));
    assert_eq!(
        (layer(&checked, "replicas"), layer(&checked, "stop.grace")),
        ("profile".into(), "site/base".into())
    );
}

/// Fields of each kind of table, each with two values that stand beside any of the others.
const FIELDS: [(&str, [&str; 2]); 14] = [
    ("replicas", ["2", "\"per-host\""]),
    ("visibility", ["\"cluster\"", "[\"user:bob\"]"]),
    ("env.A", ["\"1\"", "\"2\""]),
    ("labels.a", ["\"1\"", "\"2\""]),
    ("min_up", ["\"2s\"", "\"3s\""]),
    ("ports.http.publish", ["true", "false"]),
    ("restart.policy", ["\"never\"", "\"always\""]),
    ("restart.backoff.initial", ["\"2s\"", "\"3s\""]),
    ("restart.give_up.max_restarts", ["3", "4"]),
    ("restart.success_exit", ["[0, 3]", "[1]"]),
    ("readiness.interval", ["\"7s\"", "\"9s\""]),
    ("liveness.failure_threshold", ["5", "6"]),
    ("stop.grace", ["\"20s\"", "\"30s\""]),
    ("placement.exclude", ["[\"n2\"]", "[\"n3\", \"n4\"]"]),
];

/// Which value a layer writes of each field, if any.
fn layer_of_fields() -> impl Strategy<Value = Vec<Option<usize>>> {
    proptest::collection::vec(proptest::option::of(0..2_usize), FIELDS.len())
}

fn lines(written: &[Option<usize>]) -> Vec<String> {
    let written = FIELDS.iter().zip(written);
    written
        .filter_map(|((field, values), nth)| Some(format!("{field} = {}\n", values[(*nth)?])))
        .collect()
}

proptest! {
    #[test]
    fn the_highest_layer_that_writes_a_field_is_the_one_in_force(
        layers in proptest::collection::vec(layer_of_fields(), 4),
    ) {
        let [far, near, profile, flags] = layers.as_slice() else { unreachable!() };
        let least = "name = \"web\"\ncommand = [\"serve\"]\nports.http.any = 1\nliveness.http = {}\n";
        let site = BTreeMap::from([
            ("far".parse().unwrap(), lines(far).concat()),
            ("near".parse().unwrap(), format!("extends = \"site/far\"\n{}", lines(near).concat())),
        ]);
        let text = format!("{least}extends = \"site/near\"\n{}", lines(profile).concat());
        let flags_text = lines(flags);
        let flags_text: Vec<&str> = flags_text.iter().map(|line| line.trim_end()).collect();
        let flags_text: Vec<String> = flags_text.iter().map(|line| line.replacen(" = ", "=", 1)).collect();
        let flags_text: Vec<&str> = flags_text.iter().map(String::as_str).collect();
        let checked = read(&text, &flags_text, &site).unwrap_or_else(|errors| panic!("{errors}"));
        let names = ["flag", "profile", "site/near", "site/far"];
        for (nth, (field, values)) in FIELDS.iter().enumerate() {
            let found = checked.values.iter().find(|value| value.field == *field);
            let highest = [flags, profile, near, far].into_iter().zip(names);
            let highest = highest.filter_map(|(layer, name)| Some((layer[nth]?, name))).next();
            match (highest, found) {
                (Some((value, name)), Some(found)) => {
                    prop_assert_eq!(found.layer.to_string(), name);
                    let value: serde_json::Value = serde_json::from_str(values[value]).unwrap();
                    let said = match &found.value {
                        // Written out as a list of one.
                        serde_json::Value::Array(items) if items.len() == 1 && !value.is_array() => &items[0],
                        // Hosts are folded.
                        other => other,
                    };
                    let folded = field.starts_with("placement") && value.as_array().is_some_and(|it| it.len() == 2);
                    prop_assert!(folded || *said == value, "{}: {} is not {}", field, said, value);
                }
                (Some(_), None) => prop_assert!(false, "{} is not told", field),
                (None, Some(found)) => prop_assert_eq!(&found.layer, &Layer::Default),
                (None, None) => {}
            }
        }
    }

    #[test]
    fn no_text_in_any_layer_makes_the_reader_panic(
        upper in "\\PC{0,120}", lower in "\\PC{0,120}", flag in "\\PC{0,40}", cut in 0usize..200,
    ) {
        let site = site(&[("base", &format!("{lower}\n[ports]\nhttp = \"any\"\n"))]);
        let whole = format!("{LEAST}extends = \"site/base\"\n[restart]\nbackoff = {{ initial = \"5s\" }}\n{upper}");
        let cut = (0..=cut.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap();
        for text in [&whole[..], &whole[..cut]] {
            if let Err(errors) = read(text, &[&flag, "replicas=2"], &site) {
                prop_assert!(!errors.to_string().is_empty());
            }
        }
    }
}
