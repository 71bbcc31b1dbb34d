//! Who could start if others ended, and that nothing of it happens.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers a list of like calls"
)]

use std::ptr::{null, null_mut};

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

impl Caller {
    pub(crate) fn give(&self, txn: PrTxn, ids: &[PrAlloc]) -> (i32, Vec<i32>) {
        let mut codes = vec![9; ids.len()];
        let n = u32::try_from(ids.len()).unwrap();
        // SAFETY: live arrays of the length said.
        let code = unsafe { (self.api.give)(txn, ids.as_ptr(), n, codes.as_mut_ptr()) };
        (code, codes)
    }

    /// How many of the first 64 hosts fit, and which.
    pub(crate) fn fitting(&self, txn: PrTxn, profile: u32, at_ms: u64) -> u64 {
        let need = PrNeed {
            profile,
            replicas: 1,
            at_ms,
        };
        let mut word = 0;
        // SAFETY: live locals, and one word.
        let count = unsafe {
            let need = &raw const need;
            (self.api.feasible)(txn, need, null(), &raw mut word, null_mut(), 1)
        };
        assert_eq!(count, i64::from(word.count_ones()));
        word
    }
}

#[test]
fn a_what_if_shows_who_could_start_once_others_end_and_touches_nothing() {
    let caller = Caller::new();
    let mine = caller.profile("web.alice", &[fixed("http", 8080)]);
    let theirs = caller.profile("web.bob", &[fixed("http", 8080)]);
    let (first, _) = caller.hold(want(1, 0, mine, 0));
    let (second, _) = caller.hold(want(1, 1, mine, 1));
    let txn = caller.try_begin(PR_TXN_WHATIF, 1000).unwrap();
    assert_eq!(caller.fitting(txn, theirs, 0), 0);
    assert_eq!(caller.give(txn, &[first]), (PR_OK, vec![PR_OK]));
    // It cools from now on: the same service gets it at once, others when it has rested.
    assert_eq!(caller.fitting(txn, mine, 0), 1);
    assert_eq!(caller.fitting(txn, theirs, 0), 0);
    assert_eq!(caller.fitting(txn, theirs, 61_000), 1);
    let (code, grant, ports) = caller.reserve(txn, want(2, 0, mine, 0));
    assert_eq!((code, ports), (PR_OK, vec![8080]));
    assert_eq!(caller.reserve(txn, want(3, 0, mine, 0)).0, PR_ENOPORT);
    // Nobody outside sees it.
    assert_eq!(caller.release_begin(grant.id), PR_ESTATE);
    assert_eq!(caller.commit(txn), PR_ESTATE);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.give(txn, &[second]).0, PR_ESTALE);
    assert_eq!(caller.release_begin(grant.id), PR_ESTALE);
    let txn = caller.begin(1000);
    assert_eq!(caller.fitting(txn, mine, 0), 0);
    assert_eq!(caller.fitting(txn, theirs, 61_000), 0);
    assert_eq!(caller.reserve(txn, want(1, 0, mine, 0)).0, PR_EEXIST);
    assert_eq!(caller.give(txn, &[first]).0, PR_ESTATE);
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(caller.pump(1000), PR_NEVER);
    assert_eq!(caller.release_confirm(first, 1000), PR_OK);
}

#[test]
fn what_was_given_comes_back_with_a_rollback() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    let mut mark = 0;
    // SAFETY: a live local.
    assert_eq!(unsafe { (caller.api.mark)(txn, &raw mut mark) }, PR_OK);
    assert_eq!(
        caller.give(txn, &[id, id]),
        (PR_ESTALE, vec![PR_OK, PR_ESTALE])
    );
    // The key is still its own; a higher incarnation is a new grant.
    let key = want(1, 0, web, 0);
    let (code, grant, _) = caller.reserve(txn, key);
    assert_eq!((code, grant.reason), (PR_EAGAIN, PR_R_RELEASING));
    let next = PrWant {
        incarnation: 1,
        ..key
    };
    let (code, grant, _) = caller.reserve(txn, next);
    assert_eq!(code, PR_OK);
    assert_eq!(caller.give(txn, &[grant.id]).0, PR_ESTATE);
    // SAFETY: no pointer is passed.
    assert_eq!(unsafe { (caller.api.rollback)(txn, mark) }, PR_OK);
    assert_eq!(caller.fitting(txn, web, 0), 2);
    assert_eq!(caller.reserve(txn, key).0, PR_EEXIST);
    assert_eq!(caller.give(txn, &[id]).0, PR_OK);
    assert_eq!(caller.abort(txn), PR_OK);
    let mut found = 0;
    // SAFETY: live locals.
    let code = unsafe { (caller.api.grant_find)(caller.ctx, &raw const key, &raw mut found) };
    assert_eq!((code, found), (PR_OK, id));
}

#[test]
fn a_gang_is_tried_in_a_what_if_with_the_same_numbers() {
    const SAME: u32 = PR_RESERVE_ALL | PR_RESERVE_SAME;
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let (id, ports) = caller.hold(want(1, 0, web, 0));
    assert_eq!(ports, [20_000]);
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    let gang = [want(2, 0, web, 0), want(2, 1, web, 1)];
    let (code, _, ports) = caller.reserve_all(txn, SAME, &gang);
    assert_eq!((code, ports), (PR_OK, vec![20_001, 20_001]));
    let gang = [want(3, 0, web, 0), want(3, 1, web, 77)];
    assert_eq!(caller.reserve_all(txn, SAME, &gang).0, PR_ENOENT);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.hold(want(4, 0, web, 1)).1, [20_000]);
    assert_eq!(caller.release_begin(id), PR_OK);
}

#[test]
fn wrong_ids_and_counts_give_nothing() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    for wrong in [0, 1, txn, caller.ctx, id + 1] {
        assert_eq!(caller.give(txn, &[wrong]), (PR_ESTALE, vec![PR_ESTALE]));
    }
    // SAFETY: null and no element, or a count beyond the limit, so that nothing is read.
    let codes = unsafe {
        let give = caller.api.give;
        [
            give(txn, null(), 1, null_mut()),
            give(txn, null(), 0, null_mut()),
            give(txn, &raw const id, u32::MAX, null_mut()),
            give(txn, &raw const id, 1, null_mut()),
        ]
    };
    assert_eq!(codes, [PR_EINVAL, PR_OK, PR_ELIMIT, PR_OK]);
    assert_eq!(caller.try_begin(PR_TXN_WHATIF, 0), Err(PR_EBUSY));
}
