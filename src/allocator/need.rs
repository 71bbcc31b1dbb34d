//! What is asked of hosts.

use crate::identity::ServiceId;
use crate::port_pool::{PortRequest, Want};
use crate::time::Monotonic;

/// A question to hosts: could so many replicas of a service have these ports there, then?
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// The ports of one replica.
    pub request: &'a PortRequest,
    /// Whose they will be: a fixed number that cools for this service is given at once.
    pub service: ServiceId,
    /// How many replicas on one host, all at once; 0 asks as 1 does.
    pub replicas: u32,
    /// When. `None`, or a moment that is not later than now: now. Later: as if all that will have
    /// rested by then had, and everything else stayed as it is.
    pub at: Option<Monotonic>,
}

impl<'a> Need<'a> {
    /// One replica of `service`, now.
    #[must_use]
    pub const fn new(request: &'a PortRequest, service: ServiceId) -> Self {
        Self {
            request,
            service,
            replicas: 1,
            at: None,
        }
    }

    /// The numbers that all replicas together draw, blocks counted by their size.
    pub(super) fn drawn(&self) -> u32 {
        let any = self.request.as_slice().iter().map(|port| match port.want {
            Want::Fixed(_) => 0,
            Want::Any { count } => u32::from(count.get()),
        });
        any.sum::<u32>().saturating_mul(self.replicas.max(1))
    }
}
