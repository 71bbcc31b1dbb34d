//! What a careless or very busy scheduler does: numbers at their limits, ends in the wrong order, what
//! belongs to another allocator, damaged records.

use crate::identity::HostId;
use crate::port::Protocol;

use super::testing::{grant, hosts, nginx_on, ranges, replica};

use super::{Allocator, HostSpec};

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
