//! Clients of a service whose replicas leave one by one.

use serde_json::Value;

use crate::world::{World, eventually};

/// Answers each request on a connection of its own. At TERM it says when, and is gone.
const SERVICE: &str = r#"
import http.server, os, signal, time
port = int(os.environ["PORTREEVE_PORT_HTTP"])
def term(*_):
    with open(f"term-{port}.new", "w") as file: file.write(str(time.monotonic()))
    os.rename(f"term-{port}.new", f"term-{port}")
    os._exit(0)
signal.signal(signal.SIGTERM, term)
class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        body = str(port).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Service(http.server.ThreadingHTTPServer):
    request_queue_size = 256
Service(("0.0.0.0", port), Answer).serve_forever()
"#;

/// Of a client in Python: one request over a socket of either kind; its body, or an error where that is not 200.
pub(crate) const ASK: &str = r#"
import socket
def ask(to, text):
    s = socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET)
    s.settimeout(10)
    with s:
        s.connect(to)
        s.sendall(text.encode())
        answer = b""
        while data := s.recv(65536): answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]: raise OSError(f"{head!r}")
    return body
"#;

/// Asks the controller before each of 200 requests a second, in four threads, until there is a file `enough`; then
/// writes what it saw. A request that this very client began later than the drain lasts is `late` and no evidence:
/// it stood still itself.
const CLIENT: &str = r#"
import json, os, random, sys, threading, time
DRAIN = 1.0
seen, lock = {"requests": 0, "late": 0, "none": 0, "failed": [], "answers": {}, "listed": {}}, threading.Lock()
def resolve():
    text = ask(sys.argv[1], "GET /api/v1/resolve/web HTTP/1.0\r\nHost: x\r\n\r\n").decode()
    return [(a, int(p)) for a, p in (line.rsplit(":", 1) for line in text.split())]
def client():
    at = time.monotonic()
    while not os.path.exists("enough"):
        at += 0.02
        time.sleep(max(0, at - time.monotonic()))
        asked = time.monotonic()
        places = resolve()
        with lock:
            if not os.path.exists("again"):
                for _, port in places: seen["listed"][port] = max(seen["listed"].get(port, 0), asked)
        if not places:
            with lock: seen["none"] += 1
            continue
        to = random.choice(places)
        try: failed = None if ask(to, "GET / HTTP/1.0\r\n\r\n").decode() == str(to[1]) else "another answered"
        except OSError as cause: failed = repr(cause)
        took = time.monotonic() - asked
        with lock:
            seen["requests"] += 1
            if seen["requests"] == 100: open("begun", "w").close()
            if failed is None: seen["answers"][to[1]] = seen["answers"].get(to[1], 0) + 1
            elif took > 0.9 * DRAIN: seen["late"] += 1
            else: seen["failed"].append((to[1], failed, took))
threads = [threading.Thread(target=client) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with open("seen.new", "w") as file: json.dump(seen, file)
os.rename("seen.new", "seen")
"#;

#[test]
fn clients_that_resolve_before_each_request_lose_none_while_replicas_leave_one_by_one() {
    // P35
    let Some(world) = World::new() else { return };
    let (service, client) = (
        world.profile("service.py", SERVICE),
        world.profile("client.py", &[ASK, CLIENT].concat()),
    );
    let text = format!(
        "kind = \"service\"\nname = \"web\"\nreplicas = 4\ncommand = \"exec python3 {service}\"\n\
         working_dir = \"{}\"\n[ports]\nhttp = \"any\"\n[readiness]\nhttp = {{ path = \"/\" }}\ninterval = \"200ms\"\n\
         [stop]\ndrain = \"1s\"\n",
        world.path("").display()
    );
    let _dev = world.dev(&[&world.profile("web.toml", &text)]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    let port = |replica: &Value| replica["ports"]["http"].as_u64().unwrap();
    let ports: Vec<u64> = (0..4)
        .map(|index| port(&world.replica("web", index)))
        .collect();
    let mut asking = world
        .command("python3")
        .current_dir(world.path(""))
        .args([
            &client,
            &world.path("run/controller.sock").display().to_string(),
        ])
        .spawn()
        .unwrap();
    assert!(eventually(|| world.path("begun").exists()));
    // One stays, so that there is always somebody to ask. Each goes while clients are on it.
    for (index, port) in ports[..3].iter().enumerate() {
        world.ok(&["kill", &format!("web/{index}")]);
        let told = || world.path(&format!("term-{port}")).exists();
        assert!(eventually(told), "{:#}", world.replica("web", index));
    }
    // And one that comes back in place, on the same number.
    let told = ports[..3].iter().map(|port| {
        let moment = std::fs::read_to_string(world.path(&format!("term-{port}"))).unwrap();
        moment.parse().unwrap()
    });
    let told: Vec<f64> = told.collect();
    std::fs::write(world.path("again"), "").unwrap();
    world.ok(&["start", "web"]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    let again = world.replica("web", 1);
    world.ok(&["restart", "web/1"]);
    world.replica_when("web", 1, "was back", |it| {
        it["ready"] == true && it["pid"] != again["pid"]
    });
    std::fs::write(world.path("enough"), "").unwrap();
    assert!(asking.wait().unwrap().success());
    let seen: Value = serde_json::from_slice(&std::fs::read(world.path("seen")).unwrap()).unwrap();
    assert_eq!(seen["failed"], serde_json::json!([]), "{seen:#}");
    assert_eq!(seen["none"], 0, "{seen:#}");
    let count = |what: &str| seen[what].as_u64().unwrap();
    // Three drains of a second alone are 600.
    assert!(count("requests") > 300, "{seen:#}");
    assert!(count("late") * 10 < count("requests"), "{seen:#}");
    for (port, told) in ports.iter().zip(told) {
        // Unpublished, and the signal a drain later, for all who asked.
        let of_it = |what: &str| seen[what][port.to_string()].as_f64().unwrap();
        assert!(of_it("answers") > 0.0, "{seen:#}");
        let apart = told - of_it("listed");
        assert!(
            apart > 0.9,
            "{port} was listed {apart:.3} s before its signal"
        );
    }
}
