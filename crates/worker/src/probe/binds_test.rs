//! Services that bind in every way, as processes of their own: who answers where, and what is said of it.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReusePort;
use portreeve::port::{Port, PortRange, PortRanges};
use portreeve::profile::ListenerOwner;
use portreeve::supervision::{ProbeKind, ProbeOutcome};

use super::connecting_test::{LONG, below, listening, port_of, replica, tcp};
use super::{Check, HttpCheck, ProbeReport, ProbeTarget, SourcePorts, probe};

const PLAYED: &str = "PORTREEVE_TEST_SERVICE";

/// A service of its own, played by this very test program; ended when dropped.
struct Service {
    child: Child,
    port: Port,
    /// What it says further.
    said: Lines<BufReader<ChildStdout>>,
}

/// What a played service does beside listening.
#[derive(Clone, Copy, Debug)]
enum Play {
    /// Nothing.
    Listens,
    /// Leaves IPv4 alone.
    OnlyV6,
    /// Shares its number.
    Shares,
    /// Answers requests, one after the other.
    Answers,
    /// Says where each connection came from.
    Names,
}

impl Service {
    fn on(address: &str, port: u16, play: Play) -> Self {
        let name = "probe::binds_test::a_played_service";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PLAYED, format!("{address} {port} {play:?}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = said.by_ref().map_while(Result::ok).find_map(|line| {
            let port = line.strip_prefix("listens on ")?.parse().ok()?;
            Port::new(port)
        });
        let port = port.expect("it says where it listens");
        Self { child, port, said }
    }

    /// The replica whose run it is, published at `address`.
    fn replica(&self, address: &str) -> ProbeTarget {
        let mut target = replica(self.port);
        target.root = below(self.child.id());
        target.address = address.parse().unwrap();
        target
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Passes at once unless another test started it.
#[test]
fn a_played_service() {
    let Ok(played) = std::env::var(PLAYED) else {
        return;
    };
    let [address, port, play] = played.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{played}");
    };
    let ip: IpAddr = address.parse().unwrap();
    let address = SocketAddr::new(ip, port.parse().unwrap());
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        None,
    );
    let socket = socket.unwrap();
    if ip.is_ipv6() {
        socket.set_only_v6(play == "OnlyV6").unwrap();
    }
    if play == "Shares" {
        setsockopt(&socket, ReusePort, &true).unwrap();
    }
    socket.bind(&address.into()).unwrap();
    socket.listen(8).unwrap();
    let listener = TcpListener::from(socket);
    println!("\nlistens on {}", listener.local_addr().unwrap().port());
    loop {
        match play {
            "Answers" => {
                let (mut connection, _) = listener.accept().unwrap();
                // A client that only looked is gone.
                if connection.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
                    _ = connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                }
            }
            "Names" => println!("{}", listener.accept().unwrap().1.port()),
            _ => std::thread::park(),
        }
    }
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    name.trim_end().to_owned()
}

/// Whether every thread of it stands still.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" T"))
    })
}

async fn http(port: Port, target: ProbeTarget, timeout: Duration) -> ProbeReport {
    let check = HttpCheck {
        port,
        host: None,
        path: "/".to_owned(),
        expect: Vec::new(),
        headers: Vec::new(),
        require_body: None,
    };
    probe(Check::Http(check), target, timeout, LONG, || ()).await
}

/// What readiness finds by each form, which must be the same.
async fn readiness(service: &Service, address: &str) -> ProbeReport {
    let target = service.replica(address);
    let (by_look, by_connect) = (
        listening(target.clone()).await,
        tcp(service.port, target).await,
    );
    assert_eq!(
        by_look.outcome, by_connect.outcome,
        "{} / {}",
        by_look.text, by_connect.text
    );
    if by_look.outcome == ProbeOutcome::Fail {
        assert_eq!(by_look.text, by_connect.text);
    }
    by_look
}

#[tokio::test]
async fn a_service_on_another_number_is_never_ready_and_is_told_which_one_it_took() {
    // P09: whatever the form and the kind of the probe.
    let free = port_of(&TcpListener::bind("127.0.0.1:0").unwrap());
    let service = Service::on("0.0.0.0", 0, Play::Listens);
    let words = format!(
        "nothing listens on {free}; processes of this replica listen on {}",
        service.port
    );
    for kind in [
        ProbeKind::Readiness,
        ProbeKind::Startup,
        ProbeKind::Liveness,
    ] {
        let mut target = service.replica("127.0.0.1");
        target.kind = kind;
        target.ports[0].numbers = PortRange::single(free);
        for report in [
            listening(target.clone()).await,
            tcp(free, target.clone()).await,
            http(free, target, LONG).await,
        ] {
            assert_eq!(
                (report.outcome, report.text),
                (ProbeOutcome::Fail, words.clone())
            );
        }
    }
}

#[tokio::test]
async fn a_bind_to_loopback_alone_is_ready_only_where_clients_are() {
    // P18, D8 loopback-only
    let service = Service::on("127.0.0.1", 0, Play::Listens);
    let port = service.port;
    let report = readiness(&service, "127.0.0.2").await;
    assert_eq!(
        report.text,
        format!("listens on 127.0.0.1:{port} only; clients use 127.0.0.2: bind ${{host.address}}")
    );
    let mut target = service.replica("127.0.0.2");
    target.single_host = true;
    assert_eq!(listening(target.clone()).await.outcome, ProbeOutcome::Ok);
    assert_eq!(tcp(port, target).await.outcome, ProbeOutcome::Ok);
    // A port of which clients are not told.
    let mut target = service.replica("127.0.0.2");
    target.ports[0].publish = false;
    assert_eq!(tcp(port, target).await.outcome, ProbeOutcome::Ok);
    // That it chose the wrong address is no reason to restart it.
    for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
        let mut target = service.replica("127.0.0.2");
        target.kind = kind;
        assert_eq!(tcp(port, target).await.outcome, ProbeOutcome::Ok);
    }
}

#[tokio::test]
async fn a_bind_to_ipv6_alone_is_ready_for_clients_of_ipv6_alone() {
    // D8 v6-only, P18: the address told is the one that was tried, never what a name happens to mean.
    let service = Service::on("::", 0, Play::OnlyV6);
    let port = service.port;
    assert_eq!(readiness(&service, "::1").await.outcome, ProbeOutcome::Ok);
    let report = readiness(&service, "127.0.0.1").await;
    assert_eq!(
        report.text,
        format!("listens on [::]:{port} only; clients use 127.0.0.1: bind ${{host.address}}")
    );
    let mut target = service.replica("127.0.0.1");
    target.kind = ProbeKind::Liveness;
    let report = tcp(port, target).await;
    assert_eq!(report.outcome, ProbeOutcome::Ok);
    assert!(report.text.starts_with("[::1]:"), "{}", report.text);
}

#[tokio::test]
async fn a_bind_to_both_families_is_ready_for_clients_of_either() {
    // D8 dual-stack
    let service = Service::on("::", 0, Play::Listens);
    for address in ["127.0.0.1", "::1"] {
        let report = readiness(&service, address).await;
        assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
    }
}

#[tokio::test]
async fn a_stranger_who_answers_in_place_of_the_replica_is_found_beside_its_own_listener() {
    // Its wildcard takes what no literal address takes: a client of that address meets the stranger.
    let service = Service::on("0.0.0.0", 0, Play::Shares);
    let stranger = Service::on("127.0.0.1", service.port.number(), Play::Shares);
    let report = readiness(&service, "127.0.0.1").await;
    assert_eq!(
        report.text,
        format!(
            "{} is served by {} (pid {}), which is not of this replica",
            service.port,
            name_of(stranger.child.id()),
            stranger.child.id()
        )
    );
    assert_eq!(
        readiness(&service, "127.0.0.2").await.outcome,
        ProbeOutcome::Ok
    );
    // One that shares the very place takes half of what comes.
    let half = Service::on("0.0.0.0", service.port.number(), Play::Shares);
    assert_eq!(
        readiness(&service, "127.0.0.2").await.outcome,
        ProbeOutcome::Fail
    );
    drop(half);
    let mut shared = service.replica("127.0.0.1");
    shared.ports[0].owner = ListenerOwner::User;
    assert_eq!(listening(shared).await.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn a_stopped_service_still_takes_connections_and_answers_nothing() {
    // D8 SIGSTOP of the service: why a liveness probe by tcp is warned of.
    let service = Service::on("127.0.0.1", 0, Play::Answers);
    let target = service.replica("127.0.0.1");
    let (port, short) = (service.port, Duration::from_millis(200));
    assert_eq!(
        http(port, target.clone(), LONG).await.outcome,
        ProbeOutcome::Ok
    );
    let pid = nix::unistd::Pid::from_raw(service.child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let begun = Instant::now();
    while !is_stopped(service.child.id()) {
        assert!(begun.elapsed() < LONG, "it never stopped");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(tcp(port, target.clone()).await.outcome, ProbeOutcome::Ok);
    assert_eq!(
        http(port, target.clone(), short).await.outcome,
        ProbeOutcome::Timeout
    );
    // Its queue of eight is full before long.
    let mut passes = 0;
    loop {
        let check = Check::Tcp { port, host: None };
        let report = probe(check, target.clone(), short, LONG, || ()).await;
        if report.outcome == ProbeOutcome::Timeout {
            break;
        }
        assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
        passes += 1;
        assert!(passes < 100, "its queue is never full");
    }
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(http(port, target, LONG).await.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn probes_of_a_dead_port_never_reach_themselves_and_keep_no_number() {
    // D8 200,000 probes to a dead port: of a number that the kernel itself would take for connections.
    let probes = match std::env::var_os("PORTREEVE_LONG") {
        Some(_) => 200_000,
        None => 5_000,
    };
    let free = port_of(&TcpListener::bind("127.0.0.1:0").unwrap());
    let mut target = replica(free);
    target.root = None;
    // Of eight numbers that connections may begin on it is one itself: by luck alone every eighth would reach itself.
    let near: Vec<_> = (0..8)
        .filter_map(|more| Port::new(free.number() ^ more))
        .map(PortRange::single)
        .collect();
    let all = PortRange::new(Port::new(1024).unwrap(), Port::MAX);
    target.sources = SourcePorts::beside(&PortRanges::new(all).difference(&PortRanges::new(near)));
    let begun = Instant::now();
    for _ in 0..probes {
        let report = tcp(free, target.clone()).await;
        assert_eq!(
            (report.outcome, report.text),
            (ProbeOutcome::Fail, format!("nothing listens on {free}"))
        );
    }
    eprintln!("{probes} probes in {:?}", begun.elapsed());
    // Without SO_REUSEADDR, as the strictest of services: nothing of ours is left on it.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let address = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), free.number());
    socket.bind(&address.into()).unwrap();
}

#[tokio::test]
async fn a_probe_comes_from_outside_the_pool_and_closes_without_a_trace() {
    let mut service = Service::on("127.0.0.1", 0, Play::Names);
    let all = portreeve_api::sockets::ephemeral().unwrap();
    // All but the last thousand numbers are the pool's.
    let kept: Vec<_> = all.iter().collect();
    let (pool, left) = kept.split_at(kept.len() - 1000);
    let pool = PortRanges::new(pool.iter().map(|port| PortRange::single(*port)));
    let mut target = service.replica("127.0.0.1");
    target.sources = SourcePorts::beside(&pool);
    for _ in 0..20 {
        let report = tcp(service.port, target.clone()).await;
        assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
    }
    let lines = service.said.by_ref().map_while(Result::ok).take(20);
    let from: Vec<u16> = lines.map(|line| line.parse().unwrap()).collect();
    assert!(
        from.iter().all(|port| left[0].number() <= *port),
        "{from:?}"
    );
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let number = format!(":{:04X}", service.port.number());
    let waits = |line: &&str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        fields.get(3) == Some(&"06") && fields[1..3].iter().any(|end| end.ends_with(&number))
    };
    assert_eq!(table.lines().filter(waits).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn an_address_that_the_host_has_lost_is_not_asked_and_the_service_not_blamed() {
    // The address went with its cable's driver or was moved to another host, and the agent does not know yet: three
    // failures by then would restart every service of the host.
    let lost = "192.0.2.1";
    let service = Service::on("0.0.0.0", 0, Play::Answers);
    let target = service.replica(lost);
    let words = format!("{lost} is no address of this host any more");
    let asked = Instant::now();
    for report in [
        tcp(service.port, target.clone()).await,
        http(service.port, target.clone(), LONG).await,
    ] {
        let found = (report.outcome, report.text, report.shortage);
        assert_eq!(found, (ProbeOutcome::Inconclusive, words.clone(), None));
    }
    assert!(asked.elapsed() < LONG);
    // Whether it lives can be asked all the same, where it listens.
    let alive = |service: &Service| {
        let mut target = service.replica(lost);
        target.kind = ProbeKind::Liveness;
        target
    };
    for report in [
        tcp(service.port, alive(&service)).await,
        http(service.port, alive(&service), LONG).await,
        listening(target).await,
    ] {
        assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
    }
    let hangs = Service::on("0.0.0.0", 0, Play::Listens);
    let report = http(hangs.port, alive(&hangs), Duration::from_millis(200)).await;
    assert_eq!(report.outcome, ProbeOutcome::Timeout, "{}", report.text);
    let free = port_of(&TcpListener::bind("127.0.0.1:0").unwrap());
    let report = tcp(free, alive(&hangs)).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail, "{}", report.text);
}
