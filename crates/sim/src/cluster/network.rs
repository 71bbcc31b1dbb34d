//! Messages between hosts and the controller: when each arrives, how often, or that it never does.
//!
//! A message is a question of a host or the answer to it. That nobody listens where the controller should be is an answer
//! too, and is lost like one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use portreeve::residency::uplink::PATIENCE;
use portreeve::time::{Monotonic, WallClock};

use super::act::HostNo;
use super::chance::Chance;
use super::spec::NetworkSpec;
use super::wire::{Asker, Question, Reply};

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Of the host: who asks, or whom the answer is for.
    pub(crate) asker: Asker,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Question {
        question: Question,
        /// What the sender's clock showed.
        sent: WallClock,
        over: Connection,
    },
    Reply(Reply),
}

impl Message {
    const fn is_question(&self) -> bool {
        matches!(self.content, Content::Question { .. })
    }
}

/// What a question is sent over. One that was given up may still arrive over it, but no longer than both ends live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) since: Monotonic,
    /// Which controller process it leads to.
    pub(crate) controller: u64,
    /// Of the host.
    pub(crate) boot: u64,
}

impl Connection {
    /// Whether what an agent sent over this is gone where `now` is what there is. As long as the agent waits for the
    /// answer, it may still be about to connect, to whoever listens then.
    pub(crate) fn is_broken(self, now: Self) -> bool {
        let is_given_up = now.since.since(self.since) >= PATIENCE;
        is_given_up && (self.controller, self.boot) != (now.controller, now.boot)
    }
}

/// What is on its way, and what becomes of what is sent.
#[derive(Debug)]
pub(crate) struct Network {
    spec: NetworkSpec,
    cut_off: Vec<CutOff>,
    /// By arrival, then in the order of sending.
    under_way: BTreeMap<(Monotonic, u64), Message>,
    sent: u64,
    chance: Chance,
    counts: Counts,
}

/// The directions in which a host is cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CutOff {
    pub(crate) from_host: bool,
    pub(crate) to_host: bool,
}

/// What became of messages so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    pub(crate) lost: u64,
    pub(crate) cut_off: u64,
    pub(crate) duplicated: u64,
    pub(crate) held_back: u64,
}

impl Network {
    pub(crate) fn new(spec: NetworkSpec, hosts: usize, chance: Chance) -> Self {
        Self {
            spec,
            cut_off: vec![CutOff::default(); hosts],
            under_way: BTreeMap::new(),
            sent: 0,
            chance,
            counts: Counts::default(),
        }
    }

    /// How messages travel that are sent from now on.
    pub(crate) fn become_like(&mut self, spec: NetworkSpec) {
        self.spec = spec;
    }

    /// Nothing is lost, doubled or held back from now on, and nobody is cut off; it stays as slow as it is.
    pub(crate) fn heal(&mut self) {
        let ideal = NetworkSpec::default();
        self.spec = NetworkSpec {
            delay: self.spec.delay.clone(),
            ..ideal
        };
        self.cut_off.fill(CutOff::default());
    }

    pub(crate) fn cut_off(&mut self, host: HostNo, directions: CutOff) {
        self.cut_off[host] = directions;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a message on its way, or loses it.
    pub(crate) fn send(&mut self, now: Monotonic, message: Message) {
        self.counts.sent += 1;
        if self.is_in_the_way(&message) {
            self.counts.cut_off += 1;
        } else if self.chance.hits(self.spec.loss) {
            self.counts.lost += 1;
        } else {
            if self.chance.hits(self.spec.duplication) {
                self.counts.duplicated += 1;
                self.carry(now, message.clone());
            }
            self.carry(now, message);
        }
    }

    pub(crate) fn next(&self) -> Option<Monotonic> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next message that arrives at `now`; one to or from a host that was cut off meanwhile does not.
    pub(crate) fn arrive(&mut self, now: Monotonic) -> Option<Message> {
        while self.next()? <= now {
            let (_, message) = self.under_way.pop_first()?;
            if !self.is_in_the_way(&message) {
                self.counts.arrived += 1;
                return Some(message);
            }
            self.counts.cut_off += 1;
        }
        None
    }

    fn carry(&mut self, now: Monotonic, message: Message) {
        let mut takes = self.chance.span(&self.spec.delay);
        let (parts, most) = self.spec.reordering;
        if self.chance.hits(parts) {
            self.counts.held_back += 1;
            takes += self.chance.span(&(Duration::ZERO..most));
        }
        self.sent += 1;
        self.under_way.insert((now + takes, self.sent), message);
    }

    fn is_in_the_way(&self, message: &Message) -> bool {
        let cut_off = self.cut_off[message.asker.host];
        if message.is_question() {
            cut_off.from_host
        } else {
            cut_off.to_host
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Question { question, .. } => write!(f, "{}: {question}", self.asker),
            Content::Reply(reply) => write!(f, "{} is told: {reply}", self.asker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Who;
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const OVER: Connection = Connection {
        since: Monotonic::from_millis(5),
        controller: 1,
        boot: 1,
    };

    fn network(spec: NetworkSpec) -> Network {
        Network::new(spec, 2, Chance::of(3))
    }

    fn message(host: HostNo, question: u64, content: Content) -> Message {
        let asker = Asker {
            host,
            who: Who::Agent,
            life: 1,
            question,
        };
        Message { asker, content }
    }

    fn reply(host: HostNo, question: u64) -> Message {
        message(host, question, Content::Reply(Reply::Unreachable))
    }

    fn question(host: HostNo, number: u64) -> Message {
        let agent = portreeve::registry::AgentIdentity {
            machine: "m".into(),
            boot_id: "b".into(),
            folder: "f".into(),
        };
        let question = Question::Shutdown {
            host: "n1".parse().unwrap(),
            agent,
        };
        let sent = WallClock::default();
        let over = OVER;
        message(
            host,
            number,
            Content::Question {
                question,
                sent,
                over,
            },
        )
    }

    fn arrived(network: &mut Network) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        while let Some(at) = network.next() {
            if let Some(message) = network.arrive(at) {
                all.push((at.as_millis(), message.asker.question));
            }
        }
        all
    }

    #[test]
    fn an_ideal_network_delivers_each_once_at_once_and_in_order() {
        let mut network = network(NetworkSpec::default());
        for number in 0..5 {
            network.send(Monotonic::from_millis(7), reply(0, number));
        }
        let all: Vec<_> = (0..5).map(|number| (7, number)).collect();
        assert_eq!(arrived(&mut network), all);
    }

    #[test]
    fn messages_are_lost_doubled_and_overtaken_as_often_as_the_spec_says() {
        let mut network = network(NetworkSpec {
            delay: MS..5 * MS,
            loss: 100_000,
            duplication: 100_000,
            reordering: (100_000, 200 * MS),
        });
        for number in 0..1_000 {
            network.send(Monotonic::from_millis(number * 10), reply(0, number));
        }
        let all = arrived(&mut network);
        let counts = network.counts();
        assert!((50..150).contains(&counts.lost), "{counts:?}");
        assert!((50..150).contains(&counts.duplicated), "{counts:?}");
        assert!((50..150).contains(&counts.held_back), "{counts:?}");
        assert_eq!(all.len() as u64, counts.arrived);
        assert_eq!(counts.arrived, 1_000 - counts.lost + counts.duplicated);
        assert!(all.iter().any(|(at, number)| *at > number * 10 + 10));
        assert!(!all.is_sorted_by_key(|(_, number)| *number));
    }

    #[test]
    fn what_an_agent_gave_up_arrives_late_as_long_as_both_ends_live() {
        let at = |ms, controller, boot| Connection {
            since: Monotonic::from_millis(ms),
            controller,
            boot,
        };
        assert!(!OVER.is_broken(at(40_000, 1, 1)));
        assert!(OVER.is_broken(at(40_000, 2, 1)));
        assert!(OVER.is_broken(at(40_000, 1, 2)));
        // It is still about to connect.
        assert!(!OVER.is_broken(at(10_004, 2, 1)));
        assert!(OVER.is_broken(at(10_005, 2, 1)));
    }

    #[test]
    fn a_partition_takes_one_direction_of_one_host_and_what_is_under_way_there() {
        let mut network = network(NetworkSpec {
            delay: 5 * MS..5 * MS,
            ..NetworkSpec::default()
        });
        let now = Monotonic::from_millis(1);
        network.send(now, question(0, 1));
        network.send(now, reply(0, 2));
        network.send(now, question(1, 3));
        let from_host = CutOff {
            from_host: true,
            to_host: false,
        };
        network.cut_off(0, from_host);
        network.send(now, question(0, 4));
        assert_eq!(arrived(&mut network), [(6, 2), (6, 3)]);
        assert_eq!(network.counts().cut_off, 2);
        network.heal();
        network.send(now, question(0, 5));
        assert_eq!(arrived(&mut network), [(6, 5)], "as slow as before");
    }
}
