//! What a careless or very busy scheduler does: numbers at their limits, ends in the wrong order, what
//! belongs to another allocator, damaged records.

use crate::identity::HostId;
use crate::port::Protocol;
use crate::port_pool::PortGrant;

use super::testing::{grant, granted, hosts, nginx_on, ranges, replica, seconds};

use super::{AfterRelease, Allocator, GrantRecord, HostSpec};

const HOST: HostId = HostId(0);

fn put(world: &Allocator, reserved: &str) {
    let mut spec = HostSpec::new("n0".parse().unwrap());
    spec.ranges = ranges("100-110", "1-65535", reserved);
    world.put_host(HOST, spec).unwrap();
}

#[test]
fn a_number_that_is_reserved_for_a_while_stays_its_holders_whatever_is_compacted() {
    let world = hosts(1, "100-110");
    put(&world, "");
    let holder = replica(1, 0, 0);
    grant(&world, 0, holder, "a=100/udp").unwrap();
    world
        .set_foreign(HOST, &[nginx_on(101, Protocol::Udp)])
        .unwrap();
    put(&world, "100-101");
    world.compact();
    put(&world, "");
    for number in [100, 101] {
        let refused = grant(&world, 0, replica(2, number, 0), &format!("a={number}/udp"));
        assert!(refused.is_err(), "{number} was given twice");
    }
    assert_eq!(world.counts(HOST).free_udp, 9);
}

#[test]
fn a_record_that_names_a_number_thousands_of_times_is_told_once_for_each() {
    let world = hosts(1, "20000-20010");
    let port = granted("a=20000").ports.remove(0);
    let record = GrantRecord {
        host: HOST,
        replica: replica(1, 0, 0),
        grant: PortGrant {
            ports: vec![port; 3000],
        },
        releasing: false,
    };
    let conflicts = world.restore([record.clone()]);
    assert_eq!(conflicts.len(), 2999);
    world
        .confirm_release(record.replica, seconds(0), AfterRelease::Free)
        .unwrap();
    assert_eq!(world.counts(HOST).held, 0);
    assert_eq!(world.counts(HOST).free_tcp, 11);
}
