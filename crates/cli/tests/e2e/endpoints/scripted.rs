//! A host whose replicas do what the test says: it speaks to the controller as an agent and its workers do.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use portreeve::identity::{HostName, Run};
use portreeve::registry::{HostFacts, HostOwner, ReplicaReport};
use portreeve::supervision::{State, Status};
use portreeve_api::body::{DesiredReplica, DesiredSet};
use portreeve_api::paths;
use serde::Serialize;

use super::wire::{Answer, Place, Wire};

/// Longer than the controller holds a question for orders.
const PATIENCE: Duration = Duration::from_secs(60);

/// One host with a kept connection for what its workers tell.
pub(crate) struct ScriptedHost {
    place: Place,
    host: HostName,
    wire: Wire,
    published: Option<IpAddr>,
    replicas: Vec<DesiredReplica>,
    told: Vec<Status>,
}

impl ScriptedHost {
    /// Joins under this name with nothing on it.
    pub(crate) fn join(place: &Place, name: &str) -> io::Result<Self> {
        let mut joined = Self {
            place: place.clone(),
            host: name.parse().map_err(io::Error::other)?,
            wire: Wire::open(place, PATIENCE)?,
            published: Some(Ipv4Addr::LOCALHOST.into()),
            replicas: Vec::new(),
            told: Vec::new(),
        };
        joined.report()?;
        Ok(joined)
    }

    /// Waits for the orders for so many replicas, of all services, and starts them: none is ready.
    pub(crate) fn start(&mut self, count: usize) -> io::Result<()> {
        let path = paths::host_part(&self.host, "desired");
        let mut since = None;
        let set = loop {
            let path = match since {
                None => path.clone(),
                Some(since) => format!("{path}?since={since}"),
            };
            let mut wire = Wire::open(&self.place, PATIENCE)?;
            let answer = sound(wire.get(&path, &[])?)?;
            let set: DesiredSet = serde_json::from_slice(&answer.body)?;
            if set.replicas.len() >= count {
                break set;
            }
            since = Some(set.revision);
        };
        for replica in set.replicas {
            let known = |known: &&DesiredReplica| {
                let same = |one: &DesiredReplica| (one.desired.service.clone(), one.desired.index);
                same(known) == same(&replica)
            };
            if self.replicas.iter().find(known).is_none() {
                self.replicas.push(replica);
                self.told.push(started());
                self.tell(self.told.len() - 1, false)?;
            }
        }
        Ok(())
    }

    /// How many replicas it runs.
    pub(crate) fn len(&self) -> usize {
        self.replicas.len()
    }

    /// The worker of this replica (in the order in which they were ordered) tells whether it is ready; returns when
    /// the controller has it.
    pub(crate) fn tell(&mut self, nth: usize, ready: bool) -> io::Result<()> {
        let news = self.news(nth, ready)?;
        news.put(&mut self.wire)?;
        sound(self.wire.answer()?).map(drop)
    }

    /// The same over a connection of its own, on which the answer is still to come.
    pub(crate) fn begin_to_tell(&mut self, nth: usize, ready: bool) -> io::Result<Wire> {
        let news = self.news(nth, ready)?;
        let mut wire = Wire::open(&self.place, PATIENCE)?;
        news.put(&mut wire)?;
        Ok(wire)
    }

    fn news(&mut self, nth: usize, ready: bool) -> io::Result<Put> {
        let status = &mut self.told[nth];
        status.seq += 1;
        status.state = State::Up;
        status.ready = ready;
        status.not_ready_reason = (!ready).then(|| "the test says so".to_owned());
        let desired = &self.replicas[nth].desired;
        let path = paths::status(&desired.service, desired.index, desired.incarnation);
        let token = Some(format!("Bearer {}", self.replicas[nth].tokens.worker));
        Put::new(path, token, status)
    }

    /// Whether this replica was last told to be ready.
    pub(crate) fn is_ready(&self, nth: usize) -> bool {
        self.told[nth].ready
    }

    /// From the next report on the host publishes this address.
    pub(crate) fn publish(&mut self, address: Option<IpAddr>) {
        self.published = address;
    }

    /// Connects anew and tells everything, as after a restart of the controller.
    pub(crate) fn report(&mut self) -> io::Result<()> {
        self.wire = Wire::open(&self.place, PATIENCE)?;
        let mut facts = facts(&self.host, self.published)?;
        for (replica, status) in self.replicas.iter().zip(&self.told) {
            facts.replicas.push(reported(&self.host, replica, status));
        }
        let path = paths::host_part(&self.host, "report");
        Put::new(path, None, &facts)?.put(&mut self.wire)?;
        sound(self.wire.answer()?).map(drop)
    }
}

/// What an agent reports of a replica.
pub(crate) fn reported(
    host: &HostName,
    replica: &DesiredReplica,
    status: &Status,
) -> ReplicaReport {
    ReplicaReport {
        host: host.clone(),
        service: replica.desired.service.clone(),
        index: replica.desired.index,
        incarnation: replica.desired.incarnation,
        service_id: Some(replica.desired.service_id),
        grant: Some(replica.desired.grant.clone()),
        status: status.clone(),
    }
}

/// A body on its way.
pub(crate) struct Put {
    path: String,
    token: Option<String>,
    body: Vec<u8>,
}

impl Put {
    pub(crate) fn new(
        path: String,
        token: Option<String>,
        body: &impl Serialize,
    ) -> io::Result<Self> {
        let body = serde_json::to_vec(body)?;
        Ok(Self { path, token, body })
    }

    pub(crate) fn put(&self, wire: &mut Wire) -> io::Result<()> {
        let mut headers = vec![("Content-Type", "application/json")];
        let token = self.token.as_deref();
        headers.extend(token.map(|token| ("Authorization", token)));
        wire.ask("PUT", &self.path, &headers, &self.body)
    }
}

/// The answer, if it is a success.
pub(crate) fn sound(answer: Answer) -> io::Result<Answer> {
    match answer.head.status {
        200..300 => Ok(answer),
        status => Err(io::Error::other(format!("{status}: {}", answer.text()))),
    }
}

/// Of a replica that just began.
pub(crate) fn started() -> Status {
    Status {
        run: Run(1),
        state: State::Up,
        pid: Some(4711),
        ..Status::silent()
    }
}

/// A host with room for everybody and nothing on it.
pub(crate) fn facts(host: &HostName, published: Option<IpAddr>) -> io::Result<HostFacts> {
    Ok(HostFacts {
        host: host.clone(),
        boot_id: "boot-1".to_owned(),
        agent_version: "0".to_owned(),
        agent: None,
        seq: None,
        addresses: Vec::new(),
        unusable: Vec::new(),
        published,
        address_rule: "the test's".to_owned(),
        dynamic: "20000-32767".parse().map_err(io::Error::other)?,
        fixed: "1024-65535".parse().map_err(io::Error::other)?,
        reserved: String::new().try_into().map_err(io::Error::other)?,
        ephemeral: "32768-60999".parse().map_err(io::Error::other)?,
        foreign: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        capabilities: Vec::new(),
        conditions: Vec::new(),
        owner: HostOwner::default(),
        shutting_down: false,
        replicas: Vec::new(),
        full: true,
    })
}
