//! Gangs: all or nothing over hosts, on wish with the same numbers.

use proptest::prelude::*;

use crate::identity::HostId;
use crate::port_pool::{PortRequest, Why};

use super::model_test::request;
use super::testing::{ask, grant, hosts, numbers, replica, seconds, whole};
use super::{AfterRelease, GangError, GangMember, ReserveError, SameNumbers};

fn members(request: &PortRequest, hosts: impl Iterator<Item = u32>) -> Vec<GangMember<'_>> {
    let member = |(place, host)| GangMember {
        host: HostId(host),
        replica: replica(7, place, 0),
        request,
        former: None,
    };
    (0..).zip(hosts).map(member).collect()
}

#[test]
fn a_gang_is_reserved_whole_or_not_at_all() {
    let world = hosts(3, "20000-20003");
    grant(&world, 2, replica(1, 0, 0), "a=any").unwrap();
    let before = whole(&world);
    let request = ask("a=any:2 b=any:2");
    let mut transaction = world.begin(seconds(0));
    let refused = transaction.reserve_gang(&members(&request, 0..3), SameNumbers::No);
    let Err(GangError::Member { member: 2, error }) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.to_string().ends_with("NO BLOCK OF 2"), "{error}");
    assert_eq!(whole(&world), before);
    let grants = transaction.reserve_gang(&members(&request, 0..2), SameNumbers::No);
    assert_eq!(grants.unwrap().len(), 2);
    assert_eq!(transaction.commit(), 2);
}

#[test]
fn the_same_number_is_one_that_every_host_has() {
    let world = hosts(3, "20000-20004");
    // 20000 and 20001 go on one host, 20002 and 20003 on the next.
    grant(&world, 0, replica(1, 0, 0), "a=20000 b=20001").unwrap();
    grant(&world, 1, replica(1, 1, 0), "a=20002 b=20003").unwrap();
    let (one, two) = (ask("a=any"), ask("a=any:2"));
    let before = whole(&world);
    let mut transaction = world.begin(seconds(0));
    let none = transaction.reserve_gang(&members(&two, 0..3), SameNumbers::Yes);
    assert!(
        matches!(none, Err(GangError::NothingInCommon { .. })),
        "{none:?}"
    );
    assert_eq!(whole(&world), before);
    let gang = members(&one, 0..3);
    let grants = transaction.reserve_gang(&gang, SameNumbers::Yes).unwrap();
    for grant in &grants {
        assert_eq!(numbers(grant), "20004");
    }
    let again = transaction.reserve_gang(&gang, SameNumbers::Yes).unwrap();
    assert_eq!(again, grants, "a gang is idempotent as its members are");
    drop(transaction);
    assert_eq!(whole(&world), before);
    // A number that cools everywhere is better than none.
    world
        .confirm_release(replica(1, 1, 0), seconds(1), AfterRelease::Cool)
        .unwrap();
    let mut transaction = world.begin(seconds(1));
    let grants = transaction.reserve_gang(&members(&two, 0..3), SameNumbers::Yes);
    assert_eq!(numbers(&grants.unwrap()[1]), "20002-20003");
}

#[test]
fn a_gang_that_cannot_have_the_same_numbers_is_told_why() {
    let world = hosts(2, "20000-20009");
    let (one, other) = (ask("a=any"), ask("a=any b=any"));
    let mut transaction = world.begin(seconds(0));
    let mut mixed = members(&one, 0..2);
    mixed[1].request = &other;
    let unlike = transaction.reserve_gang(&mixed, SameNumbers::Yes);
    assert_eq!(unlike, Err(GangError::Unlike { member: 1 }));
    let shared = transaction.reserve_gang(&members(&one, [1, 1].into_iter()), SameNumbers::Yes);
    let (member, host) = (1, HostId(1));
    assert_eq!(shared, Err(GangError::SharedHost { member, host }));
    let unknown = transaction.reserve_gang(&members(&one, 0..3), SameNumbers::Yes);
    assert!(
        matches!(unknown, Err(GangError::Member { member: 2, .. })),
        "{unknown:?}"
    );
    // One member has a number of its own already.
    transaction
        .reserve(HostId(0), replica(7, 0, 0), &one, None)
        .unwrap();
    let before = whole(&world);
    let refused = transaction.reserve_gang(&members(&one, 0..2), SameNumbers::Yes);
    let Err(GangError::Member { member: 0, error }) = refused else {
        panic!("{refused:?}");
    };
    assert!(matches!(error, ReserveError::HoldsOther { .. }));
    assert_eq!(whole(&world), before);
    assert_eq!(transaction.reserve_gang(&[], SameNumbers::Yes), Ok(vec![]));
    assert_eq!(transaction.reserve_gang(&[], SameNumbers::No), Ok(vec![]));
}

#[test]
fn two_members_on_one_host_draw_different_numbers() {
    let world = hosts(1, "20000-20001");
    let request = ask("a=any");
    let mut transaction = world.begin(seconds(0));
    let gang = members(&request, [0, 0].into_iter());
    let grants = transaction.reserve_gang(&gang, SameNumbers::No).unwrap();
    assert_eq!(numbers(&grants[0]), "20000");
    assert_eq!(numbers(&grants[1]), "20001");
    let third = members(&request, [0, 0, 0].into_iter());
    assert!(transaction.reserve_gang(&third, SameNumbers::No).is_err());
    assert_eq!(world.stats().tentative, 2, "those of before stay");
}

proptest! {
    #[test]
    fn whatever_a_gang_asks_for_a_refusal_leaves_no_trace_and_the_same_is_the_same(
        taken in proptest::collection::vec((0u32..4, request()), 0..12),
        asked in request(),
        same in any::<bool>(),
    ) {
        let world = hosts(4, "100-115");
        for (index, (host, request)) in (0..).zip(&taken) {
            let mut transaction = world.begin(seconds(0));
            let _ = transaction.reserve(HostId(*host), replica(1, index, 0), request, None);
            transaction.commit();
        }
        let before = whole(&world);
        let same = if same { SameNumbers::Yes } else { SameNumbers::No };
        let gang = members(&asked, 0..4);
        let mut transaction = world.begin(seconds(0));
        let fits: Vec<bool> = gang
            .iter()
            .map(|member| {
                let need = super::Need::new(&asked, member.replica.service);
                transaction.explain_first(member.host, &need).is_none()
            })
            .collect();
        match transaction.reserve_gang(&gang, same) {
            Ok(grants) => {
                // What the hosts have in common can lead the order of choice past a number that one
                // of them alone would have taken first, and then missed.
                prop_assert!(same == SameNumbers::Yes || fits.iter().all(|fits| *fits));
                if same == SameNumbers::Yes {
                    prop_assert!(grants.iter().all(|grant| *grant == grants[0]));
                }
                let tentative: Vec<_> = gang
                    .iter()
                    .map(|member| transaction.grant(member.replica).unwrap().1)
                    .collect();
                prop_assert_eq!(tentative, grants);
            }
            Err(refused) => {
                prop_assert!(same == SameNumbers::Yes || !fits.iter().all(|fits| *fits));
                let told: &[Why] = match &refused {
                    GangError::NothingInCommon { why } => why,
                    GangError::Member { error: ReserveError::Refused { why, .. }, .. } => why,
                    _ => &[],
                };
                prop_assert!(!told.is_empty(), "{:?}", refused);
                prop_assert_eq!(world.stats().tentative, 0);
            }
        }
        drop(transaction);
        prop_assert_eq!(whole(&world), before);
    }
}
