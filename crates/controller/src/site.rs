//! A whole controller in a temporary folder, its users, and a fake agent: for the tests of this crate.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use portreeve::identity::{HostName, Run};
use portreeve::profile::Profile;
use portreeve::registry::{Answer, HostFacts, HostOwner, ServiceView};
use portreeve::supervision::{State, Status};
use portreeve_api::body::{DesiredReplica, DesiredSet, Lease};
use portreeve_api::site_profiles::SiteFolder;
use portreeve_api::{Client, ClientError, Problem, Target, paths};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::peer::Peer;
use crate::{Config, Controller, StartError};

/// Longer than anything here takes; a test that waits so long fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Somebody who owns nothing and is in no group.
pub(crate) const STRANGER: u32 = 3_999_999;
/// Another one.
pub(crate) const OWNER: u32 = 3_999_998;

pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) controller: Controller,
}

impl Site {
    /// How many commits there were once none comes any more. News is written at most a second after it was
    /// told, so what is told before this is counted.
    pub(crate) async fn commits_at_rest(&self) -> u64 {
        let mut before = None;
        while before != Some(self.controller.commits()) {
            before = Some(self.controller.commits());
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        }
        self.controller.commits()
    }

    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let controller = Controller::start(config(&folder)).await.unwrap();
        Self { folder, controller }
    }

    /// As after `kill -9` and a new start.
    pub(crate) async fn killed_and_started(self) -> Self {
        drop(self.controller);
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            match Controller::start(config(&self.folder)).await {
                Ok(controller) => {
                    return Self {
                        folder: self.folder,
                        controller,
                    };
                }
                // The killed one's tasks let go of the store one after the other.
                Err(StartError::Store(_)) if std::time::Instant::now() < deadline => {
                    tokio::task::yield_now().await;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// A client over the Unix socket: this process's own user, an admin here.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.controller.addresses()[0].clone())
    }

    /// The TCP address as `host:port`.
    pub(crate) fn tcp(&self) -> String {
        let mut addresses = self.controller.addresses().iter();
        addresses
            .find_map(|address| match address {
                Target::Tcp(address) => Some(address.clone()),
                Target::Unix(_) | Target::Tls(_) => None,
            })
            .unwrap()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        self.client().get(path, PATIENCE).await.unwrap()
    }

    pub(crate) async fn submit(&self, toml: &str) -> Answer {
        let profile = Profile::from_toml(toml).unwrap().profile;
        let path = paths::service(&profile.name);
        let client = self.client();
        let submitted = client.call(Method::PUT, &path, &profile, PATIENCE);
        submitted.await.unwrap()
    }

    pub(crate) async fn service(&self, name: &str) -> ServiceView {
        self.get(&paths::service(&name)).await
    }

    /// One request as the user of this uid would make it over the Unix socket.
    pub(crate) async fn as_user(&self, uid: u32, request: Request<Body>) -> Seen {
        let mut request = request;
        request
            .extensions_mut()
            .insert(Arc::new(Peer::Unix { uid }));
        let api = crate::rest::Api::new(Arc::clone(&self.controller.app));
        let response = api.answer(request).await;
        let (parts, body) = response.into_parts();
        Seen {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The problem, whose form is checked.
    pub(crate) fn problem(&self) -> Problem {
        assert_eq!(self.headers["content-type"], Problem::MEDIA_TYPE);
        let problem: Problem = self.json();
        assert_eq!(problem.status, self.status.as_u16());
        problem
    }
}

pub(crate) fn config(folder: &TempDir) -> Config {
    Config {
        networks: portreeve::host_addr::Networks::default(),
        data: folder.path().join("data"),
        socket: folder.path().join("run/controller.sock"),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        tls: None,
        insecure: false,
        audit: None,
        single_host: true,
        cooling: Duration::from_secs(60),
        // What is told is shown before it is acknowledged.
        coalesce: Duration::ZERO,
        silence: portreeve::registry::Silence::default(),
        new_epoch: false,
        site_profiles: SiteFolder::at(Some(folder.path().join("profiles"))),
        max_connections: None,
        max_streams: None,
        requests_per_second: None,
        limits: None,
        rights: None,
        jwt: None,
    }
}

pub(crate) fn request(method: Method, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request.body(Body::empty()).unwrap()
}

pub(crate) fn put(path: &str, media_type: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = request(Method::PUT, path);
    *request.body_mut() = body.into();
    let media_type = media_type.parse().unwrap();
    request.headers_mut().insert("content-type", media_type);
    request
}

/// A profile with one published port and one that is not.
pub(crate) fn profile(name: &str, replicas: u32) -> String {
    format!(
        "kind = \"service\"\nname = \"{name}\"\nreplicas = {replicas}\ncommand = [\"sleep\", \"9\"]\n\
         [ports]\nhttp = \"any\"\ninternal = {{ any = 1, publish = false }}\n"
    )
}

pub(crate) fn problem_of<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    match answer.unwrap_err() {
        ClientError::Refused(problem) => *problem,
        other => panic!("{other}"),
    }
}

/// A host whose replicas do what the test says.
pub(crate) struct FakeAgent {
    pub(crate) host: HostName,
    client: Client,
}

impl FakeAgent {
    /// Joins as host `n1` with nothing on it.
    pub(crate) async fn join(site: &Site) -> Self {
        let agent = Self::named(site, "n1");
        agent.report(&agent.facts()).await;
        agent
    }

    /// One that has said nothing yet.
    pub(crate) fn named(site: &Site, host: &str) -> Self {
        Self {
            host: host.parse().unwrap(),
            client: site.client(),
        }
    }

    pub(crate) fn facts(&self) -> HostFacts {
        facts(&self.host)
    }

    pub(crate) async fn report(&self, facts: &HostFacts) -> Lease {
        let path = paths::host_part(&self.host, "report");
        let told = self.client.call(Method::PUT, &path, facts, PATIENCE);
        told.await.unwrap()
    }

    pub(crate) async fn desired(&self, since: Option<u64>) -> DesiredSet {
        let mut path = paths::host_part(&self.host, "desired");
        if let Some(since) = since {
            path.push_str(&format!("?since={since}"));
        }
        // It is held up to 30 s.
        self.client.get(&path, 2 * PATIENCE).await.unwrap()
    }

    /// Polls until the set satisfies `enough`.
    pub(crate) async fn desired_until(&self, enough: impl Fn(&DesiredSet) -> bool) -> DesiredSet {
        let mut since = None;
        loop {
            let set = self.desired(since).await;
            if enough(&set) {
                return set;
            }
            since = Some(set.revision);
        }
    }

    /// A replica's worker tells its status.
    pub(crate) async fn tell(&self, replica: &DesiredReplica, status: &Status) {
        self.try_tell(replica, status).await.unwrap();
    }

    pub(crate) async fn try_tell(
        &self,
        replica: &DesiredReplica,
        status: &Status,
    ) -> Result<Lease, ClientError> {
        let desired = &replica.desired;
        let path = paths::status(&desired.service, desired.index, desired.incarnation);
        let client = self
            .client
            .clone()
            .with_token(Some(replica.tokens.worker.clone()));
        client.call(Method::PUT, &path, status, PATIENCE).await
    }
}

/// A host with a hundred free numbers and nothing on it.
pub(crate) fn facts(host: &HostName) -> HostFacts {
    HostFacts {
        host: host.clone(),
        boot_id: "boot-1".into(),
        agent_version: "0".into(),
        agent: None,
        seq: None,
        addresses: Vec::new(),
        unusable: Vec::new(),
        published: Some("127.0.0.1".parse().unwrap()),
        address_rule: "the test's".into(),
        dynamic: "20000-20099".parse().unwrap(),
        fixed: "1024-65535".parse().unwrap(),
        reserved: String::new().try_into().unwrap(),
        ephemeral: "32768-60999".parse().unwrap(),
        foreign: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        capabilities: Vec::new(),
        conditions: Vec::new(),
        owner: HostOwner::default(),
        shutting_down: false,
        replicas: Vec::new(),
        full: true,
    }
}

/// A status of run 1.
pub(crate) fn status(seq: u64, state: State, ready: bool) -> Status {
    Status {
        run: Run(1),
        seq,
        state,
        ready,
        pid: Some(4711),
        ..Status::silent()
    }
}
