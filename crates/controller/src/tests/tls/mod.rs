//! Listeners beyond loopback: who is believed, who is heard, and what a peer that does not greet can do.

mod authority;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use portreeve_api::body::WhoAmI;
use portreeve_api::tls::{TlsFault, TlsFiles};
use portreeve_api::{Client, ClientError, Target, paths};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::limits::Limits;
use crate::listen::{Listener, serve};
use crate::site::{FakeAgent, PATIENCE, Site, config, problem_of, profile};
use crate::stop::StopSwitch;
use crate::tls::Seal;
use crate::{Controller, ServerTls, StartError};
use authority::Authority;

/// A listener as beyond loopback, over the site's routes.
struct Far {
    address: String,
    seal: Option<Arc<Seal>>,
    _switch: StopSwitch,
}

impl Far {
    async fn over_tls(site: &Site, files: ServerTls, limits: Limits) -> Self {
        let seal = Arc::new(Seal::of(files).unwrap());
        Self::listening(site, Some(seal), limits).await
    }

    async fn listening(site: &Site, seal: Option<Arc<Seal>>, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (switch, stop) = StopSwitch::new();
        let api = crate::rest::Api::new(Arc::clone(&site.controller.app));
        let listener = Listener::Remote(listener, seal.clone());
        tokio::spawn(serve(listener, api, limits, stop));
        Self {
            address,
            seal,
            _switch: switch,
        }
    }

    fn client(&self, files: TlsFiles) -> Client {
        Client::new(Target::Tls(self.address.clone())).with_tls(files)
    }
}

fn limits() -> Limits {
    Limits::of_account(u32::MAX, None, None)
}

fn believing(authority: &Authority) -> TlsFiles {
    TlsFiles {
        ca: Some(authority.file()),
        own: None,
    }
}

async fn healthy(client: &Client) -> Result<(), ClientError> {
    let asked = client.send(Method::GET, "/healthz", None, "text/plain", PATIENCE);
    asked.await.map(|_| ())
}

fn fault_of<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> TlsFault {
    match answer.unwrap_err() {
        ClientError::Tls { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

/// The token of a job, and the name of its service.
async fn token_of_a_job(site: &Site) -> String {
    let agent = FakeAgent::join(site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    set.replicas[0].tokens.job.clone()
}

#[tokio::test]
async fn over_tls_a_token_says_who_asks_and_nothing_else_does() {
    let site = Site::start().await;
    let folder = site.folder.path();
    let ca = Authority::new(folder, "ca");
    let far = Far::over_tls(&site, ca.serves("server"), limits()).await;
    let client = far.client(believing(&ca));
    healthy(&client).await.unwrap();
    let nobody = client.get::<WhoAmI>(&paths::whoami(), PATIENCE).await;
    let problem = problem_of(nobody);
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (401, "unauthenticated")
    );
    let token = token_of_a_job(&site).await;
    let client = client.with_token(Some(token));
    let job: WhoAmI = client.get(&paths::whoami(), PATIENCE).await.unwrap();
    assert!(!job.admin, "{job:?}");
    // A stream is taken out of HTTP's hands and goes on over the same seal.
    let opened = client.download("/api/v1/watch", "text/event-stream", PATIENCE);
    let mut stream = opened.await.unwrap();
    let mut told = String::new();
    while !told.contains("event: bookmark") {
        let piece = stream.piece().await.unwrap().unwrap();
        told.push_str(std::str::from_utf8(&piece).unwrap());
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_refused_in_its_own_words() {
    let site = Site::start().await;
    let folder = site.folder.path();
    let (ca, other) = (
        Authority::new(folder, "ca"),
        Authority::new(folder, "other"),
    );
    let far = Far::over_tls(&site, ca.serves("server"), limits()).await;
    let unknown = fault_of(healthy(&far.client(believing(&other))).await);
    assert_eq!(unknown, TlsFault::UnknownIssuer);
    assert!(unknown.to_string().contains("--ca"), "{unknown}");

    let serves = |file: &str, names: &[&str], until| {
        let own = ca.signs(file, names, until);
        ServerTls {
            certificate: own.certificate,
            key: own.key,
            client_ca: None,
        }
    };
    let old = Far::over_tls(&site, serves("old", &["127.0.0.1"], 2001), limits()).await;
    assert_eq!(
        fault_of(healthy(&old.client(believing(&ca))).await),
        TlsFault::Expired
    );

    let named = serves("named", &["ctl.example"], 4000);
    let named = Far::over_tls(&site, named, limits()).await;
    let wrong = fault_of(healthy(&named.client(believing(&ca))).await);
    assert!(wrong.to_string().contains("is for ctl.example"), "{wrong}");

    let plain = site.tcp();
    let plain = Client::new(Target::Tls(plain)).with_tls(believing(&ca));
    assert_eq!(fault_of(healthy(&plain).await), TlsFault::NotTls);
    let missing = TlsFiles {
        ca: Some(folder.join("none.pem")),
        own: None,
    };
    let missing = fault_of(healthy(&far.client(missing)).await);
    assert!(missing.to_string().contains("none.pem"), "{missing}");
}

#[tokio::test]
async fn where_a_ca_of_clients_is_named_everybody_shows_its_certificate() {
    let site = Site::start().await;
    let folder = site.folder.path();
    let (ca, other) = (
        Authority::new(folder, "ca"),
        Authority::new(folder, "other"),
    );
    let files = ServerTls {
        client_ca: Some(ca.file()),
        ..ca.serves("server")
    };
    let far = Far::over_tls(&site, files, limits()).await;
    let nothing = fault_of(healthy(&far.client(believing(&ca))).await);
    assert_eq!(nothing, TlsFault::CertificateWanted);
    let showing = |authority: &Authority, file: &str, until| TlsFiles {
        own: Some(authority.signs(file, &["n1"], until)),
        ..believing(&ca)
    };
    for wrong in [showing(&other, "theirs", 4000), showing(&ca, "old", 2001)] {
        let refused = fault_of(healthy(&far.client(wrong)).await);
        let is_refused = matches!(refused, TlsFault::CertificateRefused { .. });
        assert!(is_refused, "{refused:?}");
    }
    healthy(&far.client(showing(&ca, "ours", 4000)))
        .await
        .unwrap();
}

#[tokio::test]
async fn who_does_not_greet_is_cut_and_takes_nothing_from_others() {
    let site = Site::start().await;
    let ca = Authority::new(site.folder.path(), "ca");
    let short = Limits {
        head_within: Duration::from_millis(300),
        ..limits()
    };
    let far = Far::over_tls(&site, ca.serves("server"), short).await;
    let mut silent = TcpStream::connect(&far.address).await.unwrap();
    let mut half = TcpStream::connect(&far.address).await.unwrap();
    // The beginning of a greeting of 512 bytes that never come.
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    let mut garbage = TcpStream::connect(&far.address).await.unwrap();
    garbage.write_all(&[0xff; 4096]).await.unwrap();
    healthy(&far.client(believing(&ca))).await.unwrap();
    for stream in [&mut silent, &mut half, &mut garbage] {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest));
        // A reset is an end too.
        let _ = read.await.expect("it is cut");
        assert!(rest.len() < 64, "at most an alert: {rest:?}");
    }
}

#[tokio::test]
async fn who_does_not_greet_takes_of_the_share_of_its_machine_alone_and_only_for_a_while() {
    let site = Site::start().await;
    let ca = Authority::new(site.folder.path(), "ca");
    let few = Limits {
        per_user: 2,
        head_within: Duration::from_millis(500),
        ..limits()
    };
    let far = Far::over_tls(&site, ca.serves("server"), few).await;
    let client = far.client(believing(&ca));
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(TcpStream::connect(&far.address).await.unwrap());
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut refused = 0;
    while healthy(&client).await.is_err() {
        refused += 1;
        assert!(std::time::Instant::now() < deadline, "it is never served");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(refused > 0, "a greeting is a connection");
}

#[tokio::test]
async fn a_worker_tells_its_state_over_tls_by_its_own_token() {
    let site = Site::start().await;
    let ca = Authority::new(site.folder.path(), "ca");
    let far = Far::over_tls(&site, ca.serves("server"), limits()).await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    let replica = &set.replicas[0];
    let desired = &replica.desired;
    let path = paths::status(&desired.service, desired.index, desired.incarnation);
    let told = crate::site::status(1, portreeve::supervision::State::Up, true);
    let client = far.client(believing(&ca));
    let worker = client.with_token(Some(replica.tokens.worker.clone()));
    let answer = worker.call::<serde_json::Value>(Method::PUT, &path, &told, PATIENCE);
    answer.await.unwrap();
    assert_eq!(site.service("web").await.ready, 1);
}

#[tokio::test]
async fn http_in_the_clear_is_told_that_the_port_speaks_tls() {
    let site = Site::start().await;
    let ca = Authority::new(site.folder.path(), "ca");
    let far = Far::over_tls(&site, ca.serves("server"), limits()).await;
    let plain = Client::new(Target::Tcp(far.address.clone()));
    let problem = problem_of(healthy(&plain).await);
    assert_eq!(problem.code, "tls_wanted");
    assert!(problem.detail.contains("https://"), "{problem:?}");
}

#[tokio::test]
async fn a_renewed_certificate_counts_for_new_connections_and_cuts_none() {
    let site = Site::start().await;
    let folder = site.folder.path();
    let (ca, next) = (Authority::new(folder, "ca"), Authority::new(folder, "next"));
    let far = Far::over_tls(&site, ca.serves("server"), limits()).await;
    let token = token_of_a_job(&site).await;
    let client = far.client(believing(&ca)).with_token(Some(token));
    let opened = client.download("/api/v1/watch", "text/event-stream", PATIENCE);
    let mut stream = opened.await.unwrap();
    let seal = far.seal.clone().unwrap();
    // Half a change: the key of another certificate. What was read before holds.
    let renewed = next.serves("server-next");
    std::fs::copy(&renewed.key, folder.join("server.key")).unwrap();
    let refused = seal.renew().unwrap_err();
    assert!(
        refused.to_string().contains("do not go together"),
        "{refused}"
    );
    healthy(&client).await.unwrap();
    std::fs::copy(&renewed.certificate, folder.join("server.pem")).unwrap();
    seal.renew().unwrap();
    // No session that was begun under the former is taken up.
    let anew = far.client(believing(&ca));
    assert_eq!(fault_of(healthy(&anew).await), TlsFault::UnknownIssuer);
    healthy(&far.client(believing(&next))).await.unwrap();
    site.submit(&profile("news", 1)).await;
    let mut told = String::new();
    while !told.contains("news.") {
        let piece = stream.piece().await.unwrap().unwrap();
        told.push_str(std::str::from_utf8(&piece).unwrap());
    }
    // A client reads what it believes again once the file is another.
    std::fs::copy(next.file(), ca.file()).unwrap();
    healthy(&client).await.unwrap();
}

#[tokio::test]
async fn in_the_clear_nobody_is_known_and_no_token_is_taken() {
    let site = Site::start().await;
    let far = Far::listening(&site, None, limits()).await;
    let token = token_of_a_job(&site).await;
    let shown = profile("open", 1).replacen("replicas", "visibility = \"cluster\"\nreplicas", 1);
    site.submit(&shown).await;
    let client = Client::new(Target::Tcp(far.address.clone()));
    let nobody: WhoAmI = client.get(&paths::whoami(), PATIENCE).await.unwrap();
    assert_eq!((nobody.method.as_str(), nobody.admin), ("none", false));
    let list: serde_json::Value = client.get(&paths::services(), PATIENCE).await.unwrap();
    let text = list.to_string();
    assert!(text.contains("open.") && !text.contains("web."), "{text}");
    // A name alone would be one of its own, and nobody has any.
    let open = site.service("open").await.service;
    let stop = paths::service_part(&open, "stop");
    let changed = client.call::<serde_json::Value>(Method::POST, &stop, &(), PATIENCE);
    assert_eq!(problem_of(changed.await).status, 401);
    let with = client.with_token(Some(token));
    let problem = problem_of(with.get::<WhoAmI>(&paths::whoami(), PATIENCE).await);
    assert_eq!(problem.status, 401);
    assert!(problem.detail.contains("https://"), "{problem:?}");
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_passed_over_until_the_next_does() {
    let site = Site::start().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = Target::Tcp(gone.local_addr().unwrap().to_string());
    drop(gone);
    let here = Target::Tcp(site.tcp());
    let client = Client::new(nobody.clone()).with_further([here.clone()]);
    healthy(&client).await.unwrap();
    assert_eq!(client.target(), &here, "it stays with who answered");
    let none = Client::new(nobody.clone()).with_further([nobody]);
    let refused = healthy(&none).await.unwrap_err().to_string();
    assert_eq!(
        refused.matches("no controller answers at").count(),
        2,
        "{refused}"
    );
}

#[tokio::test]
async fn a_whole_controller_listens_beyond_loopback_only_with_a_key_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "ca");
    let mut wanted = config(&folder);
    wanted.listen = vec!["0.0.0.0:0".parse().unwrap()];
    wanted.tls = Some(ca.serves("server"));
    let key = folder.path().join("server.key");
    widen(&key, 0o644);
    let refused = Controller::start(wanted.clone()).await.unwrap_err();
    assert!(matches!(refused, StartError::Tls(_)), "{refused}");
    assert!(refused.to_string().contains("chmod 600"), "{refused}");
    assert!(!wanted.data.exists(), "refused before anything is made");
    widen(&key, 0o600);
    let controller = Controller::start(wanted).await.unwrap();
    let port = controller
        .addresses()
        .iter()
        .find_map(|target| match target {
            Target::Tls(address) => address.rsplit_once(':').map(|(_, port)| port.to_owned()),
            _ => None,
        });
    let target = format!("https://localhost:{}", port.unwrap());
    let client = Client::new(target.parse().unwrap()).with_tls(believing(&ca));
    healthy(&client).await.unwrap();
    let who = client.get::<WhoAmI>(&paths::whoami(), PATIENCE).await;
    assert_eq!(problem_of(who).status, StatusCode::UNAUTHORIZED.as_u16());
    controller.reload().await;
    healthy(&client).await.unwrap();
    controller.stop().await;
}

fn widen(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
