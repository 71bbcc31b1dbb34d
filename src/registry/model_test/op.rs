//! What can happen to the cluster of the model.

use std::time::Duration;

use proptest::prelude::*;

use super::super::rig::{name, profile, submission, web, with_port};
use super::super::{Command, DrainPace, HostVerb};
use super::plain::Meaning;

pub(super) const HOSTS: [&str; 3] = ["n1", "n2", "n3"];
pub(super) const SERVICES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
pub(super) enum Op {
    Ask(usize, Wish),
    Stranger(usize),
    /// The worker of the n-th living replica, wherever it lives, has something new, and tells it if it can.
    Tell(usize, usize),
    /// An old status arrives again.
    Replay(usize),
    /// The agent tells everything, or its facts alone.
    Join(usize, bool),
    /// The power of the host goes and comes back.
    Boot(usize),
    /// An operator orders something about a host.
    Operate(usize, Order),
    /// The host goes down in order, or says so.
    Shutdown(usize),
    /// Nothing of the host arrives any more, and it hears nothing.
    Cut(usize),
    /// What the host says arrives again: its workers' words before its agent's, or after.
    Mend(usize, bool),
    Foreign(usize, u16),
    Pass(u64),
    FailNext(u32),
    /// From now on a batch stays with the store.
    Slow,
    /// The store answers.
    Land,
    /// The controller dies; a batch that is with the store never gets there.
    Crash,
    /// The controller dies after the batch became durable and before anybody was told.
    CrashStored,
}

/// What an operator orders about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Drain(Option<u64>),
    DrainAtOnce,
    Undrain,
    /// It is declared lost, whether or not it is.
    Down,
    /// Its power is cut, and it is declared so.
    Fenced,
    Remove,
    FenceUnknown,
}

impl Order {
    pub(super) fn verb(self) -> HostVerb {
        let within = |ms| DrainPace::Within(Duration::from_millis(ms));
        match self {
            Self::Drain(ms) => HostVerb::Drain {
                pace: ms.map_or(DrainPace::OneByOne, within),
            },
            Self::DrainAtOnce => HostVerb::Drain {
                pace: DrainPace::AtOnce,
            },
            Self::Undrain => HostVerb::Undrain,
            Self::Down => HostVerb::Down { fenced: false },
            Self::Fenced => HostVerb::Down { fenced: true },
            Self::Remove => HostVerb::Remove,
            Self::FenceUnknown => HostVerb::Fence { replica: None },
        }
    }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        3 => proptest::option::of(1..200_000_u64).prop_map(Order::Drain),
        1 => Just(Order::DrainAtOnce),
        3 => Just(Order::Undrain),
        2 => Just(Order::Down),
        1 => Just(Order::Fenced),
        1 => Just(Order::Remove),
        1 => Just(Order::FenceUnknown),
    ]
}

/// A command about one service.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Submit {
        replicas: u32,
        shape: usize,
        replace: bool,
    },
    Scale(u32),
    Start,
    Stop,
    Restart(Option<u32>),
    Kill(u32),
    Delete,
    /// A job of another scheduler on a host asks for ports, the n-th time or again.
    Attach {
        host: usize,
        index: Option<u32>,
        shape: usize,
        key: u8,
    },
}

fn wish() -> impl Strategy<Value = Wish> {
    let index = 0..4_u32;
    prop_oneof![
        4 => (0..4_u32, 0..5_usize, any::<bool>())
            .prop_map(|(replicas, shape, replace)| Wish::Submit { replicas, shape, replace }),
        2 => (0..4_u32).prop_map(Wish::Scale),
        1 => Just(Wish::Start),
        1 => Just(Wish::Stop),
        1 => proptest::option::of(index.clone()).prop_map(Wish::Restart),
        1 => index.clone().prop_map(Wish::Kill),
        1 => Just(Wish::Delete),
        3 => (0..HOSTS.len(), proptest::option::of(index), 0..5_usize, any::<u8>())
            .prop_map(|(host, index, shape, key)| Wish::Attach { host, index, shape, key: key % 8 }),
    ]
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let host = 0..HOSTS.len();
    prop_oneof![
        14 => (0..SERVICES.len(), wish()).prop_map(|(service, wish)| Op::Ask(service, wish)),
        1 => (0..SERVICES.len()).prop_map(Op::Stranger),
        12 => (0..16_usize, 0..8_usize).prop_map(|(a, b)| Op::Tell(a, b)),
        2 => (0..32_usize).prop_map(Op::Replay),
        4 => (host.clone(), any::<bool>()).prop_map(|(a, b)| Op::Join(a, b)),
        1 => host.clone().prop_map(Op::Boot),
        3 => (host.clone(), order()).prop_map(|(a, b)| Op::Operate(a, b)),
        1 => host.clone().prop_map(Op::Shutdown),
        2 => host.clone().prop_map(Op::Cut),
        2 => (host.clone(), any::<bool>()).prop_map(|(a, b)| Op::Mend(a, b)),
        1 => (host, 20000..20004_u16).prop_map(|(a, b)| Op::Foreign(a, b)),
        4 => (1..200_000_u64).prop_map(Op::Pass),
        2 => (1..3_u32).prop_map(Op::FailNext),
        2 => Just(Op::Slow),
        3 => Just(Op::Land),
        1 => Just(Op::Crash),
        1 => Just(Op::CrashStored),
    ]
}

impl Wish {
    pub(super) fn command(&self, service: &str) -> Command {
        let named = name(service);
        match self {
            Self::Submit {
                replicas,
                shape,
                replace,
            } => submission(&shaped(service, *replicas, *shape), *replace),
            Self::Scale(replicas) => Command::Scale {
                service: named,
                replicas: *replicas,
            },
            Self::Start => Command::Start { service: named },
            Self::Stop => Command::Stop { service: named },
            Self::Restart(index) => Command::Restart {
                service: named,
                index: *index,
            },
            Self::Kill(index) => Command::Kill {
                service: named,
                index: *index,
            },
            Self::Delete => Command::Delete { service: named },
            Self::Attach {
                host,
                index,
                shape,
                key,
            } => Command::Attach(Box::new(super::super::Attachment {
                service: named,
                profile: profile(&shaped(service, 1, *shape)),
                source: None,
                host: HOSTS[*host].parse().unwrap(),
                index: *index,
                key: key.to_string(),
                job: None,
            })),
        }
    }

    /// The shape of the profile it brings.
    pub(super) const fn shape(&self) -> Option<usize> {
        match self {
            Self::Submit { shape, .. } | Self::Attach { shape, .. } => Some(*shape),
            _ => None,
        }
    }

    pub(super) const fn meaning(&self) -> Meaning {
        match self {
            Self::Submit {
                replicas,
                shape,
                replace,
            } => Meaning::Submit {
                replicas: *replicas,
                shape: *shape,
                replace: *replace,
            },
            Self::Scale(replicas) => Meaning::Scale(*replicas),
            Self::Start => Meaning::Start,
            Self::Stop => Meaning::Stop,
            Self::Restart(_) => Meaning::Nothing,
            Self::Kill(index) => Meaning::Kill(*index),
            Self::Delete => Meaning::Delete,
            Self::Attach { .. } => Meaning::Attach,
        }
    }
}

fn shaped(service: &str, replicas: u32, shape: usize) -> String {
    match shape {
        0 => web(service, replicas),
        1 => with_port(service, replicas, "20001"),
        2 => with_port(service, replicas, "{ any = 3, protocol = \"tcp+udp\" }"),
        3 => format!(
            "{}[restart]\ngive_up = {{ max_restarts = 1, then = \"requeue\", rest = \"1m\" }}\n",
            web(service, replicas)
        ),
        // Where its host is lost or booted, it is not to be run again.
        _ => web(service, replicas).replacen("command", "rerunnable = false\ncommand", 1),
    }
}

/// Whether a copy of this shape is begun anew elsewhere when its host is gone.
pub(super) const fn is_rerun(shape: usize) -> bool {
    shape < 4
}
