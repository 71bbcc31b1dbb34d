use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::port::{PortRange, Protocol};
use crate::port_pool::GrantedPort;
use crate::profile::Template;

fn grant(ports: &[(&str, u16, u16)]) -> PortGrant {
    let port = |(name, first, last): &(&str, u16, u16)| GrantedPort {
        name: name.parse().unwrap(),
        protocol: Protocol::Tcp,
        numbers: PortRange::new(Port::new(*first).unwrap(), Port::new(*last).unwrap()).unwrap(),
    };
    PortGrant {
        ports: ports.iter().map(port).collect(),
    }
}

/// The variables of the service `web.alice` with these ports, by a profile with these further lines.
fn seen(ports: &[(&str, u16, u16)], address: &str, profile: &str) -> Vec<(String, String)> {
    let text = format!("name = \"web\"\ncommand = [\"true\"]\n{profile}");
    let profile = Profile::from_toml(&text).unwrap().profile;
    let grant = grant(ports);
    with_setting(&grant, address, |setting| environment(&profile, setting))
}

fn with_setting<T>(grant: &PortGrant, address: &str, run: impl FnOnce(&Setting<'_>) -> T) -> T {
    run(&Setting {
        prefix: PREFIX,
        service: &"web.alice".parse().unwrap(),
        index: 1,
        incarnation: Incarnation(2),
        run: Run(3),
        host: &"n1".parse().unwrap(),
        host_address: address.parse().unwrap(),
        port_addresses: &BTreeMap::new(),
        grant,
        scratch: "/s",
        controller: "http://c:7373",
        token_file: "/t",
    })
}

#[test]
fn a_port_with_an_address_of_its_own_is_told_with_it_and_the_others_with_the_hosts() {
    let grant = grant(&[("http", 20000, 20000), ("admin", 20001, 20001)]);
    let own = [("http".parse().unwrap(), "fd00:20::7".parse().unwrap())].into();
    with_setting(&grant, "10.1.0.17", |setting| {
        let setting = Setting {
            port_addresses: &own,
            ..*setting
        };
        let seen = variables(&setting, []);
        let value = |name: &str| {
            let found = seen.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("PORTREEVE_ADDR_HTTP"), Some("[fd00:20::7]:20000"));
        assert_eq!(value("PORTREEVE_ADDR_ADMIN"), Some("10.1.0.17:20001"));
        assert_eq!(value("PORTREEVE_HOST_ADDR"), Some("10.1.0.17"));
        let text = "name = \"web\"\ncommand = [\"x\", \"${addr.http} ${addr.admin} ${host.address}\"]\n[ports]\nhttp = \"any\"\nadmin = \"any\"";
        let profile = Profile::from_toml(text).unwrap().profile;
        let crate::profile::Command::Argv(argv) = &profile.command else {
            panic!("{:?}", profile.command)
        };
        let filled = fill(&argv[1], &setting, &|_| None).unwrap();
        assert_eq!(filled, "[fd00:20::7]:20000 10.1.0.17:20001 10.1.0.17");
    });
}

#[test]
fn the_job_sees_exactly_these_variables() {
    let ports = [("http-admin", 20000, 20000), ("rpc", 20004, 20007)];
    let declared = "[ports]\nhttp-admin = { any = 1, env = \"ADMIN\" }\nrpc = { any = 4 }";
    let seen = seen(&ports, "10.1.0.17", declared);
    let seen: Vec<_> = seen.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        seen,
        [
            "PORTREEVE_PORT_HTTP_ADMIN=20000",
            "PORTREEVE_ADDR_HTTP_ADMIN=10.1.0.17:20000",
            "PORTREEVE_PORT_RPC=20004",
            "PORTREEVE_PORT_RPC_LAST=20007",
            "PORTREEVE_PORT_RPC_COUNT=4",
            "PORTREEVE_ADDR_RPC=10.1.0.17:20004",
            "PORTREEVE_HOST=n1",
            "PORTREEVE_HOST_ADDR=10.1.0.17",
            "PORTREEVE_SERVICE=web",
            "PORTREEVE_NAMESPACE=alice",
            "PORTREEVE_REPLICA=1",
            "PORTREEVE_INCARNATION=2",
            "PORTREEVE_RUN=3",
            "PORTREEVE_SCRATCH=/s",
            "PORTREEVE_CONTROLLER=http://c:7373",
            "PORTREEVE_TOKEN_FILE=/t",
            "ADMIN=20000",
        ]
    );
}

#[test]
fn an_ipv6_address_is_bracketed_before_a_port_only() {
    let seen = seen(
        &[("http", 20000, 20000)],
        "fd00::1",
        "[ports]\nhttp = \"any\"",
    );
    let value = |name: &str| {
        seen.iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    };
    assert_eq!(value("PORTREEVE_ADDR_HTTP"), Some("[fd00::1]:20000"));
    assert_eq!(value("PORTREEVE_HOST_ADDR"), Some("fd00::1"));
}

#[test]
fn port_is_set_for_exactly_one_port_unless_the_user_has_one() {
    let has = |ports: &[(&str, u16, u16)], profile: &str| {
        let seen = seen(ports, "10.1.0.17", profile);
        seen.iter().filter(|(name, _)| name == "PORT").count()
    };
    let one = [("http", 20000, 20000)];
    assert_eq!(has(&one, "[ports]\nhttp = \"any\""), 1);
    assert_eq!(
        has(&one, "env = { PORT = \"1\" }\n[ports]\nhttp = \"any\""),
        0
    );
    assert_eq!(
        has(&one, "env_secret = [\"PORT\"]\n[ports]\nhttp = \"any\""),
        0
    );
    // The alias is the variable.
    assert_eq!(has(&one, "[ports]\nhttp = { any = 1, env = \"PORT\" }"), 1);
    let two = [("a", 20000, 20000), ("b", 20001, 20001)];
    assert_eq!(has(&two, "[ports]\na = \"any\"\nb = \"any\""), 0);
    assert_eq!(has(&[], ""), 0);
}

#[test]
fn no_variable_is_derived_from_a_service_name() {
    // P27
    let seen = seen(
        &[("path", 20000, 20000)],
        "10.1.0.17",
        "[ports]\npath = \"any\"",
    );
    let foreign = seen.iter().filter(|(name, _)| !name.starts_with(PREFIX));
    let foreign: Vec<_> = foreign.map(|(name, _)| name.as_str()).collect();
    assert_eq!(foreign, ["PORT"]);
}

#[test]
fn a_template_is_filled_with_the_same_values() {
    let grant = grant(&[("http", 20000, 20000), ("rpc", 20004, 20007)]);
    let filled = |text: &str| {
        let template = Template::parse(text).unwrap();
        let env = |name: &str| (name == "TOKEN").then(|| "${port.http}".to_owned());
        with_setting(&grant, "fd00::1", |setting| fill(&template, setting, &env))
    };
    assert_eq!(filled("--port=${port.http}").unwrap(), "--port=20000");
    assert_eq!(
        filled("${addr.rpc} ${host.address}").unwrap(),
        "[fd00::1]:20004 fd00::1"
    );
    assert_eq!(
        filled("${service.name}-${replica.index}@${host.name}").unwrap(),
        "web-1@n1"
    );
    assert_eq!(filled("$$ $HOME").unwrap(), "$ $HOME");
    // A value is never read as a template again.
    assert_eq!(filled("${env.TOKEN}").unwrap(), "${port.http}");
    let missing = filled("${env.NONE}").unwrap_err().to_string();
    assert_eq!(
        missing,
        "${env.NONE} has no value: set NONE in env, env_file or env_secret"
    );
    assert!(matches!(
        filled("${port.other}"),
        Err(FillError::NoPort { .. })
    ));
}

proptest! {
    // P41, ports 21
    #[test]
    fn names_of_ports_map_to_variables_one_to_one_or_are_refused(
        names in prop::collection::vec("[a-cA-C_-]{0,3}(-last|-count|_LAST)?|[a-z0-9_.-]{1,34}", 1..8),
        blocks in prop::collection::vec(1u8..3, 8),
    ) {
        let mut text = "name = \"web\"\ncommand = [\"true\"]\n[ports]\n".to_owned();
        for (name, block) in names.iter().zip(&blocks) {
            text.push_str(&format!("\"{name}\" = {{ any = {block} }}\n"));
        }
        let distinct: BTreeSet<_> = names.iter().collect();
        let Ok(checked) = Profile::from_toml(&text) else {
            return Ok(());
        };
        prop_assert_eq!(distinct.len(), names.len());
        let mut next = 20000;
        let ports = checked.profile.ports.iter().map(|port| {
            let first = next;
            next += 10;
            (port.name.as_str(), first, first + checked_count(port) - 1)
        });
        let ports: Vec<_> = ports.collect();
        let grant = grant(&ports);
        let seen = with_setting(&grant, "10.1.0.17", |setting| environment(&checked.profile, setting));
        let names: BTreeSet<_> = seen.iter().map(|(name, _)| name.clone()).collect();
        prop_assert_eq!(names.len(), seen.len());
        for name in &names {
            let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            prop_assert!(name.bytes().all(plain), "{} is no shell variable", name);
        }
    }
}

fn checked_count(port: &crate::profile::DeclaredPort) -> u16 {
    port.wanted().count().get()
}
