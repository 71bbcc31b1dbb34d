//! What one listener allows its peers, and what the machine allows the listener.

use std::ops::Range;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::peer::Whose;
use crate::share::Bounds;

/// What one listener allows its peers.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Connections at once, streams among them; one more is told so and closed.
    pub(crate) connections: usize,
    /// How many of them only agents and the controller's own account may have: whoever watches or polls
    /// never keeps a host from speaking.
    pub(crate) reserved: usize,
    /// Connections at once of one user beside its streams, so that none takes all. Agents' accounts have no
    /// such bound.
    pub(crate) per_user: usize,
    /// Streams at once; one more is told so, with the time after which to ask again.
    pub(crate) streams: usize,
    /// Streams at once of one user.
    pub(crate) streams_per_user: usize,
    /// The controller's own account.
    pub(crate) own_uid: u32,
    /// A request's head has to arrive within this time; so an idle connection ends too.
    pub(crate) head_within: Duration,
    /// A peer has to take some of an answer within this time.
    pub(crate) taken_within: Duration,
    /// A watcher has to take some of its stream within this time. Far longer than for an answer: the
    /// kernel tells of what a peer took in steps of up to half its buffer, and one that takes a byte a
    /// second is slow, not gone.
    pub(crate) stream_taken_within: Duration,
    /// A stream on which nothing happened says so after about this time, give or take a fifth.
    pub(crate) heartbeat: Duration,
    /// A stream ends at an age out of this range, so that watchers spread anew.
    pub(crate) stream_age: Range<Duration>,
    /// How long connections may finish what they began when the controller stops.
    pub(crate) finish_within: Duration,
}

impl Limits {
    /// Connections, where neither the configuration nor the machine says less.
    const CONNECTIONS: usize = 16_384;
    /// In tests so long that no watcher that sleeps through a change is saved by the look at its end.
    const HEARTBEAT: Duration = Duration::from_secs(if cfg!(test) { 3_600 } else { 15 });
    /// Files that a controller needs beside its connections: its store, its listeners, what it reads.
    const OTHER_FILES: usize = 256;

    /// The limits of a controller that runs under this account: at most `connections` and `streams` where
    /// these are given, and never more than it may have files.
    pub(crate) fn of_account(
        own_uid: u32,
        connections: Option<usize>,
        streams: Option<usize>,
    ) -> Self {
        let files = usize::try_from(open_files().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let room = files.saturating_sub(Self::OTHER_FILES).max(1);
        let connections = connections.unwrap_or(Self::CONNECTIONS).clamp(1, room);
        let streams = streams.unwrap_or(connections / 4 * 3).min(connections);
        Self {
            connections,
            reserved: (connections / 8).min(1024),
            per_user: (connections / 4).min(1024),
            streams,
            streams_per_user: streams.div_ceil(2),
            own_uid,
            head_within: Duration::from_secs(10),
            taken_within: Duration::from_secs(30),
            stream_taken_within: Duration::from_secs(15 * 60),
            heartbeat: Self::HEARTBEAT,
            stream_age: Duration::from_secs(30 * 60)..Duration::from_secs(60 * 60),
            finish_within: Duration::from_secs(5),
        }
    }

    /// How many connections, streams aside, and how many streams there may be when this user wants one more.
    pub(crate) fn of(&self, whose: Whose) -> (Bounds, Bounds) {
        if let Whose::Account(Some(uid)) = whose
            && (uid == 0 || uid == self.own_uid)
        {
            let all = |all| Bounds { each: all, all };
            return (all(self.connections), all(self.streams));
        }
        let connections = Bounds {
            each: self.per_user,
            all: self.connections - self.reserved,
        };
        let streams = Bounds {
            each: self.streams_per_user,
            all: self.streams,
        };
        (connections, streams)
    }

    /// How many questions of one user, and of all, are held at once: a held question is a connection, and
    /// workers, which speak as their user, need some.
    pub(crate) fn held(&self, admin: bool) -> Bounds {
        let all = (self.connections - self.reserved) / 4 * 3;
        let each = if admin { all } else { self.per_user / 4 * 3 };
        Bounds { each, all }
    }
}

/// How many files this process may have open; `None`: as many as it likes.
fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Lets this process have as many files open as the system allows it: each connection is one.
///
/// For a process that is a controller and nothing else: what it starts inherits the limit. Where the
/// system refuses, the limit stays as it was, and the number of connections follows it.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(cause) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%cause, "the number of open files was not raised");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_holds_within_what_the_machine_allows() {
        let limits = Limits::of_account(7, Some(400), Some(300));
        assert_eq!((limits.connections, limits.streams), (400, 300));
        assert!(limits.reserved + limits.per_user < limits.connections);
        let more_streams_than_connections = Limits::of_account(7, Some(8), Some(300));
        assert_eq!(more_streams_than_connections.streams, 8);
        let unbounded = Limits::of_account(7, Some(usize::MAX), None);
        let files = open_files().map_or(usize::MAX, |files| usize::try_from(files).unwrap());
        assert!(unbounded.connections < files);
        assert!(Limits::of_account(7, Some(0), None).connections > 0);
    }

    #[test]
    fn whoever_watches_leaves_room_for_agents_and_for_others() {
        let limits = Limits::of_account(7, Some(8_000), None);
        for agent in [0, 7] {
            let (connections, streams) = limits.of(Whose::Account(Some(agent)));
            assert_eq!((connections.each, connections.all), (8_000, 8_000));
            assert_eq!(streams.all, 6_000);
        }
        let machine = Whose::Machine(std::net::Ipv4Addr::LOCALHOST.into());
        for user in [Whose::Account(Some(8)), Whose::Account(None), machine] {
            let (connections, streams) = limits.of(user);
            assert_eq!((connections.each, connections.all), (1_024, 7_000));
            assert_eq!((streams.each, streams.all), (3_000, 6_000));
            assert!(limits.held(false).each < connections.each);
            assert!(limits.held(true).all < connections.all);
        }
    }
}
