//! Whoever may connect to the agent's socket may say anything there: it is bounded, and nobody else's matter.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::world::eventually;

use super::{POOL, Site, hello};

/// A connection to the agent, as any process may make one.
fn connect(site: &Site) -> UnixStream {
    UnixStream::connect(site.world.path("agent.sock")).unwrap()
}

/// An ask without a port.
fn ask(name: &str, key: &str) -> Value {
    let profile = json!({ "kind": "service", "name": name, "command": ["sleep", "1000"] });
    json!({ "attach": {
        "profile": profile.to_string(), "form": "json", "set": [], "name": null, "index": null,
        "key": key, "job": null, "folder": "/tmp/x",
    } })
}

/// Says one line and hears one; `None`: it was cut off.
fn exchange(stream: &mut UnixStream, line: &Value) -> Option<Value> {
    stream.write_all(format!("{line}\n").as_bytes()).ok()?;
    hear(stream)
}

fn hear(stream: &mut UnixStream) -> Option<Value> {
    let mut text = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).ok()? == 1 {
        if byte == *b"\n" {
            return serde_json::from_slice(&text).ok();
        }
        text.push(byte[0]);
    }
    None
}

/// A number of the agent's `/proc/PID/status`.
fn of_agent(site: &Site, name: &str) -> u64 {
    let pid = site.agent.borrow().as_ref().unwrap().pid();
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().trim_start_matches(':').split_whitespace();
    number.into_iter().next().unwrap().parse().unwrap()
}

fn descriptors(site: &Site) -> usize {
    let pid = site.agent.borrow().as_ref().unwrap().pid();
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

#[test]
fn a_flood_of_long_lines_neither_fills_the_agents_memory_nor_keeps_others_out() {
    let Some(site) = Site::new(POOL) else { return };
    let before = of_agent(&site, "VmRSS");
    let long = vec![b'x'; 3 << 20];
    // None of them ever says that its line is over.
    let flood: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = connect(&site);
            stream.set_nonblocking(true).unwrap();
            // As much as is taken, in the background: what is not taken is the sender's to keep.
            let long = &long[..];
            let mut sent = 0;
            for _ in 0..200 {
                match stream.write(&long[sent..]) {
                    Ok(more) => sent += more,
                    Err(_) => std::thread::yield_now(),
                }
                if sent == long.len() {
                    break;
                }
            }
            stream
        })
        .collect();
    let job = site.job("a", &hello(&[]));
    site.ready("web", 0);
    let grown = of_agent(&site, "VmHWM") - before;
    assert!(grown < 64 << 10, "it grew by {grown} KiB");
    drop((flood, job));
}

#[test]
fn an_ask_repeated_a_thousand_times_is_one_replica_and_costs_the_agent_nothing_that_stays() {
    let Some(site) = Site::new(POOL) else { return };
    let mut first = connect(&site);
    let granted = exchange(&mut first, &ask("web", "same")).unwrap();
    assert!(granted["granted"].is_object(), "{granted:#}");
    let before = descriptors(&site);
    for _ in 0..300 {
        let mut stream = connect(&site);
        let again = exchange(&mut stream, &ask("web", "same")).unwrap();
        assert_eq!(again["granted"]["assignment"]["desired"]["index"], 0);
    }
    assert!(
        eventually(|| descriptors(&site) < before + 8),
        "{before} descriptors became {}",
        descriptors(&site)
    );
    assert_eq!(site.world.json(&["service", "web"])["desired"], 1);
}

#[test]
fn a_status_that_no_worker_would_write_ends_its_connection_and_the_host_stays_joined() {
    let Some(site) = Site::new(POOL) else { return };
    let mut liar = connect(&site);
    let granted = exchange(&mut liar, &ask("liar", "k")).unwrap();
    assert!(granted["granted"].is_object(), "{granted:#}");
    let status = |reason: &str| {
        json!({
            "run": 1, "seq": 5, "state": "up", "ready": true, "not_ready_reason": reason,
            "restarts": 0, "user_restarts": 0, "restart_no": 0, "pid": 1,
            "first_failure": null, "last_failure": null, "next_start": null,
        })
    };
    // Longer than any that a worker writes: it would stand in every full report of the host.
    let line = format!("{}\n", status(&"x".repeat(1 << 20)));
    _ = liar.write_all(line.as_bytes());
    liar.set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .unwrap();
    let mut left = Vec::new();
    _ = liar.read_to_end(&mut left);
    // An honest job beside it.
    let job = site.job("a", &hello(&[]));
    site.ready("web", 0);
    drop(job);
    let shown = site.world.ok(&["service", "liar", "-o", "json"]);
    assert!(shown.len() < 16 << 10, "{} bytes are kept", shown.len());
}

#[test]
fn a_job_that_claims_what_is_anothers_is_refused_and_the_other_is_as_it_was() {
    let Some(site) = Site::new(POOL) else { return };
    let job = site.job("a", &hello(&[]));
    let before = site.ready("web", 0);
    let end = json!({
        "run": 99, "seq": 999, "state": { "final": "stopped" }, "ready": false, "not_ready_reason": null,
        "restarts": 0, "user_restarts": 0, "restart_no": 0, "pid": null,
        "first_failure": null, "last_failure": null, "next_start": null,
    });
    let again = json!({ "again": {
        "service": "web.root", "index": 0, "incarnation": 0, "token": "guessed", "status": end, "folder": "/tmp/x",
    } });
    let answer = exchange(&mut connect(&site), &again).unwrap();
    assert_eq!(answer["refused"]["code"], "replica_unknown", "{answer:#}");
    assert_eq!(
        super::standing(&site.ready("web", 0)),
        super::standing(&before)
    );
    drop(job);
}
