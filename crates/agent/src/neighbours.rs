//! Other agents in the same network: they share its numbers, so their pools must be disjoint.
//!
//! Each agent answers on a socket in the abstract namespace, which the kernel keeps per network and removes with the
//! process, whatever its state folder, user or controller. Of two that meet the younger one leaves.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroU16;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use portreeve::identity::HostName;
use portreeve::port::PortRanges;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use crate::Config;

/// Begins the name of every agent's socket.
const PREFIX: &str = "portreeve-agent/";
/// So many are asked at most.
const MOST: usize = 64;
/// How long one of them may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest answer; a longer one is no agent's.
const MOST_BYTES: u64 = 64 * 1024;

/// What an agent says to its neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Card {
    host: HostName,
    /// Numbers that "any" draws from.
    dynamic: PortRanges,
    /// The name of its state folder.
    folder: String,
    /// When it began, by the clock that every process here shares.
    since_ms: u64,
    /// The nanoseconds behind that: of two that began in one millisecond, the first may have looked before the second
    /// was there. Those of earlier versions do not say.
    #[serde(default)]
    since_ns: u32,
}

impl Card {
    /// Of two, the lower was there first.
    fn age(&self) -> (u64, u32, &str) {
        (self.since_ms, self.since_ns, &self.folder)
    }
}

/// Another agent of this network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// What it said; `None`: it has a socket and did not answer.
    card: Option<Card>,
    /// Its process and user, as the kernel says; of another container the process has no number here.
    pub(crate) pid: Option<i32>,
    uid: u32,
}

impl Neighbour {
    /// Its host name, where it told that.
    pub(crate) fn host(&self) -> Option<&HostName> {
        Some(&self.card.as_ref()?.host)
    }

    /// Whether it has this state folder.
    pub(crate) fn has_folder(&self, folder: &str) -> bool {
        self.card.as_ref().is_some_and(|card| card.folder == folder)
    }

    /// Whether both could give one number; one that does not answer may give any.
    fn meets(&self, dynamic: &PortRanges) -> bool {
        let both = |card: &Card| !card.dynamic.intersection(dynamic).is_empty();
        !dynamic.is_empty() && self.card.as_ref().is_none_or(both)
    }

    /// Whether it keeps an agent of this user away: root yields to root alone, else anybody could keep it away.
    const fn counts_for(&self, uid: u32) -> bool {
        uid != 0 || self.uid == 0
    }
}

/// Why the numbers of this network are not this agent's to give. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedNumbers {
    /// Another agent gives some of them.
    #[error(
        "agent {host}{} in this network gives numbers of {theirs} already, and this one would of {ours}; \
         give each its own: {advice}",
        pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
    )]
    Overlap {
        /// Its host name.
        host: HostName,
        /// Its process, where it has a number here.
        pid: Option<i32>,
        /// Its pool.
        theirs: PortRanges,
        /// This one's pool.
        ours: PortRanges,
        /// What to start them with.
        advice: String,
    },
    /// Another agent is there and does not say what it gives.
    #[error(
        "{} in this network does not say within {} s which numbers it gives; continue or end it, then start this one again",
        pid.map_or_else(|| "an agent".to_owned(), |pid| format!("the agent of process {pid}")),
        PATIENCE.as_secs()
    )]
    Silent {
        /// Its process, where it has a number here.
        pid: Option<i32>,
    },
}

/// This agent's socket, under which the others find it as long as it lives.
#[derive(Debug)]
pub(crate) struct Presence {
    open: Arc<Open>,
    answering: Thread,
    card: Card,
    name: String,
}

/// The socket, and whether it is answered still.
#[derive(Debug)]
struct Open {
    listener: UnixListener,
    closed: AtomicBool,
}

impl Presence {
    /// Makes this agent known, unless an older one gives some of its numbers.
    ///
    /// Blocks for at most a second for each of the others, at most [`MOST`].
    ///
    /// # Errors
    ///
    /// [`SharedNumbers`], or the system's.
    pub(crate) fn announce(config: &Config, folder: &str) -> Result<Self, AnnounceError> {
        let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        let name = format!("{PREFIX}{}", uuid.trim());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let (since_ms, since_ns) = since_boot();
        let card = Card {
            host: config.host.clone(),
            dynamic: config.dynamic.clone(),
            folder: folder.to_owned(),
            since_ms,
            since_ns,
        };
        let open = Arc::new(Open {
            listener,
            closed: AtomicBool::new(false),
        });
        // From now on, not once everything else of the agent is there: of two that start at once each would wait for
        // the other in vain, and both would leave.
        let answering = std::thread::Builder::new()
            .name("neighbours".into())
            .spawn({
                let (open, card) = (open.clone(), card.clone());
                move || answer(&open, &card)
            })?;
        let own = Self {
            answering: answering.thread().clone(),
            open,
            card,
            name,
        };
        // After the own socket is there: of two that start at once, at least one sees the other.
        let uid = rustix::process::geteuid().as_raw();
        let all = others(Some(&own.name));
        for other in &all {
            let card = other.card.as_ref();
            let is_older = card.is_none_or(|card| card.age() < own.card.age());
            if is_older && let Err(shared) = apart(other, &all, &config.dynamic) {
                if other.counts_for(uid) {
                    return Err(shared.into());
                }
                warn!("{shared}; an ordinary user's agent does not keep this one away");
            }
            own.warn_of_fixed(other, config);
        }
        Ok(own)
    }

    /// Fixed requests may name what the other draws: no collision, as its listeners are seen, but a wait.
    fn warn_of_fixed(&self, other: &Neighbour, config: &Config) {
        let Some(card) = &other.card else { return };
        let both = config
            .fixed
            .intersection(&card.dynamic)
            .difference(&config.reserved);
        if !both.is_empty() {
            warn!(
                "agent {} in this network draws from {}, which fixed ports may name here; \
                 `--reserved-ports {both}` keeps them apart",
                card.host, card.dynamic
            );
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.open.closed.store(true, Ordering::Release);
        // Nobody is let in any more, and the thread that waits for somebody returns.
        _ = shutdown(&self.open.listener, Shutdown::Both);
        self.answering.unpark();
    }
}

/// Answers neighbours until the socket is closed.
fn answer(open: &Open, card: &Card) {
    let text = serde_json::to_vec(card).expect("plain data is written as JSON");
    loop {
        let accepted = open.listener.accept();
        if open.closed.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((mut asker, _)) => {
                // One that does not read must not keep the others waiting.
                let bounded = asker.set_write_timeout(Some(PATIENCE));
                let told = bounded.and_then(|()| asker.write_all(&text));
                debug!("another agent was told what is given here: {told:?}");
            }
            // No descriptor is left, say: that passes.
            Err(_) => std::thread::park_timeout(PATIENCE),
        }
    }
}

/// Whether none of the other agents keeps one with this pool away.
///
/// # Errors
///
/// [`SharedNumbers`] of the first that does.
pub(crate) fn in_the_way(others: &[Neighbour], dynamic: &PortRanges) -> Result<(), SharedNumbers> {
    let uid = rustix::process::geteuid().as_raw();
    let mut count = others.iter().filter(|other| other.counts_for(uid));
    count.try_for_each(|other| apart(other, others, dynamic))
}

/// Whether this other agent can give none of these numbers. `all` are all of them, for the advice.
///
/// # Errors
///
/// [`SharedNumbers`].
fn apart(other: &Neighbour, all: &[Neighbour], dynamic: &PortRanges) -> Result<(), SharedNumbers> {
    if !other.meets(dynamic) {
        return Ok(());
    }
    let Some(card) = &other.card else {
        return Err(SharedNumbers::Silent { pid: other.pid });
    };
    Err(SharedNumbers::Overlap {
        host: card.host.clone(),
        pid: other.pid,
        theirs: card.dynamic.clone(),
        ours: dynamic.clone(),
        advice: advice(all, dynamic),
    })
}

/// The split: what is left beside all others, and halves where there is one and both are to have the same room.
fn advice(others: &[Neighbour], ours: &PortRanges) -> String {
    let meeting = others.iter().filter(|other| other.meets(ours));
    let meeting: Vec<_> = meeting.map(|other| other.card.as_ref()).collect();
    let cards = meeting.iter().copied().flatten();
    let left = cards.fold(ours.clone(), |left, card| left.difference(&card.dynamic));
    let halves = |of: &PortRanges| {
        let halves = of.split(NonZeroU16::new(2).expect("2 is not 0"));
        format!("--ports {} there and --ports {} here", halves[0], halves[1])
    };
    match (left.is_empty(), &meeting[..]) {
        // Its pool is the larger one: of ours it would be left next to nothing.
        (true, [Some(card)]) => halves(&card.dynamic),
        (false, [Some(_)]) => format!("--ports {left} here, or {}", halves(ours)),
        (false, _) => format!("--ports {left} here"),
        (true, _) => "--ports with numbers that none of the others gives".to_owned(),
    }
}

/// The other agents of this network but for the one of this socket.
pub(crate) fn others(own: Option<&str>) -> Vec<Neighbour> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = listening(&table);
    let others = names.iter().filter(|name| Some(**name) != own).take(MOST);
    others.filter_map(|name| ask(name)).collect()
}

/// The names of agents' sockets in `/proc/net/unix`, each once.
fn listening(table: &str) -> Vec<&str> {
    const ACCEPTS: &str = "00010000";
    let names = table.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let accepts = fields.nth(3)? == ACCEPTS;
        let name = fields.nth(3)?.strip_prefix('@')?;
        (accepts && name.starts_with(PREFIX)).then_some(name)
    });
    names.collect()
}

/// What the agent of this socket says; `None`: it is gone.
fn ask(name: &str) -> Option<Neighbour> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
    match connect(&socket, &address) {
        Ok(()) => {}
        // Its queue is full: it takes nobody in. The kernel does not say whose it is.
        Err(Errno::AGAIN) => {
            return Some(Neighbour {
                card: None,
                pid: None,
                uid: 0,
            });
        }
        Err(_) => return None,
    }
    let owner = getsockopt(&socket, PeerCredentials).ok()?;
    let card = read(UnixStream::from(socket));
    if matches!(&card, Err(cause) if cause.kind() == ErrorKind::ConnectionReset) {
        // It ended with our question in its queue.
        return None;
    }
    Some(Neighbour {
        card: card.inspect_err(|cause| debug!("{name}: {cause}")).ok(),
        pid: Some(owner.pid()).filter(|pid| *pid > 0),
        uid: owner.uid(),
    })
}

fn read(stream: UnixStream) -> io::Result<Card> {
    stream.set_nonblocking(false)?;
    let deadline = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match (&stream).read(&mut part)? {
            // It ends, and answers nobody any more; a card is never empty.
            0 if text.is_empty() => return Err(ErrorKind::ConnectionReset.into()),
            0 => return Ok(serde_json::from_slice(&text)?),
            count => text.extend_from_slice(&part[..count]),
        }
        if text.len() as u64 > MOST_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

/// Milliseconds since the boot, and the nanoseconds behind them.
fn since_boot() -> (u64, u32) {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = now.tv_nsec.unsigned_abs();
    let rest = u32::try_from(nanos % 1_000_000).unwrap_or_default();
    (now.tv_sec.unsigned_abs() * 1000 + nanos / 1_000_000, rest)
}

/// Why this agent could not make itself known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnnounceError {
    #[error(transparent)]
    Shared(#[from] SharedNumbers),
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(host: &str, dynamic: &str) -> Card {
        Card {
            host: host.parse().unwrap(),
            dynamic: dynamic.to_owned().try_into().unwrap(),
            folder: "f".to_owned(),
            since_ms: 1,
            since_ns: 0,
        }
    }

    fn neighbour(card: Option<Card>) -> Neighbour {
        Neighbour {
            card,
            pid: Some(811),
            uid: 1000,
        }
    }

    #[test]
    fn pools_that_meet_are_refused_with_the_split() {
        let other = neighbour(Some(card("n1", "20000-32767")));
        let one = std::slice::from_ref(&other);
        let refused = |ours: &str| {
            apart(&other, one, &ours.parse().unwrap())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused("20000-32767"),
            "agent n1 (process 811) in this network gives numbers of 20000-32767 already, and this one would of \
             20000-32767; give each its own: --ports 20000-26383 there and --ports 26384-32767 here"
        );
        assert!(
            refused("30000-40000").contains("give each its own: --ports 32768-40000 here, or "),
        );
        // Half of so few would leave the other next to nothing.
        assert!(refused("30000-30010").contains("--ports 20000-26383 there and --ports 26384-"));
        assert_eq!(apart(&other, one, &"32768-40000".parse().unwrap()), Ok(()));
        assert_eq!(apart(&other, one, &PortRanges::default()), Ok(()));
    }

    #[test]
    fn the_advice_leaves_every_other_agent_its_numbers() {
        // Three of `dev --hosts 3`: what the first of them leaves is the others'.
        let thirds = ["20000-24255", "24256-28511", "28512-32767"];
        let all = thirds.map(|numbers| neighbour(Some(card("n", numbers))));
        let refused = |ours: &str| {
            apart(&all[0], &all, &ours.parse().unwrap())
                .unwrap_err()
                .to_string()
        };
        assert!(refused("20000-33000").ends_with("own: --ports 32768-33000 here"));
        assert!(refused("20000-32767").ends_with("numbers that none of the others gives"));
    }

    #[test]
    fn one_that_does_not_answer_may_give_any_number() {
        let silent = neighbour(None);
        let refused = apart(&silent, &[], &"20000".parse().unwrap()).unwrap_err();
        assert_eq!(refused, SharedNumbers::Silent { pid: Some(811) });
        // But an ordinary user's does not keep root's away.
        assert!(!silent.counts_for(0) && silent.counts_for(1000) && silent.counts_for(1001));
    }

    #[test]
    fn sockets_of_agents_are_found_among_others() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 100 @portreeve-agent/a-b\n\
            0: 00000003 00000000 00000000 0001 03 101 @portreeve-agent/a-b\n\
            0: 00000002 00000000 00010000 0001 01 102 /run/x.sock\n\
            0: 00000002 00000000 00010000 0001 01 103\n";
        assert_eq!(listening(table), ["portreeve-agent/a-b"]);
    }
}
