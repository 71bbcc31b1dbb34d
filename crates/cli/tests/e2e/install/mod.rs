//! A cluster is installed by the steps of the page of operations, from the configuration files that are shipped.

mod machine;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::pages::blocks;
use crate::world::{Outcome, USUAL, eventually, hello};
use machine::{Machine, Machines, ROOT};

/// Does the blocks of the page in their order: those of the controller there, those of hosts on each, and those of a user
/// as one on the first host. Those between these two headings, the second not included.
fn play(machines: &Machines, from: &str, to: &str) {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/operations.md")).unwrap();
    let line_of = |heading: &str| {
        let found = page.lines().position(|line| line == heading);
        found.unwrap_or_else(|| panic!("no heading {heading:?}"))
    };
    let lines = line_of(from)..line_of(to);
    let mut done = 0;
    for block in blocks(&page) {
        if !block.is("sh") || !lines.contains(&block.line) || block.says("no-run") {
            continue;
        }
        let what = format!("# docs/operations.md:{}\n{}", block.line, block.text);
        if block.says("on-controller") {
            machines.ctl.ok(&what);
        } else if block.says("as-user") {
            machines.hosts[0].alice(&what);
        } else {
            assert!(block.says("on-host"), "{}: nobody does it", block.line);
            machines.hosts.iter().for_each(|host| {
                host.ok(&what);
            });
        }
        done += 1;
    }
    assert!(done > 0, "nothing to do between {from:?} and {to:?}");
}

/// What `portreeve ARGUMENTS -o json` prints there, as root.
fn json(machine: &Machine, arguments: &str) -> Value {
    let text = machine.ok(&format!("portreeve {arguments} -o json"));
    serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{cause}: {text}"))
}

/// The hosts that are up.
fn up(machines: &Machines) -> BTreeSet<String> {
    let list = json(&machines.ctl, "hosts");
    let hosts = list["hosts"].as_array().unwrap().iter();
    let up = hosts.filter(|host| host["state"] == "up");
    up.map(|host| host["host"].as_str().unwrap().to_owned())
        .collect()
}

/// Where the replicas of alice's `web` are, and by what each is known.
fn standing(machines: &Machines) -> Vec<[Value; 5]> {
    let service = json(&machines.ctl, "service web.alice");
    let replicas = service["replicas"].as_array().unwrap().iter();
    replicas
        .map(|it| ["host", "pid", "run", "incarnation", "ports"].map(|name| it[name].clone()))
        .collect()
}

fn alice_submits_web(machines: &Machines) {
    let profile = hello("web", 3, "", USUAL);
    let host = &machines.hosts[1];
    let file = host.place.join("home/web.toml");
    std::fs::write(file, profile).unwrap();
    host.alice("portreeve submit /home/web.toml && portreeve wait web --timeout 60s");
}

#[test]
fn three_hosts_and_a_controller_are_installed_by_the_page_and_stand_what_happens_to_them() {
    let Some(machines) = Machines::new(3) else {
        return;
    };
    play(&machines, "## Install on a cluster", "## Upgrade");
    play(&machines, "## What to watch", "## Every day");
    let Machines { ctl, hosts, .. } = &machines;
    let all: BTreeSet<String> = hosts.iter().map(|host| host.name.clone()).collect();
    assert_eq!(up(&machines), all);
    // Nobody on a host has a token, and each is who the kernel says; root of a host is nobody in particular.
    let who = hosts[2].alice("portreeve whoami");
    assert!(
        who.starts_with("alice (user, relayed by host n3, sees own, manages own"),
        "{who}"
    );
    let root = json(&hosts[2], "whoami");
    assert_eq!(
        (&root["admin"], &root["method"]),
        (&Value::from(false), &Value::from("agent"))
    );
    for (path, mode) in [("agent/host-token", "600"), ("agent", "711")] {
        let seen = hosts[0].ok(&format!("stat -c %a /var/lib/portreeve/{path}"));
        assert_eq!(seen.trim(), mode, "{path}");
    }

    // Three replicas on three hosts, as alice, answered over the bridge.
    alice_submits_web(&machines);
    let before = standing(&machines);
    let on: BTreeSet<_> = before
        .iter()
        .map(|it| it[0].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(on, all);
    for endpoint in hosts[0].alice("portreeve endpoints web").lines() {
        for client in hosts {
            let page = client.ok(&format!("curl -sS --fail --max-time 10 http://{endpoint}/"));
            assert!(!page.is_empty(), "{endpoint}");
        }
    }
    let pid = &before[0][1];
    let host = hosts
        .iter()
        .find(|host| before[0][0] == host.name)
        .expect("it is on one of them");
    let owner = host.ok(&format!("stat -c %u /proc/{pid}"));
    assert_eq!(owner.trim(), machine::ALICE.to_string());

    // A controller and an agent that are killed are taken up again, and nothing of a service is touched.
    ctl.ok("systemctl kill portreeve-controller");
    let away = hosts[0].as_alice("portreeve services");
    assert_eq!(away.code, Some(6), "{away:?}");
    assert!(
        away.stderr.contains("the agent of n1 asks for you"),
        "{away:?}"
    );
    ctl.ok("systemctl start portreeve-controller");
    hosts[0].ok("systemctl kill portreeve-agent");
    hosts[0].ok("systemctl start portreeve-agent");
    let back = || up(&machines) == all && standing(&machines) == before;
    assert!(
        eventually(back),
        "{before:?}, now {:?}",
        standing(&machines)
    );
    hosts[0].alice("portreeve wait web --timeout 60s");

    // A reload of both goes on.
    ctl.ok("systemctl reload portreeve-controller");
    hosts[1].ok("systemctl reload portreeve-agent");
    assert!(
        eventually(back),
        "{before:?}, now {:?}",
        standing(&machines)
    );

    a_host_that_is_removed_is_nobody(&machines);
}

/// Its token is worth nothing from then on, and nothing is left to join by.
fn a_host_that_is_removed_is_nobody(machines: &Machines) {
    let Machines { ctl, hosts, .. } = machines;
    let gone = &hosts[2];
    hosts[0].alice("portreeve stop web && portreeve wait web --gone && portreeve delete web");
    let empty = || json(ctl, "ports n3 --counts")["counts"]["held"] == 0;
    assert!(eventually(empty), "{}", ctl.ok("portreeve ports n3"));
    gone.ok("systemctl stop portreeve-agent");
    let removed = || ctl.run("portreeve host remove n3").code == Some(0);
    assert!(
        eventually(removed),
        "{:?}",
        ctl.run("portreeve host remove n3")
    );
    assert_eq!(up(machines).len(), 2);
    let asked = |host: &Machine, token: &str| {
        host.ok(&format!(
            "curl -sS --cacert /etc/portreeve/tls/ca.crt -o /dev/null -w '%{{http_code}}' \
             -H \"authorization: Bearer $(cat {token})\" https://ctl.cluster.example:7373/api/v1/whoami"
        ))
    };
    let own = "/var/lib/portreeve/agent/host-token";
    assert_eq!(asked(gone, own), "401");
    assert_eq!(asked(&hosts[0], own), "200");
    gone.ok("systemctl start portreeve-agent");
    let said = || {
        gone.logs()
            .contains("does not know the token of this host any more")
    };
    assert!(eventually(said), "{}", gone.logs());
    let nobody = gone.as_alice("portreeve services");
    assert_eq!(nobody.code, Some(6), "{nobody:?}");
    assert_eq!(up(machines).len(), 2);
    // By a new token it is a host again, without a restart.
    ctl.ok("portreeve token create --kind join --output-file /etc/portreeve/again");
    gone.ok("scp ctl.cluster.example:/etc/portreeve/again /etc/portreeve/join-token");
    assert!(eventually(|| up(machines).len() == 3), "{}", gone.logs());
    // That token did not come with a relay.
    let Outcome { code, stderr, .. } = gone.as_alice("portreeve services");
    assert_eq!(code, Some(5), "{stderr}");
}

#[test]
fn where_the_site_wants_certificates_only_who_has_one_is_heard_and_services_run_as_before() {
    let Some(machines) = Machines::new(2) else {
        return;
    };
    let Machines { ctl, hosts, .. } = &machines;
    play(
        &machines,
        "## Install on a cluster",
        "### 3. A token by which hosts join",
    );
    ctl.ok(
        "sed -i 's|^#tls_client_ca|tls_client_ca|' /etc/portreeve/controller.toml && systemctl restart portreeve-controller",
    );
    play(
        &machines,
        "### 3. A token by which hosts join",
        "### 4. Each host",
    );
    let without = hosts[0].run(
        "mkdir -p /etc/portreeve/tls && scp ctl:/etc/portreeve/tls/ca.crt /etc/portreeve/tls/ca.crt && \
         curl -sS --cacert /etc/portreeve/tls/ca.crt https://ctl.cluster.example:7373/healthz",
    );
    assert_ne!(without.code, Some(0), "{without:?}");
    let check = "portreeve agent --check --controller https://ctl.cluster.example:7373 --ca /etc/portreeve/tls/ca.crt \
                 --join-token-file /etc/portreeve/join-token";
    hosts[0].ok("scp ctl:/etc/portreeve/join-token /etc/portreeve/join-token && chmod 600 /etc/portreeve/join-token");
    let refused = hosts[0].run(check);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("--client-cert"), "{refused:?}");
    for host in hosts {
        let name = &host.name;
        ctl.ok(&format!(
            "cd /etc/portreeve/tls && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} \
             -keyout {name}.key -out {name}.csr && echo extendedKeyUsage=clientAuth > client.ext && \
             openssl x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile client.ext \
             -out {name}.crt"
        ));
        host.ok(&format!(
            "mkdir -p /etc/portreeve/tls && cd /etc/portreeve/tls && scp ctl:$PWD/{name}.key host.key && chmod 600 host.key && \
             scp ctl:$PWD/{name}.crt host.crt && \
             sed -i -e 's|^#client_cert|client_cert|' -e 's|^#client_key|client_key|' /etc/portreeve/agent.toml"
        ));
    }
    play(&machines, "### 4. Each host", "### 5. See that it works");
    assert!(
        eventually(|| up(&machines).len() == 2),
        "{}",
        hosts[0].logs()
    );
    // The relay shows the host's certificate, and so do the workers of a user who may not read its key.
    let key = hosts[0].as_alice("cat /etc/portreeve/tls/host.key");
    assert_ne!(key.code, Some(0));
    play(&machines, "### 5. See that it works", "## Upgrade");
}
