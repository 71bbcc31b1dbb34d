//! JSON that goes between controller, agents, workers and people: the bodies of REST, and the files and lines of a host.

use std::fmt::Debug;

use portreeve::registry::HostFacts;
use portreeve::supervision::Status;
use portreeve_api::attach::{Attached, FromAgent, Opening, Relayed};
use portreeve_api::body::{
    DesiredSet, DownAsk, DrainAsk, Endpoints, Lease, LeaseAsk, Scale, UnknownReplica,
};
use portreeve_api::local::{Assignment, ProcessIdentity, WorkerAnswer, WorkerCommand};
use portreeve_api::{Problem, body};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::choice;

/// The first byte chooses which.
pub(crate) fn bodies(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    match kind % 20 {
        0 => again::<HostFacts>(bytes),
        1 => again::<LeaseAsk>(bytes),
        2 => again::<Status>(bytes),
        3 => again::<Scale>(bytes),
        4 => again::<DrainAsk>(bytes),
        5 => again::<DownAsk>(bytes),
        6 => again::<UnknownReplica>(bytes),
        7 => again::<Relayed>(bytes),
        8 => again::<Attached>(bytes),
        9 => again::<Opening>(bytes),
        10 => again::<FromAgent>(bytes),
        11 => again::<DesiredSet>(bytes),
        12 => again::<Lease>(bytes),
        13 => again::<Endpoints>(bytes),
        14 => again::<Problem>(bytes),
        15 => again::<WorkerCommand>(bytes),
        16 => again::<WorkerAnswer>(bytes),
        17 => again::<Assignment>(bytes),
        18 => again::<ProcessIdentity>(bytes),
        _ => again::<body::WhoAmI>(bytes),
    }
}

/// What is accepted is written, and that is read as the same.
fn again<T: DeserializeOwned + Serialize + Debug>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else {
        return;
    };
    let text = serde_json::to_string(&read).expect("plain data is written as JSON");
    let again: T = match serde_json::from_str(&text) {
        Ok(again) => again,
        Err(cause) => panic!("{text} was written, and is not read: {cause}"),
    };
    assert_eq!(serde_json::to_string(&again).expect("as before"), text);
}
