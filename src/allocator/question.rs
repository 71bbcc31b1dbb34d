//! The exact question to one host, under its lock. Everything else is a quicker way to the same answer.

use crate::identity::ServiceId;
use crate::port_pool::{
    Ask, Awaited, Cause, CauseCode, Causes, PortGrant, PortPool, PortRequest, Want, Why, WhyPort,
};
use crate::time::Monotonic;

use super::Need;
use super::feasibility::Look;
use super::host::Host;

/// What a question depends on beside the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    /// Numbers that waiting requests name that take any host.
    pub(super) anywhere: &'a Awaited,
    pub(super) now: Monotonic,
    /// The moment asked about, if it is later than now.
    pub(super) later: Option<Monotonic>,
}

impl<'a> Around<'a> {
    pub(super) fn new(anywhere: &'a Awaited, now: Monotonic, at: Option<Monotonic>) -> Self {
        Self {
            anywhere,
            now,
            later: at.filter(|at| *at > now),
        }
    }
}

impl Host {
    /// The question to the host's pool.
    pub(super) fn ask<'a>(
        &'a self,
        service: ServiceId,
        request: &'a PortRequest,
        former: Option<&'a PortGrant>,
        around: &Around<'a>,
    ) -> Ask<'a> {
        Ask {
            service,
            request,
            former,
            awaited: [around.anywhere, &self.awaited],
            now: around.later.unwrap_or(around.now),
        }
    }

    /// Whether the host answers `need`.
    pub(super) fn fits(&self, need: &Need<'_>, around: &Around<'_>, look: &mut Look) -> bool {
        if !self.takes(need.request) {
            return false;
        }
        let ask = self.ask(need.service, need.request, None, around);
        let Look { choice, later } = look;
        self.then(around, Holders::Unnamed, later, |pool| {
            if need.replicas <= 1 {
                pool.choose(&ask, choice, Causes::Untold)
            } else {
                pool.fits_times(&ask, choice, need.replicas) >= need.replicas
            }
        })
    }

    /// How many replicas the host takes, `most` at most.
    pub(super) fn fits_times(
        &self,
        need: &Need<'_>,
        around: &Around<'_>,
        look: &mut Look,
        most: u32,
    ) -> u32 {
        if !self.takes(need.request) {
            return 0;
        }
        let most = if need.request.is_tried() {
            most.min(MOST_TRIED)
        } else {
            most
        };
        let ask = self.ask(need.service, need.request, None, around);
        let Look { choice, later } = look;
        self.then(around, Holders::Unnamed, later, |pool| {
            pool.fits_times(&ask, choice, most)
        })
    }

    /// Pushes every cause against `need`; nothing if it fits.
    pub(super) fn explain(
        &self,
        need: &Need<'_>,
        around: &Around<'_>,
        look: &mut Look,
        why: &mut Vec<Why>,
    ) {
        why.extend(self.barriers(need.request));
        let ask = self.ask(need.service, need.request, None, around);
        let Look { choice, later } = look;
        self.then(around, Holders::Named, later, |pool| {
            let fits = pool.choose(&ask, choice, Causes::All(why));
            if fits && need.replicas > 1 {
                let times = pool.fits_times(&ask, choice, need.replicas);
                crowded(need, times, |cause| why.push(cause));
            }
        });
    }

    /// The first cause against `need`.
    pub(super) fn explain_first(
        &self,
        need: &Need<'_>,
        around: &Around<'_>,
        look: &mut Look,
    ) -> Option<Why> {
        let barrier = self.barriers(need.request).next();
        if barrier.is_some() {
            return barrier;
        }
        let ask = self.ask(need.service, need.request, None, around);
        let Look { choice, later } = look;
        self.then(around, Holders::Named, later, |pool| {
            let mut first = None;
            let fits = pool.choose(&ask, choice, Causes::First(&mut first));
            if fits && need.replicas > 1 {
                let times = pool.fits_times(&ask, choice, need.replicas);
                crowded(need, times, |cause| {
                    first.get_or_insert(cause);
                });
            }
            first
        })
    }

    /// What kind the first cause against `need` is.
    pub(super) fn first_code(
        &self,
        need: &Need<'_>,
        around: &Around<'_>,
        look: &mut Look,
    ) -> Option<CauseCode> {
        let barrier = self.barriers(need.request).next();
        if let Some(barrier) = barrier {
            return Some(barrier.cause.code());
        }
        let ask = self.ask(need.service, need.request, None, around);
        let Look { choice, later } = look;
        self.then(around, Holders::Named, later, |pool| {
            let mut first = None;
            let fits = pool.choose(&ask, choice, Causes::Code(&mut first));
            if fits && need.replicas > 1 {
                let times = pool.fits_times(&ask, choice, need.replicas);
                crowded(need, times, |cause| {
                    first.get_or_insert(cause.cause.code());
                });
            }
            first
        })
    }

    /// Asks the pool as it is, or as it will be at the later moment that the question is about.
    fn then<R>(
        &self,
        around: &Around<'_>,
        holders: Holders,
        later: &mut Option<Box<PortPool>>,
        ask: impl FnOnce(&PortPool) -> R,
    ) -> R {
        match around.later {
            Some(at) if self.pool.next_deadline().is_some_and(|due| due <= at) => {
                let later = later.get_or_insert_default();
                if holders == Holders::Named || self.pool.ends_strangers(at) {
                    (**later).clone_from(&self.pool);
                } else {
                    later.copy_numbers(&self.pool);
                }
                later.end_due(at, &mut |_, _| {});
                ask(later)
            }
            _ => ask(&self.pool),
        }
    }
}

/// Whether the answer may name who holds a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holders {
    Named,
    Unnamed,
}

/// How many replicas are tried on one host, where no count tells how many fit: each costs a search beside
/// those before.
const MOST_TRIED: u32 = 256;

/// Tells what keeps the host from taking all of several replicas, where it takes one.
fn crowded(need: &Need<'_>, times: u32, mut tell: impl FnMut(Why)) {
    if times >= need.replicas {
        return;
    }
    let ports = need.request.as_slice();
    let fixes = ports.iter().any(|port| matches!(port.want, Want::Fixed(_)));
    for port in ports {
        let (number, cause) = match port.want {
            // One host has each number once.
            Want::Fixed(number) => (
                Some(number),
                Cause::TooFew {
                    have: 1,
                    want: need.replicas,
                },
            ),
            Want::Any { .. } if fixes => continue,
            Want::Any { count } if count.get() > 1 => (None, Cause::NoBlock { size: count.get() }),
            Want::Any { .. } => (
                None,
                Cause::TooFew {
                    have: times,
                    want: need.replicas,
                },
            ),
        };
        tell(Why {
            port: Some(WhyPort {
                name: port.name.clone(),
                protocol: port.protocol,
                number,
            }),
            cause,
        });
        if !fixes {
            return;
        }
    }
}

pub(super) const fn about_host(cause: Cause) -> Why {
    Why { port: None, cause }
}
