//! What one context exports, another restores.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers a list of like calls"
)]

use proptest::prelude::{ProptestConfig, Strategy, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Just;

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

/// A record with its numbers, without its id and its place among others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    key: (u64, u32, u32, u32),
    place: (u32, u32, u32),
    cool_left_ms: u32,
    reported: (u32, u64, u32, u32),
    flags: u32,
    numbers: Vec<u16>,
}

impl Told {
    fn new(record: &PrRec, ports: &[u16]) -> Self {
        let who = record.who;
        let numbers = &ports[record.port_off as usize..][..record.n_ports as usize];
        Self {
            key: (who.job, who.step, who.replica, who.incarnation),
            place: (who.host, who.profile, record.state),
            cool_left_ms: record.cool_left_ms,
            reported: (record.run, record.seq, record.ready, record.restarts),
            flags: record.flags,
            numbers: numbers.to_vec(),
        }
    }
}

/// One piece: its code, its records and its numbers.
pub(crate) type Piece = (i32, Vec<PrRec>, Vec<u16>);

impl Caller {
    pub(crate) fn export_piece(&self, cursor: &mut u64, cap: u32, ports_cap: u32) -> Piece {
        let mut records: Vec<PrRec> = Vec::with_capacity(cap as usize);
        let mut ports: Vec<u16> = Vec::with_capacity(ports_cap as usize);
        let (mut n, mut n_ports) = (0, 0);
        // SAFETY: live locals, and room for as many as is said.
        let code = unsafe {
            (self.api.export_)(
                self.ctx,
                cursor,
                records.as_mut_ptr(),
                cap,
                ports.as_mut_ptr(),
                ports_cap,
                &raw mut n,
                &raw mut n_ports,
            )
        };
        if code == PR_OK {
            // SAFETY: the call wrote so many, no more than there is room for.
            unsafe {
                records.set_len(n as usize);
                ports.set_len(n_ports as usize);
            }
        }
        (code, records, ports)
    }

    pub(crate) fn export_all(&self, cap: u32, ports_cap: u32) -> (Vec<PrRec>, Vec<u16>) {
        let (mut cursor, mut all, mut all_ports) = (0, Vec::new(), Vec::new());
        loop {
            let (code, records, ports) = self.export_piece(&mut cursor, cap, ports_cap);
            assert_eq!(code, PR_OK, "{}", last_error());
            if records.is_empty() {
                assert!(ports.is_empty());
                return (all, all_ports);
            }
            let before = u32::try_from(all_ports.len()).unwrap();
            all.extend(records.into_iter().map(|record| PrRec {
                port_off: record.port_off + before,
                ..record
            }));
            all_ports.extend(ports);
        }
    }

    fn exported(&self, cap: u32, ports_cap: u32) -> Vec<Told> {
        let (records, ports) = self.export_all(cap, ports_cap);
        let told = records.iter().map(|record| Told::new(record, &ports));
        told.collect()
    }

    /// Restores records into this context, and ends its restore phase.
    fn restore(&self, records: &[PrRec], ports: &[u16], now_ms: u64) -> (i32, Vec<PrGrant>) {
        let mut grants = vec![no_grant(); records.len()];
        let n = u32::try_from(records.len()).unwrap();
        let n_ports = u32::try_from(ports.len()).unwrap();
        let mut conflicts = 0;
        // SAFETY: live arrays of the lengths said.
        let code = unsafe {
            let (records, ports) = (records.as_ptr(), ports.as_ptr());
            let code =
                (self.api.restore_put)(self.ctx, records, n, ports, n_ports, grants.as_mut_ptr());
            let ended = (self.api.restore_end)(self.ctx, 0, now_ms, &raw mut conflicts);
            assert_eq!(ended, PR_OK);
            code
        };
        (code, grants)
    }
}

/// A context of this test: two hosts, and profiles of one number, a pair on both sides, and a block.
fn scheduler(flags: u32) -> Caller {
    let caller = Caller::with(&PrConfig { flags, ..config() });
    assert_eq!(caller.put(&[host(0, "n1"), host(1, "n2")]), PR_OK);
    caller.profile("web.alice", &[any("http")]);
    let both = PrPort {
        proto: PR_TCP_UDP,
        ..fixed("dns", 5353)
    };
    caller.profile("dns.bob", &[both]);
    let block = PrPort {
        count: 5,
        ..any("rpc")
    };
    caller.profile("web.alice", &[any("http"), block]);
    caller
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u64, u32, u32),
    Begin(usize),
    Confirm(usize),
    Report(usize, u32, u32),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..20_u64, 0..3_u32, 0..2_u32)
            .prop_map(|(job, profile, host)| Step::Reserve(job, profile, host)),
        (0..20_usize).prop_map(Step::Begin),
        (0..20_usize).prop_map(Step::Confirm),
        (0..20_usize, 1..4_u32, 0..3_u32).prop_map(|(at, run, state)| Step::Report(at, run, state)),
        (1..30_000_u64).prop_map(Step::Wait),
        Just(Step::Wait(61_000)),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Export, restore elsewhere, export: the same; and both give the same numbers from then on.
    #[test]
    fn an_export_restores_to_the_same_state(steps in steps(), cap in 1..40_u32, ports_cap in 256..400_u32) {
        let first = scheduler(PR_CFG_NO_RESTORE);
        let (mut now, mut ids) = (1000, Vec::new());
        for step in steps {
            let id = |at: usize| ids.get(at).copied().unwrap_or(0);
            match step {
                Step::Reserve(job, profile, host) => {
                    let txn = first.begin(now);
                    let (_, grant, _) = first.reserve(txn, want(job, 0, profile, host));
                    assert_eq!(first.commit(txn), PR_OK);
                    ids.extend((grant.rc == PR_OK).then_some(grant.id));
                }
                Step::Begin(at) => {
                    first.release_begin(id(at));
                }
                Step::Confirm(at) => {
                    first.release_confirm(id(at), now);
                }
                Step::Report(at, run, state) => {
                    first.report(id(at), run, 1, state);
                }
                Step::Wait(ms) => now += ms,
            }
        }
        first.pump(now);
        let (records, ports) = first.export_all(cap, ports_cap);
        let again = scheduler(0);
        let (code, grants) = again.restore(&records, &ports, now);
        prop_assert_eq!(code, PR_OK, "{}", last_error());
        for (record, grant) in records.iter().zip(&grants) {
            prop_assert_eq!(grant.id == 0, record.state == PR_P_COOLING);
        }
        again.pump(now);
        let mut before = first.exported(cap, ports_cap);
        let mut after = again.exported(1000, 10_000);
        before.sort();
        after.sort();
        prop_assert_eq!(&before, &after);
        // What was told of readiness is told again, and readers see the same in both.
        for (record, grant) in records.iter().zip(&grants).filter(|(_, grant)| grant.id != 0) {
            again.report(grant.id, record.run, record.seq, record.ready);
        }
        for caller in [&first, &again] {
            for index in 0..2 {
                caller.address(index, 9, 7);
            }
        }
        for service in ["web.alice", "dns.bob"] {
            let told = |caller: &Caller| -> Vec<_> {
                let (all, _) = caller.resolve(service, PR_RESOLVE_ALL).unwrap();
                let row = |it: &PrEndpoint| (it.port, it.count, it.proto, it.state, it.replica, it.host);
                let mut rows: Vec<_> = all.iter().map(row).collect();
                rows.sort_unstable();
                rows
            };
            if first.resolve(service, PR_RESOLVE_ALL).is_ok() {
                prop_assert_eq!(told(&first), told(&again));
            }
        }
        // What cools is over at the same moment, and whose it was may have it before.
        for later in [now, now + 30_000, now + 60_001] {
            let tried = |caller: &Caller, profile| {
                let txn = caller.begin(later);
                let (code, grant, _) = caller.reserve(txn, want(99, 0, profile, 0));
                assert_eq!(caller.abort(txn), PR_OK);
                (code, grant.reason, grant.retry_ms)
            };
            prop_assert_eq!(tried(&first, 1), tried(&again, 1));
            prop_assert_eq!(first.exported(1000, 10_000).len(), again.exported(1000, 10_000).len());
        }
    }
}

#[test]
fn an_export_in_pieces_tells_all_once_and_a_piece_too_small_for_one_is_refused() {
    let caller = scheduler(PR_CFG_NO_RESTORE);
    for job in 0..10 {
        caller.hold(want(job, 0, 2, 0));
    }
    for job in 0..5 {
        caller.hold(want(job, 1, 0, 1));
    }
    let all = caller.exported(1000, 10_000);
    assert_eq!(all.len(), 15);
    for (cap, ports_cap) in [(1, 6), (2, 7), (1000, 6), (3, 10_000)] {
        assert_eq!(caller.exported(cap, ports_cap), all);
    }
    let mut cursor = 0;
    for (cap, ports_cap) in [(0, 100), (100, 5), (0, 0)] {
        let (code, ..) = caller.export_piece(&mut cursor, cap, ports_cap);
        assert_eq!((code, cursor), (PR_ENOSPC, 0));
    }
    // Any number is a cursor.
    for wild in [u64::MAX, 1 << 63, 1 << 40, u64::MAX >> 1, 14] {
        let mut cursor = wild;
        let (code, ..) = caller.export_piece(&mut cursor, 100, 1000);
        assert_eq!(code, PR_OK);
    }
}

#[test]
fn what_comes_and_goes_between_pieces_does_not_hide_what_stays() {
    let caller = scheduler(PR_CFG_NO_RESTORE);
    let ids: Vec<_> = (0..6)
        .map(|job| caller.hold(want(job, 0, 0, 0)).0)
        .collect();
    let mut cursor = 0;
    let (_, first, _) = caller.export_piece(&mut cursor, 3, 100);
    for id in &ids[..2] {
        assert_eq!(caller.release_confirm(*id, 5), PR_OK);
    }
    caller.hold(want(50, 0, 0, 0));
    let mut jobs: Vec<u64> = first.iter().map(|record| record.who.job).collect();
    loop {
        let (code, piece, _) = caller.export_piece(&mut cursor, 2, 100);
        assert_eq!(code, PR_OK);
        if piece.is_empty() {
            break;
        }
        let held = piece.iter().filter(|it| it.state == PR_P_HELD);
        jobs.extend(held.map(|record| record.who.job));
    }
    jobs.retain(|job| (2..6).contains(job));
    assert_eq!(jobs, [2, 3, 4, 5]);
}

#[test]
fn numbers_that_cool_are_told_with_their_side_and_restored_by_it() {
    let first = scheduler(PR_CFG_NO_RESTORE);
    let (id, _) = first.hold(want(1, 0, 1, 0));
    assert_eq!(first.release_confirm(id, 1000), PR_OK);
    first.pump(11_000);
    let (records, ports) = first.export_all(10, 300);
    let told: Vec<_> = records
        .iter()
        .map(|record| (record.state, record.flags, record.cool_left_ms))
        .collect();
    let cooling = |side| (PR_P_COOLING, side, 50_000);
    assert_eq!(told, [cooling(PR_REC_TCP), cooling(PR_REC_UDP)]);
    assert_eq!(ports, [5353, 5353]);
    // Both sides may be one record, and of no profile; what is no number is refused.
    let whole = PrRec {
        flags: PR_REC_TCP | PR_REC_UDP,
        who: PrWant {
            profile: PR_ANY,
            ..records[0].who
        },
        ..records[0]
    };
    let bad = [
        PrRec {
            state: PR_P_HELD,
            ..whole
        },
        PrRec {
            n_ports: 3,
            ..whole
        },
        PrRec {
            port_off: u32::MAX,
            ..whole
        },
        PrRec {
            flags: 8 | PR_REC_TCP,
            ..whole
        },
        PrRec {
            who: PrWant {
                host: 9,
                ..whole.who
            },
            ..whole
        },
        PrRec {
            who: PrWant {
                profile: 77,
                ..whole.who
            },
            ..whole
        },
    ];
    let all: Vec<PrRec> = bad.into_iter().chain([whole]).collect();
    let again = scheduler(0);
    let (code, grants) = again.restore(&all, &ports, 0);
    assert_eq!(code, PR_EINVAL);
    let codes: Vec<i32> = grants.iter().map(|grant| grant.rc).collect();
    let expected = [
        PR_EINVAL, PR_EINVAL, PR_EINVAL, PR_EINVAL, PR_ENOENT, PR_ENOENT, PR_OK,
    ];
    assert_eq!(codes, expected);
    // It rests for nobody, so that its former service waits too.
    let txn = again.begin(49_999);
    let (code, grant, _) = again.reserve(txn, want(1, 0, 1, 0));
    assert_eq!((code, grant.reason), (PR_ENOPORT, PR_R_COOLING));
    assert_eq!(again.abort(txn), PR_OK);
    let txn = again.begin(50_000);
    assert_eq!(again.reserve(txn, want(1, 0, 1, 0)).0, PR_OK);
}

#[test]
fn nothing_is_exported_before_the_restore_phase_ends_or_inside_a_transaction() {
    let caller = scheduler(0);
    let mut cursor = 0;
    assert_eq!(caller.export_piece(&mut cursor, 10, 10).0, PR_EAGAIN);
    assert_eq!(caller.restore(&[], &[], 0).0, PR_OK);
    let txn = caller.begin(0);
    assert_eq!(caller.export_piece(&mut cursor, 10, 10).0, PR_EBUSY);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.export_piece(&mut cursor, 10, 10).0, PR_OK);
}
