//! The requests that the rows ask with.

use std::num::NonZeroU16;

use portreeve::identity::{Incarnation, ReplicaId, ServiceId};
use portreeve::port::{Port, Protocol};
use portreeve::port_pool::{PortRequest, Want, WantedPort};

/// The first placement of a replica.
pub(crate) const fn replica(service: u64, index: u32) -> ReplicaId {
    ReplicaId {
        service: ServiceId(service),
        index,
        incarnation: Incarnation(0),
    }
}

/// Single numbers, any.
pub(crate) fn any(count: usize) -> PortRequest {
    fixed_and_any(&[], count)
}

/// One block.
pub(crate) fn block(size: u16) -> PortRequest {
    request(vec![block_want(size)])
}

/// These numbers, and single ones.
pub(crate) fn fixed_and_any(fixed: &[u16], any: usize) -> PortRequest {
    let mut wants: Vec<Want> = fixed.iter().map(|number| fixed_want(*number)).collect();
    wants.extend((0..any).map(|_| block_want(1)));
    request(wants)
}

/// These numbers and one block.
pub(crate) fn fixed_and_block(fixed: &[u16], size: u16) -> PortRequest {
    let mut wants: Vec<Want> = fixed.iter().map(|number| fixed_want(*number)).collect();
    if size > 0 {
        wants.push(block_want(size));
    }
    request(wants)
}

fn fixed_want(number: u16) -> Want {
    Want::Fixed(Port::new(number).expect("the numbers of benches are ports"))
}

fn block_want(size: u16) -> Want {
    Want::Any {
        count: NonZeroU16::new(size).expect("a block has a size"),
    }
}

fn request(wants: Vec<Want>) -> PortRequest {
    let wanted = wants
        .into_iter()
        .enumerate()
        .map(|(place, want)| WantedPort {
            name: format!("p{place}")
                .parse()
                .expect("the names are port names"),
            protocol: Protocol::Tcp,
            want,
            within: None,
        });
    PortRequest::new(wanted.collect()).expect("the ports can stand together")
}
