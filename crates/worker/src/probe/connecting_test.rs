//! Connects and listeners of real processes: who answers, and where.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use portreeve::port::{Port, PortRange, PortRanges};
use portreeve::profile::ListenerOwner;
use portreeve::supervision::{ProbeKind, ProbeOutcome};

use super::owner::Root;
use super::{Check, ProbeReport, ProbeTarget, SourcePorts, TargetPort, probe};

pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) fn port_of(listener: &TcpListener) -> Port {
    Port::new(listener.local_addr().unwrap().port()).unwrap()
}

/// A replica that has the number `port`; its run is this very process.
pub(super) fn below(pid: u32) -> Option<Root> {
    Some(Root { pid, group: None })
}

pub(super) fn replica(port: Port) -> ProbeTarget {
    ProbeTarget {
        kind: ProbeKind::Readiness,
        ports: vec![TargetPort {
            own: None,
            numbers: PortRange::new(port, port).unwrap(),
            publish: true,
            owner: ListenerOwner::Run,
        }],
        address: IpAddr::from([127, 0, 0, 1]),
        own_address: true,
        single_host: false,
        anywhere: false,
        root: below(std::process::id()),
        sources: SourcePorts::beside(&PortRanges::default()),
    }
}

pub(super) async fn tcp(port: Port, target: ProbeTarget) -> ProbeReport {
    probe(Check::Tcp { port, host: None }, target, LONG, LONG, || ()).await
}

pub(super) async fn listening(target: ProbeTarget) -> ProbeReport {
    probe(Check::Listening, target, LONG, LONG, || ()).await
}

/// A process that is no part of this test's replica; ended when dropped.
struct Other(Child);

impl Other {
    fn new() -> Self {
        let sleep = Command::new("/bin/sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn();
        Self(sleep.unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_listener_succeeds_and_a_free_number_is_refused_at_once() {
    // probes 47
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port_of(&listener);
    let report = tcp(port, replica(port)).await;
    assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
    drop(listener);
    let begun = std::time::Instant::now();
    let report = tcp(port, replica(port)).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail);
    let words = format!("nothing listens on {port}");
    assert!(report.text.starts_with(&words), "{}", report.text);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_listener_that_never_accepts_times_out_once_its_queue_is_full() {
    // probes 47: as a black hole does
    let (listener, held) = black_hole().await;
    let port = port_of(&listener);
    let check = Check::Tcp { port, host: None };
    let report = probe(
        check,
        replica(port),
        Duration::from_millis(200),
        LONG,
        || (),
    )
    .await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::Timeout,
        "after {} connections",
        held.len()
    );
}

#[tokio::test]
async fn a_stranger_who_answers_is_no_success() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port_of(&listener);
    let other = Other::new();
    let mut target = replica(port);
    target.root = below(other.0.id());
    for report in [
        tcp(port, target.clone()).await,
        listening(target.clone()).await,
    ] {
        assert_eq!(report.outcome, ProbeOutcome::Fail);
        let words = format!("(pid {}), which is not of this replica", std::process::id());
        assert!(
            report.text.starts_with(&format!("{port} is served by ")),
            "{}",
            report.text
        );
        assert!(report.text.ends_with(&words), "{}", report.text);
    }
    target.ports[0].owner = ListenerOwner::Any;
    assert_eq!(tcp(port, target.clone()).await.outcome, ProbeOutcome::Ok);
    assert_eq!(listening(target).await.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn a_listener_on_loopback_does_not_serve_clients_elsewhere() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port_of(&listener);
    let mut target = replica(port);
    // An address of nobody, which is not asked: the listener tells enough.
    target.address = "10.1.0.17".parse().unwrap();
    let report = listening(target.clone()).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail);
    let words =
        format!("listens on 127.0.0.1:{port} only; clients use 10.1.0.17: bind ${{host.address}}");
    assert_eq!(report.text, words);
    // Another address of this host, where nobody listens: readiness asks there, as clients would.
    target.address = "127.0.0.2".parse().unwrap();
    let report = tcp(port, target.clone()).await;
    assert_eq!(report.text, words.replace("10.1.0.17", "127.0.0.2"));
    // Liveness asks where the service listens.
    target.kind = ProbeKind::Liveness;
    assert_eq!(tcp(port, target.clone()).await.outcome, ProbeOutcome::Ok);
    target.kind = ProbeKind::Readiness;
    target.single_host = true;
    assert_eq!(tcp(port, target.clone()).await.outcome, ProbeOutcome::Ok);
    assert_eq!(listening(target).await.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn listening_names_the_number_and_what_is_listened_on_instead() {
    let [asked, instead] = [0, 0].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let (port, other) = (port_of(&asked), port_of(&instead));
    drop(asked);
    let report = listening(replica(port)).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail);
    let words = format!("nothing listens on {port}; processes of this replica listen on ");
    assert!(report.text.starts_with(&words), "{}", report.text);
    // Other tests of this process listen too, and only some are shown.
    let shown = report.text[words.len()..].split(", ");
    let shown: Vec<&str> = shown.collect();
    assert!(
        shown.len() == 6 || shown.contains(&other.to_string().as_str()),
        "{}",
        report.text
    );
    let idle = Other::new();
    let mut target = replica(port);
    target.root = below(idle.0.id());
    assert_eq!(
        listening(target).await.text,
        format!("nothing listens on {port}")
    );
}

#[tokio::test]
async fn one_number_of_a_block_is_enough_and_unpublished_ports_need_none() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let last = port_of(&listener);
    let first = Port::new(last.number() - 1).unwrap();
    let mut target = replica(last);
    target.ports[0].numbers = PortRange::new(first, last).unwrap();
    let report = listening(target.clone()).await;
    assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
    drop(listener);
    target.ports[0].publish = false;
    assert_eq!(listening(target).await.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn an_unprovable_owner_falls_back_to_a_connect_and_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port_of(&listener);
    let mut target = replica(port);
    // As after the loss of the shim: nobody knows which processes are the run's.
    target.root = None;
    let report = listening(target).await;
    assert_eq!(report.outcome, ProbeOutcome::Ok);
    assert_eq!(
        report.text,
        format!("whose listener {port} is cannot be read; it answers")
    );
}

#[tokio::test]
async fn proxy_variables_divert_nothing() {
    // P31, probes 46: this process has them, so it runs itself again with them set.
    const INSIDE: &str = "PROXIES_ARE_SET";
    if std::env::var_os(INSIDE).is_none() {
        let stub = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", stub.local_addr().unwrap());
        let mut again = Command::new(std::env::current_exe().unwrap());
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            again.env(name, &proxy);
        }
        let name = "probe::connecting_test::proxy_variables_divert_nothing";
        let inner = again
            .env(INSIDE, "1")
            .args(["--exact", name])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&inner.stdout);
        assert!(
            inner.status.success() && said.contains("1 passed"),
            "{said}"
        );
        stub.set_nonblocking(true).unwrap();
        assert!(stub.accept().is_err(), "the proxy was asked");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port_of(&listener);
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut connection, _) = listener.accept().unwrap();
        let mut asked = [0; 1024];
        let read = connection.read(&mut asked).unwrap();
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(asked[..read].starts_with(b"GET /health HTTP/1.1\r\n"));
    });
    let check = super::HttpCheck {
        port,
        host: None,
        path: "/health".to_owned(),
        expect: vec![(200, 399)],
        headers: Vec::new(),
        require_body: None,
    };
    let report = probe(Check::Http(check), replica(port), LONG, LONG, || ()).await;
    server.join().unwrap();
    assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
}

/// A listener whose queue is full: to a client a black hole.
async fn black_hole() -> (TcpListener, Vec<tokio::net::TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(1).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    loop {
        let connect = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connect).await {
            Ok(connection) => held.push(connection.unwrap()),
            Err(_) => return (listener, held),
        }
    }
}

#[tokio::test]
async fn a_timeout_while_we_stood_still_ourselves_says_nothing_whatever_the_form() {
    // supervision 1.3 rule 14
    let (hole, _held) = black_hole().await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = super::HttpCheck {
        port: port_of(&silent),
        host: None,
        path: "/".to_owned(),
        expect: Vec::new(),
        headers: Vec::new(),
        require_body: None,
    };
    let sleep = vec!["/bin/sleep".into(), "600".into()];
    let command = super::CommandCheck::alone(sleep, Vec::new(), "/".into());
    let (port, host) = (port_of(&hole), None);
    let timeout = Duration::from_millis(200);
    for check in [
        Check::Tcp { port, host },
        Check::Http(http),
        Check::Command(command),
    ] {
        let stall = async |until: Duration| {
            tokio::time::sleep(timeout / 4).await;
            let begun = std::time::Instant::now();
            while begun.elapsed() < until {
                std::thread::park_timeout(until);
            }
        };
        let name = format!("{check:?}");
        let target = replica(port);
        let probed = |check: &Check| probe(check.clone(), target.clone(), timeout, LONG, || ());
        let (report, ()) = tokio::join!(probed(&check), stall(timeout / 4));
        assert_eq!(report.outcome, ProbeOutcome::Timeout, "{name}");
        let (report, ()) = tokio::join!(probed(&check), stall(timeout * 3));
        assert_eq!(report.outcome, ProbeOutcome::Inconclusive, "{name}");
    }
}
