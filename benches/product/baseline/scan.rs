//! Every host is asked, in order: free numbers as a roaring bitmap and a count, side by side.

use roaring::RoaringBitmap;

use crate::fleet::{DYNAMIC, Plan};

/// The hosts of a cluster, without locks, names or grants.
pub(crate) struct Scan(Vec<Host>);

struct Host {
    free: RoaringBitmap,
    dynamic_free: u32,
}

impl Scan {
    /// The hosts of the plan.
    pub(crate) fn new(plan: &Plan) -> Self {
        let hosts = plan.hosts().map(|host| {
            let mut free = RoaringBitmap::new();
            free.insert_range(1..=u32::from(u16::MAX));
            for number in &host.numbers {
                free.remove(u32::from(*number));
            }
            let first = u32::from(*DYNAMIC.start());
            free.remove_range(first..first + host.run);
            let dynamic = u32::from(*DYNAMIC.start())..=u32::from(*DYNAMIC.end());
            Host {
                dynamic_free: free.range_cardinality(dynamic) as u32,
                free,
            }
        });
        Self(hosts.collect())
    }

    /// Leaves in `hosts` those on which all of `fixed` are free, and `any` numbers beside.
    pub(crate) fn feasible(&self, fixed: &[u16], any: u32, hosts: &mut Vec<u32>) {
        hosts.clear();
        for (number, host) in (0u32..).zip(&self.0) {
            if host.fits(fixed, any) {
                hosts.push(number);
            }
        }
    }

    /// The same for some hosts.
    pub(crate) fn feasible_among(
        &self,
        candidates: &[u32],
        fixed: &[u16],
        any: u32,
        hosts: &mut Vec<u32>,
    ) {
        hosts.clear();
        let fits = |number: &u32| self.0[*number as usize].fits(fixed, any);
        hosts.extend(candidates.iter().copied().filter(fits));
    }
}

impl Host {
    fn fits(&self, fixed: &[u16], any: u32) -> bool {
        let is_free = |number: &u16| self.free.contains(u32::from(*number));
        self.dynamic_free >= any && fixed.iter().all(is_free)
    }
}
