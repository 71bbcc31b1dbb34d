//! Thousands of connections that ask nothing, or never finish asking: bounded memory, and everybody else is served.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::users::{DAEMON, Site};
use crate::world::eventually;

/// The controller's resident memory in MiB.
fn resident(site: &Site) -> u64 {
    let processes = site.world.processes();
    let controller = processes
        .iter()
        .find(|(_, line)| line.contains(" controller "));
    let (pid, _) = controller.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib >> 10
}

/// How many connections this process can have, at most this many.
fn room(wanted: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = limit
        .current
        .map_or(usize::MAX, |files| usize::try_from(files).unwrap());
    wanted.min(files.saturating_sub(600))
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_end_by_themselves() {
    let Some(site) = Site::new() else { return };
    let count = room(10_000);
    let before = resident(&site);
    let connect = |nth: usize| {
        let mut stream = UnixStream::connect(site.world.path("run/controller.sock")).unwrap();
        // A third say nothing, a third begin to ask, a third asked and stay.
        let said: &[u8] = match nth % 3 {
            0 => b"",
            1 => b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: ",
            _ => b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
        };
        stream.write_all(said).unwrap();
        stream
    };
    let mut idle: Vec<_> = (0..count).map(connect).collect();
    let during = resident(&site);
    let begun = Instant::now();
    site.world.json(&["hosts"]);
    let served = begun.elapsed();
    println!(
        "{count} idle connections: {before} MiB before, {during} MiB with them; a question took {served:?}"
    );
    assert!(served < Duration::from_secs(10), "{served:?}");
    let each_kib = (during.saturating_sub(before) << 10) / count as u64;
    assert!(each_kib <= 24, "{each_kib} KiB for each of {count}");
    // None stays for ever.
    let ends = |stream: &mut UnixStream| {
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => true,
            Err(cause) => cause.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    assert!(idle.iter_mut().all(ends));
    site.world.json(&["hosts"]);
}

/// Begins so many bodies, sends of each all but its end, and waits for the end of its input.
const LONG_BODIES: &str = r#"
import socket, sys
path, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
head = "PUT /api/v1/services/x HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % size
body = b" " * (size - 1)
left = []
for _ in range(count):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    stream.setblocking(False)
    left.append([stream, head.encode() + body])
whole = list(left)
for _ in range(40):
    for one in left:
        try:
            sent = one[0].send(one[1])
            one[1] = one[1][sent:]
        except OSError:
            pass
    left = [one for one in left if one[1]]
print("sent", flush=True)
sys.stdin.read()
"#;

#[test]
fn bodies_that_never_end_fill_no_memory_and_keep_nobody_else_out() {
    let Some(site) = Site::new() else { return };
    let script = site.world.profile("bodies.py", LONG_BODIES);
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let before = resident(&site);
    let mut command = site.world.command("setpriv");
    let uid = DAEMON.1.to_string();
    command.args([
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "--clear-groups",
        "/usr/bin/python3",
        &script,
    ]);
    command
        .arg(site.world.path("run/controller.sock"))
        .args(["800", "900000"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut sender = command.spawn().unwrap();
    let mut said = [0; 5];
    sender
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    assert_eq!(&said, b"sent\n");
    let during = resident(&site);
    println!("800 bodies of 900 KB begun: {before} MiB before, {during} MiB with them");
    // Whole they would be 690 MiB.
    assert!(during - before < 250, "{before} MiB, then {during} MiB");
    // Another user, and the host, are served.
    let service = site.submit(crate::users::BIN, "by", "exec sleep 1000000", "");
    site.ready(&service);
    drop(sender.stdin.take());
    assert!(eventually(|| sender.try_wait().unwrap().is_some()));
    // And afterwards that user is, too.
    let again = site.submit(DAEMON, "again", "exec sleep 1000000", "");
    site.ready(&again);
}
