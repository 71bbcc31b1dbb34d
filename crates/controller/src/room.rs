//! Room for what is large and that anybody may begin: so many places of all, and so many of each who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portreeve::registry::TokenId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::peer::Whose;

/// How many places there are, and whose are taken.
#[derive(Debug)]
pub(crate) struct Room {
    /// The controller's own account, which waits for nobody: hosts report as it.
    own_uid: u32,
    each: usize,
    all: Arc<Semaphore>,
    /// Of those who have or want a place.
    held: Mutex<BTreeMap<Holder, Arc<Semaphore>>>,
}

/// Whose places are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// Whoever has the other end of the connection.
    Peer(Whose),
    /// An account, by a token.
    User(String),
    /// A host, by its token: waits for itself alone, so that no people keep it from reporting.
    Host(TokenId),
    /// An account of a host, as that says.
    Person { host: TokenId, uid: u32 },
    /// All accounts of a host: it can say that it asks for as many as it likes.
    People(TokenId),
}

/// One place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _own: Vec<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Long bodies of all: with the longest that a user may send, 64 MiB.
    const ALL: usize = 64;
    /// Long bodies of one.
    const EACH: usize = 8;

    /// Room for long bodies.
    pub(crate) fn for_bodies(own_uid: u32) -> Self {
        Self::of(own_uid, Self::EACH, Self::ALL)
    }

    fn of(own_uid: u32, each: usize, all: usize) -> Self {
        Self {
            own_uid,
            each,
            all: Arc::new(Semaphore::new(all)),
            held: Mutex::default(),
        }
    }

    /// Waits for a place; `None`: this one needs none.
    pub(crate) async fn place(&self, holder: Holder) -> Option<Place> {
        if let Holder::Peer(Whose::Account(Some(uid))) = holder
            && (uid == 0 || uid == self.own_uid)
        {
            return None;
        }
        let reports = matches!(holder, Holder::Host(_));
        // One's own first: who waits for that takes nothing from others. None is ever closed.
        let mut own = Vec::new();
        if let Holder::Person { host, .. } = holder {
            // Half of what its host has.
            let places = self.places(holder, self.each.div_ceil(2));
            own.push(places.acquire_owned().await.ok()?);
            let places = self.places(Holder::People(host), self.each);
            own.push(places.acquire_owned().await.ok()?);
        } else {
            let places = self.places(holder, self.each);
            own.push(places.acquire_owned().await.ok()?);
        }
        let all = if reports {
            None
        } else {
            Some(Arc::clone(&self.all).acquire_owned().await.ok()?)
        };
        Some(Place {
            _own: own,
            _all: all,
        })
    }

    fn places(&self, of: Holder, each: usize) -> Arc<Semaphore> {
        let mut held = self.held.lock();
        // Whoever has none and waits for none is forgotten.
        held.retain(|_, places| Arc::strong_count(places) > 1);
        let places = held.entry(of);
        Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(each))))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::*;

    const fn account(uid: u32) -> Holder {
        Holder::Peer(Whose::Account(Some(uid)))
    }

    async fn is_held_up(room: &Room, holder: Holder) -> bool {
        let moment = Duration::from_millis(20);
        let place = tokio::time::timeout(moment, room.place(holder));
        place.await.is_err()
    }

    #[tokio::test]
    async fn a_user_waits_for_its_own_places_and_takes_none_of_others() {
        let room = Room::of(7, 2, 3);
        let held = [room.place(account(1)).await, room.place(account(1)).await];
        assert!(is_held_up(&room, account(1)).await);
        let other = room.place(account(2)).await;
        assert!(other.is_some());
        assert!(is_held_up(&room, account(3)).await, "all have three");
        for agent in [0, 7] {
            assert!(
                room.place(account(agent)).await.is_none(),
                "waits for nobody"
            );
        }
        drop((held, other));
        drop(room.place(account(4)).await);
        assert_eq!(room.held.lock().len(), 1, "the others are forgotten");
        assert!(room.place(account(1)).await.is_some());
    }

    #[tokio::test]
    async fn machines_do_not_wait_for_each_other_and_a_host_not_for_its_people() {
        // Whoever came over TLS was counted as one: eight slow bodies of one machine held up the reports of all hosts.
        let room = Room::of(7, 4, 9);
        let machine =
            |last| Holder::Peer(Whose::Machine(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(room.place(machine(1)).await);
        }
        assert!(is_held_up(&room, machine(1)).await);
        assert!(!is_held_up(&room, machine(2)).await);
        let host = TokenId(1);
        let person = |uid| Holder::Person { host, uid };
        for uid in [1000, 1000, 1001, 1001] {
            held.push(room.place(person(uid)).await);
        }
        assert!(is_held_up(&room, person(1000)).await);
        assert!(
            is_held_up(&room, person(1002)).await,
            "of its host all are taken"
        );
        held.push(room.place(Holder::User("alice".to_owned())).await);
        assert!(is_held_up(&room, machine(3)).await, "all are taken");
        for _ in 0..4 {
            held.push(room.place(Holder::Host(host)).await);
        }
        assert!(is_held_up(&room, Holder::Host(host)).await, "but by itself");
        assert!(!is_held_up(&room, Holder::Host(TokenId(2))).await);
    }
}
