//! What a job sees: exactly the documented variables, by one rule.

use std::collections::BTreeMap;

use crate::world::{USUAL, World, eventually, hello};

/// The variables of ours that a run of `service` printed.
fn printed(world: &World, service: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let met = eventually(|| {
        let text = world.ok(&["logs", service]);
        let lines = text.lines().filter_map(|line| line.split_once('='));
        variables = lines
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        variables.contains_key("END")
    });
    assert!(met, "{service} printed no environment");
    variables
}

#[test]
fn a_job_sees_exactly_the_documented_variables() {
    // P27, P41
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "rocket.toml",
        "kind = \"service\"\nname = \"rocket\"\ncommand = \"env; echo END=1; exec sleep 1000000\"\n\
         env = { OWN = \"a ${port.http} b\", ADDRESS = \"${addr.http}\" }\n\
         [ports]\nhttp = \"any\"\nhost-server-service = \"any\"\n\
         workers = { any = 4, publish = false }\nalias = { any = 1, env = \"ROCKET_PORT\" }\n\
         [liveness]\ncommand = [\"true\"]\ninterval = \"1m\"\n[startup]\ncommand = [\"true\"]\n[readiness]\ncommand = [\"true\"]\n",
    );
    let _dev = world.dev(&[&profile]);
    let variables = printed(&world, "rocket");
    let replica = world.replica("rocket", 0);
    let first = |name: &str| {
        let numbers = &replica["ports"][name];
        let first = numbers.as_u64().or(numbers["first"].as_u64());
        first.map(|number| number.to_string()).unwrap()
    };
    let last = |name: &str| replica["ports"][name]["last"].as_u64().unwrap().to_string();
    let expect = |name: &str, value: String| {
        assert_eq!(
            variables.get(name),
            Some(&value),
            "{name} in {variables:#?}"
        );
    };
    let http = first("http");
    expect("PORTREEVE_PORT_HTTP", http.clone());
    expect("PORTREEVE_ADDR_HTTP", format!("127.0.0.1:{http}"));
    expect(
        "PORTREEVE_PORT_HOST_SERVER_SERVICE",
        first("host-server-service"),
    );
    expect("PORTREEVE_PORT_WORKERS", first("workers"));
    expect("PORTREEVE_PORT_WORKERS_LAST", last("workers"));
    expect("PORTREEVE_PORT_WORKERS_COUNT", "4".to_owned());
    expect("ROCKET_PORT", first("alias"));
    expect(
        "PORTREEVE_HOST",
        replica["host"].as_str().unwrap().to_owned(),
    );
    expect("PORTREEVE_HOST_ADDR", "127.0.0.1".to_owned());
    expect("PORTREEVE_SERVICE", "rocket".to_owned());
    expect("PORTREEVE_REPLICA", "0".to_owned());
    expect("PORTREEVE_INCARNATION", replica["incarnation"].to_string());
    expect("PORTREEVE_RUN", "1".to_owned());
    expect("OWN", format!("a {http} b"));
    expect("ADDRESS", format!("127.0.0.1:{http}"));
    assert!(variables.contains_key("PORTREEVE_NAMESPACE"));
    assert!(variables.contains_key("PORTREEVE_CONTROLLER"));
    let scratch = std::path::Path::new(&variables["PORTREEVE_SCRATCH"]);
    assert!(scratch.is_dir(), "{}", scratch.display());
    assert_eq!(
        std::fs::read_dir(scratch).unwrap().count(),
        0,
        "scratch is not empty"
    );
    let token = std::fs::metadata(&variables["PORTREEVE_TOKEN_FILE"]).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&token.permissions()) & 0o777,
        0o600
    );
    // Nothing is derived from a service's or a port's name without the prefix, and PORT needs a single port.
    let derived: Vec<_> = variables
        .keys()
        .filter(|name| name.starts_with("ROCKET_") && *name != "ROCKET_PORT")
        .collect();
    assert_eq!(derived, Vec::<&String>::new());
    assert!(!variables.contains_key("PORT"));
}

#[test]
fn a_single_port_is_also_called_port() {
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "one.toml",
        "kind = \"service\"\nname = \"one\"\ncommand = \"env; echo END=1; exec sleep 1000000\"\n[ports]\nhttp = \"any\"\n",
    );
    let _dev = world.dev(&[&profile]);
    let variables = printed(&world, "one");
    assert_eq!(variables["PORT"], variables["PORTREEVE_PORT_HTTP"]);
}

#[test]
fn a_job_speaks_for_its_owner_with_its_token() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let asker = world.profile(
        "asker.toml",
        "kind = \"service\"\nname = \"asker\"\n\
         command = \"portreeve wait hello --timeout 30s && portreeve endpoints hello && \
         portreeve --controller http://127.0.0.1:7373 --token-file $PORTREEVE_TOKEN_FILE whoami; echo END=$?; exec sleep 1000000\"\n",
    );
    let _dev = world.dev(&[&profile, &asker]);
    let met = eventually(|| world.ok(&["logs", "asker"]).contains("END="));
    let log = world.ok(&["logs", "asker"]);
    assert!(
        met && log.contains("END=0"),
        "{log}\n{}",
        world.ok(&["logs", "asker", "--stderr"])
    );
    assert!(
        log.contains(world.ok(&["endpoints", "hello"]).trim()),
        "{log}"
    );
    assert!(log.contains("token"), "{log}");
}
