//! Daemons that go by their files, speak TLS, and write down who changed what.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::Value;

use crate::world::{USUAL, World, eventually, hello, kill};

/// A file of the world's folder, and its path.
fn file(world: &World, name: &str, text: &str) -> String {
    world.profile(name, text)
}

fn path(world: &World, name: &str) -> String {
    world.path(name).display().to_string()
}

/// The files of replicas' secrets below an agent's folder.
fn secrets(world: &World) -> Vec<String> {
    let replicas = world.path("host/agent/replicas");
    let folders = std::fs::read_dir(replicas).unwrap().flatten();
    folders
        .flat_map(|folder| {
            let text = std::fs::read_to_string(folder.path().join("assignment.json")).unwrap();
            let assignment: Value = serde_json::from_str(&text).unwrap();
            let tokens = assignment["tokens"].clone();
            ["worker", "job"].map(|whose| tokens[whose].as_str().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn daemons_go_by_their_files_and_tell_no_secret_at_any_level() {
    let Some(world) = World::new() else { return };
    let controller = file(
        &world,
        "controller.toml",
        &format!(
            "data = {:?}\nrun_dir = {:?}\nsingle_host = true\nlog_format = \"json\"\nlog_level = \"trace\"\n\
             listen = [\"127.0.0.1:7373\"]\naudit_log = {:?}\n",
            path(&world, "controller"),
            path(&world, "run"),
            path(&world, "audit.log"),
        ),
    );
    let agent = file(
        &world,
        "agent.toml",
        &format!(
            "controller = {:?}\ndata = {:?}\nsingle_host = true\nlog_format = \"json\"\nlog_level = \"trace\"\n",
            world.socket(),
            path(&world, "host"),
        ),
    );
    for (daemon, config) in [("controller", &controller), ("agent", &agent)] {
        let checked = world.ok(&[daemon, "--check-config", "--config", config]);
        assert!(checked.contains("all fine"), "{checked}");
    }
    let mut running = world.start("controller", &["controller", "--config", &controller]);
    let mut host = world.start("agent", &["agent", "--config", &agent]);
    let profile = format!("{USUAL}[env]\nPASSWORD = \"MARKER-env\"\n");
    world.ok(&[
        "submit",
        &file(&world, "hello.toml", &hello("hello", 1, "", &profile)),
    ]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    let refused = world.curl(&[
        "-H",
        "Authorization: Bearer MARKER-bearer",
        "-H",
        "Cookie: MARKER-cookie",
        "-X",
        "POST",
        "http://127.0.0.1:7373/api/v1/services/hello/stop?token=MARKER-query",
    ]);
    assert!(refused.contains("unauthenticated"), "{refused}");

    // What needs a restart is named, and what cannot be read changes nothing.
    let before = std::fs::read_to_string(&controller).unwrap();
    std::fs::write(&controller, format!("{before}cooling = \"5s\"\n")).unwrap();
    kill(running.pid(), "HUP");
    let told = || running.output().contains("hold after a restart: cooling");
    assert!(eventually(told), "{}", running.output());
    std::fs::write(&controller, format!("{before}coling = \"5s\"\n")).unwrap();
    kill(running.pid(), "HUP");
    let told = || running.output().contains("did you mean cooling?");
    assert!(eventually(told), "{}", running.output());
    std::fs::write(&agent, "ports = \"many\"\n").unwrap();
    kill(host.pid(), "HUP");
    let told = || host.output().contains("cannot be used as it is now");
    assert!(eventually(told), "{}", host.output());
    running.runs();
    host.runs();
    world.ok(&["stop", "hello"]);

    let audit = || std::fs::read_to_string(world.path("audit.log")).unwrap();
    assert!(eventually(|| audit().lines().count() >= 3), "{}", audit());
    let lines: Vec<Value> = audit()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let events: Vec<_> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["change", "refusal", "change"], "{lines:#?}");
    assert_eq!(lines[1]["from"]["via"], "loopback");
    let about = std::fs::metadata(world.path("audit.log")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);

    let secrets = secrets(&world);
    assert_eq!(secrets.len(), 2);
    assert_eq!(host.end("TERM"), Some(0));
    assert_eq!(running.end("TERM"), Some(0));
    for name in ["controller.out", "agent.out", "audit.log"] {
        let text = std::fs::read_to_string(world.path(name)).unwrap();
        assert!(!text.contains("MARKER"), "{name} tells a secret");
        for secret in &secrets {
            assert!(!text.contains(secret), "{name} tells a token");
        }
        let objects = text.lines().filter(|line| line.starts_with('{'));
        let mut traced = 0;
        for line in objects {
            let line: Value = serde_json::from_str(line).unwrap();
            if name != "audit.log" {
                for part in ["timestamp", "level", "target", "fields"] {
                    assert!(!line[part].is_null(), "{name}: {line}");
                }
                traced += u32::from(line["level"] == "TRACE" || line["level"] == "DEBUG");
            }
        }
        assert!(
            name != "controller.out" || traced > 0,
            "it tells everything"
        );
    }
}

/// A CA, and a certificate of it for this address, as files of the world.
fn certificates(world: &World, address: &str) -> (String, PathBuf, PathBuf) {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "the test's");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![address.to_owned()]).unwrap();
    let signed = params.signed_by(&key, &ca).unwrap();
    let authority = file(world, "ca.pem", &ca.pem());
    let certificate = file(world, "server.pem", &signed.pem());
    let key = file(world, "server.key", &key.serialize_pem());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    (authority, certificate.into(), key.into())
}

#[test]
fn beyond_loopback_it_listens_over_tls_and_no_token_goes_in_the_clear() {
    let Some(world) = World::new() else { return };
    // Addresses that are not loopback's by their numbers, in a network of this test alone.
    for address in ["10.77.0.1/32", "10.77.0.2/32"] {
        let added = world
            .command("ip")
            .args(["addr", "add", address, "dev", "lo"])
            .status();
        assert!(added.unwrap().success());
    }
    let (ca, certificate, key) = certificates(&world, "10.77.0.1");
    let (data, run) = (path(&world, "controller"), path(&world, "run"));
    let places = [
        "controller",
        "--data",
        &data,
        "--run-dir",
        &run,
        "--single-host",
    ];
    let refused = world.run(&[&places[..], &["--listen", "10.77.0.1:7373"]].concat());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("--tls-cert"), "{refused:?}");
    assert!(!world.path("controller").exists(), "nothing was made");

    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let listen = ["--listen", "10.77.0.1:7373"];
    let mut running = world.start("controller", &[&places[..], &tls, &listen].concat());
    let _agent = crate::daemons::agent(&world);
    world.ok(&[
        "submit",
        &file(&world, "hello.toml", &hello("hello", 1, "", USUAL)),
    ]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    let replicas = std::fs::read_dir(world.path("host/agent/replicas")).unwrap();
    let replica = replicas.flatten().next().unwrap().path();
    let token = replica.join("token").display().to_string();

    let address = "https://10.77.0.1:7373";
    let with_ca = ["--controller", address, "--ca", &ca];
    let nobody = world.run(&[&["services"], &with_ca[..]].concat());
    assert_eq!(nobody.code, Some(5), "{nobody:?}");
    let by_token = [&with_ca[..], &["--token-file", &token]].concat();
    let lines = world.ok(&["endpoints", "hello"]);
    assert_eq!(
        world.ok(&[&["endpoints", "hello"], &by_token[..]].concat()),
        lines
    );
    // The first that answers of several.
    let several = format!("https://10.77.0.1:1,{address}");
    let several = [
        "endpoints",
        "hello",
        "--controller",
        &several,
        "--ca",
        &ca,
        "--token-file",
        &token,
    ];
    assert_eq!(world.ok(&several), lines);
    let stranger = world.run(&["services", "--controller", address, "--ca", &certificate]);
    assert_eq!(stranger.code, Some(6), "{stranger:?}");
    assert!(stranger.stderr.contains("--ca"), "{stranger:?}");
    let plain = world.run(&["services", "--controller", "http://10.77.0.1:7373"]);
    assert!(plain.stderr.contains("https://"), "{plain:?}");

    // A file of the client says it once for all.
    let client = format!("controller = {address:?}\nca = {ca:?}\ntoken_file = {token:?}\n");
    let client = file(&world, "client.toml", &client);
    let mut asked = world.portreeve(&["endpoints", "hello", "--config", &client]);
    let asked = asked.env_remove("PORTREEVE_CONTROLLER").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), lines, "{asked:?}");
    // The environment wins over the file.
    let away = file(&world, "away.toml", "controller = \"http://127.0.0.1:1\"\n");
    assert_eq!(world.ok(&["endpoints", "hello", "--config", &away]), lines);

    // The key of another certificate: what was read before holds.
    kill(running.pid(), "HUP");
    assert!(eventually(|| running
        .output()
        .contains("the certificate was read")));
    std::fs::write(&key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    kill(running.pid(), "HUP");
    assert!(
        eventually(|| running.output().contains("stays as it was")),
        "{}",
        running.output()
    );
    running.runs();
    world.ok(&[&["endpoints", "hello"], &by_token[..]].concat());

    let (other, elsewhere) = (path(&world, "other"), path(&world, "other-run"));
    let _open = world.start(
        "insecure",
        &[
            "controller",
            "--data",
            &other,
            "--run-dir",
            &elsewhere,
            "--insecure",
            "--listen",
            "10.77.0.2:7373",
        ],
    );
    let open = "http://10.77.0.2:7373";
    assert!(eventually(|| world
        .run(&["services", "--controller", open])
        .code
        == Some(0)));
    let kept = world.run(&["services", "--controller", open, "--token-file", &token]);
    assert_eq!(kept.code, Some(5), "{kept:?}");
    assert!(kept.stderr.contains("in the clear"), "{kept:?}");
}
