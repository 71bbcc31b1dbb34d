//! Numbers that change hands, and clients that still hold the old place.

use serde_json::Value;

use super::is_long;
use crate::world::{World, eventually};

/// Asks every 20 ms who is listed and keeps what was listed for as long as a number rests; everything it keeps is
/// asked in turn who it is. Ends once there is a file `enough`, and writes what it saw.
const CLIENT: &str = r#"
import json, os, socket, sys, time
REST = float(sys.argv[2])
seen = {"asked": 0, "answered": 0, "foreign": [], "reused": 0, "gap": None}
kept, last, turn = {}, {}, 0
def ask(to, text):
    s = socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET)
    s.settimeout(5)
    with s:
        s.connect(to)
        s.sendall(text.encode())
        answer = b""
        while data := s.recv(65536): answer += data
    return answer.decode()
while not os.path.exists("enough"):
    for service in "a", "b", "c", "d":
        before = time.monotonic()
        body = ask(sys.argv[1], f"GET /api/v1/resolve/{service} HTTP/1.0\r\nHost: x\r\n\r\n").partition("\r\n\r\n")[2]
        after = time.monotonic()
        for line in body.split():
            port = int(line.rsplit(":", 1)[1])
            # Listed at some moment between `before` and `after`.
            if port in last and last[port][0] != service:
                gap = after - last[port][1]
                seen["reused"] += 1
                seen["gap"] = gap if seen["gap"] is None else min(gap, seen["gap"])
            last[port] = (service, before)
            kept[(service, port)] = before
    now = time.monotonic()
    kept = {who: at for who, at in kept.items() if now - at < REST}
    for service, port in list(kept)[turn % 8::8]:
        seen["asked"] += 1
        try: body = ask(("127.0.0.1", port), "GET / HTTP/1.0\r\n\r\n").partition("\r\n\r\n")[2]
        except OSError: continue
        # An answer that came later than the rest says nothing: this client stood still.
        if time.monotonic() - kept[(service, port)] >= REST or not body: continue
        seen["answered"] += 1
        if f" {service} " not in body: seen["foreign"].append([service, port, body])
    turn += 1
    time.sleep(0.02)
with open("seen.new", "w") as file: json.dump(seen, file)
os.rename("seen.new", "seen")
"#;

/// How long a number rests here.
const REST: &str = "1s";

#[test]
fn a_client_of_an_old_place_never_meets_another_service_while_the_number_rests() {
    // P15: unpublish, stop, rest, free; the smallest gap between the last listing and the next holder's first.
    let Some(world) = World::new() else { return };
    let (replicas, cycles) = (10, if is_long() { 10_000 } else { 200 });
    let service = |name: &str, replicas: u32, port: &str| {
        let text = format!(
            "kind = \"service\"\nname = \"{name}\"\nreplicas = {replicas}\n\
             command = \"exec portreeve hello --port ${{port.http}}\"\n[ports]\nhttp = {port}\n\
             [readiness]\nhttp = {{ path = \"/\" }}\ninterval = \"100ms\"\n\
             [stop]\ndrain = \"0s\"\ngrace = \"2s\"\n"
        );
        world.profile(&format!("{name}.toml"), &text)
    };
    let a = service("a", replicas, "\"any\"");
    let _dev = world.dev(&["--ports", "20000-20049", "--cooling", REST, &a]);
    world.ok(&["submit", &service("b", replicas, "\"any\"")]);
    // These want the same number: one has it, and the other waits for it.
    world.ok(&["submit", &service("c", 1, "8888")]);
    world.ok(&["wait", "c", "--timeout", "60s"]);
    world.ok(&["submit", &service("d", 1, "8888")]);
    world.ok(&["wait", "a", "--timeout", "60s"]);
    world.ok(&["wait", "b", "--timeout", "60s"]);
    let client = world.profile("client.py", CLIENT);
    let socket = world.path("run/controller.sock").display().to_string();
    let mut asking = world
        .command("python3")
        .current_dir(world.path(""))
        .args([&client, &socket, REST.trim_end_matches('s')])
        .spawn()
        .unwrap();
    // Both go and come at once, so that each is offered what the other left: twenty of fifty, the oldest first.
    for round in 0..cycles / (2 * replicas) {
        let (holds, waits) = if round % 2 == 0 {
            ("c", "d")
        } else {
            ("d", "c")
        };
        for name in ["a", "b", holds] {
            world.ok(&["stop", name]);
        }
        for name in ["b", "a"] {
            world.ok(&["wait", name, "--gone", "--timeout", "60s"]);
            world.ok(&["start", name]);
        }
        for name in ["a", "b", waits] {
            world.ok(&["wait", name, "--timeout", "60s"]);
        }
        world.ok(&["start", holds]);
    }
    std::fs::write(world.path("enough"), "").unwrap();
    assert!(asking.wait().unwrap().success());
    let written = || world.path("seen").exists();
    assert!(eventually(written));
    let seen: Value = serde_json::from_slice(&std::fs::read(world.path("seen")).unwrap()).unwrap();
    eprintln!("{cycles} cycles: {seen}");
    assert_eq!(seen["foreign"], serde_json::json!([]), "{seen:#}");
    assert!(seen["answered"].as_u64().unwrap() > 50, "{seen:#}");
    assert!(
        seen["reused"].as_u64().unwrap() > 10,
        "no number changed hands: {seen:#}"
    );
    assert!(seen["gap"].as_f64().unwrap() >= 1.0, "{seen:#}");
}
