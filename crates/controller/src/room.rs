//! Room for what is large and that anybody may begin: so many places of all, and so many of one user.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many places there are, and whose are taken.
#[derive(Debug)]
pub(crate) struct Room {
    /// The controller's own account, which waits for nobody: hosts report as it.
    own_uid: u32,
    each: usize,
    all: Arc<Semaphore>,
    /// Of users who have or want a place; for those that are not known, together.
    users: Mutex<BTreeMap<Option<u32>, Arc<Semaphore>>>,
}

/// One place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Room {
    /// Long bodies of all users: with the longest that a user may send, 64 MiB.
    const ALL: usize = 64;
    /// Long bodies of one user.
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
            users: Mutex::default(),
        }
    }

    /// Waits for a place; `None`: this user needs none.
    pub(crate) async fn place(&self, uid: Option<u32>) -> Option<Place> {
        if uid.is_some_and(|uid| uid == 0 || uid == self.own_uid) {
            return None;
        }
        let own = {
            let mut users = self.users.lock();
            // Whoever has none and waits for none is forgotten.
            users.retain(|_, places| Arc::strong_count(places) > 1);
            let places = users.entry(uid);
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(self.each))))
        };
        // One's own first: who waits for that takes nothing from others. Neither is ever closed.
        let own = own.acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Place {
            _own: own,
            _all: all,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_held_up(room: &Room, uid: u32) -> bool {
        let moment = Duration::from_millis(20);
        let place = tokio::time::timeout(moment, room.place(Some(uid)));
        place.await.is_err()
    }

    #[tokio::test]
    async fn a_user_waits_for_its_own_places_and_takes_none_of_others() {
        let room = Room::of(7, 2, 3);
        let held = [room.place(Some(1)).await, room.place(Some(1)).await];
        assert!(is_held_up(&room, 1).await);
        let other = room.place(Some(2)).await;
        assert!(other.is_some());
        assert!(is_held_up(&room, 3).await, "all have three");
        for agent in [0, 7] {
            assert!(room.place(Some(agent)).await.is_none(), "waits for nobody");
        }
        drop((held, other));
        drop(room.place(Some(4)).await);
        assert_eq!(room.users.lock().len(), 1, "the others are forgotten");
        assert!(room.place(Some(1)).await.is_some());
    }
}
