//! Row 16: what the C table adds to a question about all hosts, and what asking it host by host would cost.

use std::ptr::{null, null_mut};

use portreeve::allocator::{Allocator, AllocatorConfig, HostSet, HostSpec, HostState, Need};
use portreeve::identity::{HostId, ServiceId};
use portreeve::plugin_abi::constants::*;
use portreeve::plugin_abi::pr_get_api;
use portreeve::plugin_abi::types::*;
use portreeve::port::{Port, Protocol};
use portreeve::port_pool::Foreign;
use portreeve::time::Monotonic;

use crate::fleet::{DYNAMIC, HostPlan, Plan, name};
use crate::interleaved::{Ratio, clocked, interleave};
use crate::requests::fixed_and_any;
use crate::verdict::{Bound, Part, Row};

const HOSTS: u32 = 10_000;
const WORDS: u32 = HOSTS.div_ceil(64);
const FIXED: u16 = 8080;
const ANY: usize = 3;
/// Few: asking host by host takes a good part of a second.
const ROUNDS: usize = 21;

/// Row 16.
pub(crate) fn row() -> Row {
    let plan = Plan::cluster(HOSTS);
    let allocator = filled(&plan);
    let request = fixed_and_any(&[FIXED], ANY);
    let need = Need::new(&request, ServiceId(9));
    let mut transaction = allocator.begin(Monotonic::from_millis(0));
    let mut other = allocator.begin(Monotonic::from_millis(0));
    let mut fits = HostSet::new();
    let table = Table::filled(&plan);
    let mut out = [0; WORDS as usize];
    let mut words = [0; WORDS as usize];
    let mut own = HostSet::new();
    let [rust, set_alone, c, explained, single] = interleave(
        ROUNDS,
        [
            // The table answers with words of the caller's and their number: so does this.
            &mut |times| {
                clocked(times, || {
                    transaction.feasible_into(&need, None, &mut fits);
                    fits.write_words(&mut words)
                })
            },
            &mut |times| clocked(times, || other.feasible_into(&need, None, &mut own)),
            &mut |times| clocked(times, || table.feasible(&mut out)),
            &mut |times| {
                clocked(times, || {
                    (0..HOSTS).filter(|host| table.fits(*host)).count()
                })
            },
            &mut |times| {
                clocked(times, || {
                    (0..HOSTS).filter(|host| table.alone(*host)).count()
                })
            },
        ],
    );
    table.feasible(&mut out);
    let has = |host: u32| out[host as usize / 64] >> (host % 64) & 1 == 1;
    let alike = (0..HOSTS).all(|host| {
        let fit = fits.contains(HostId(host));
        fit == has(host) && fit == table.fits(host) && fit == table.alone(host)
    });
    assert!(alike, "every way of asking answers alike");
    Row {
        number: 16,
        what: "all of 10,000 hosts that take {1 fixed + 3 any}, through the C table",
        target: "<= 1.1x the same call in Rust; host by host >= 5x slower",
        parts: vec![
            Part::ratio(
                "beside Rust",
                &Ratio::of(&c, &rust),
                ("table", "Rust"),
                Bound::AtMost(1.1),
            ),
            Part::ratio(
                "beside Rust that leaves the answer in its own set, uncounted",
                &Ratio::of(&c, &set_alone),
                ("table", "Rust"),
                Bound::Told,
            ),
            Part::ratio(
                "host by host, explain",
                &Ratio::of(&explained, &c),
                ("each", "all"),
                Bound::AtLeast(5.0),
            ),
            Part::ratio(
                "host by host, feasible of one candidate",
                &Ratio::of(&single, &c),
                ("each", "all"),
                Bound::AtLeast(5.0),
            ),
        ],
    }
}

/// What somebody listens on, on both sides of the comparison.
fn taken(host: &HostPlan) -> Vec<u16> {
    let run = DYNAMIC.rev().take(host.run as usize);
    let mut taken: Vec<u16> = host.numbers.iter().copied().chain(run).collect();
    taken.sort_unstable();
    taken.dedup();
    taken
}

fn filled(plan: &Plan) -> Allocator {
    let allocator = Allocator::new(AllocatorConfig::default());
    for (id, host) in (0..).map(HostId).zip(plan.hosts()) {
        let spec = HostSpec::new(name(id.0).parse().expect("n0, n1.. are host names"));
        allocator.put_hosts(vec![(id, spec)]).expect("it is new");
        allocator
            .set_host_state(id, HostState::Up)
            .expect("it is known");
        let foreign = |number| Foreign {
            port: Port::new(number).expect("no plan has a 0"),
            protocol: Protocol::Tcp,
            pid: None,
            comm: None,
        };
        let list: Vec<Foreign> = taken(host).into_iter().map(foreign).collect();
        allocator.set_foreign(id, &list).expect("it is known");
    }
    allocator
}

/// A context of the plugin with an open transaction.
struct Table {
    api: &'static PrApi,
    context: PrCtx,
    transaction: PrTxn,
    need: PrNeed,
}

impl Table {
    fn filled(plan: &Plan) -> Self {
        let host = PrHostinfo {
            size: size_of::<PrHostinfo>() as u32,
            abi: PR_ABI,
            want_caps: 0,
        };
        let mut api = null();
        // SAFETY: both point to what they shall, for the call.
        let code = unsafe { pr_get_api(&raw const host, &raw mut api, null_mut()) };
        assert_eq!(code, PR_OK);
        // SAFETY: the table is static.
        let api = unsafe { &*api };
        let config = PrConfig {
            size: size_of::<PrConfig>() as u32,
            flags: PR_CFG_NO_RESTORE,
            ..ZERO_CONFIG
        };
        let mut context = 0;
        // SAFETY: as above.
        let code = unsafe { (api.create)(&raw const config, &raw mut context) };
        assert_eq!(code, PR_OK);
        for (number, host) in (0..).zip(plan.hosts()) {
            put(api, context, number, &taken(host));
        }
        let profile = profile(api, context);
        let mut transaction = 0;
        // SAFETY: as above.
        let code = unsafe { (api.txn_begin)(context, 0, 0, &raw mut transaction) };
        assert_eq!(code, PR_OK);
        let need = PrNeed {
            profile,
            replicas: 0,
            at_ms: 0,
        };
        Self {
            api,
            context,
            transaction,
            need,
        }
    }

    /// All hosts at once.
    fn feasible(&self, out: &mut [u64; WORDS as usize]) -> i64 {
        let (need, out) = (&raw const self.need, out.as_mut_ptr());
        // SAFETY: `out` has as many words as are told.
        unsafe { (self.api.feasible)(self.transaction, need, null(), out, null_mut(), WORDS) }
    }

    /// One host, by its causes.
    fn fits(&self, host: u32) -> bool {
        let (mut why, mut causes) = ([NO_WHY; 16], 0_u32);
        let need = &raw const self.need;
        let (first, causes_at) = (why.as_mut_ptr(), &raw mut causes);
        // SAFETY: `why` has as many elements as are told.
        let code =
            unsafe { (self.api.explain)(self.transaction, need, host, first, 16, causes_at) };
        assert_eq!(code, PR_OK);
        causes == 0
    }

    /// One host, as the only candidate.
    fn alone(&self, host: u32) -> bool {
        let words = host / 64 + 1;
        let mut both = [0; WORDS as usize];
        both[host as usize / 64] = 1 << (host % 64);
        let (need, both) = (&raw const self.need, both.as_mut_ptr());
        let call = self.api.feasible;
        // SAFETY: both arrays, which may be one, have at least as many words as are told.
        let count = unsafe { call(self.transaction, need, both, both, null_mut(), words) };
        count == 1
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: takes an id only.
        unsafe { (self.api.destroy)(self.context) };
    }
}

fn put(api: &PrApi, context: PrCtx, number: u32, taken: &[u16]) {
    let name = name(number);
    let host = PrHost {
        size: size_of::<PrHost>() as u32,
        flags: 0,
        host: number,
        state: 0,
        name: text(&name),
        dynamic: null(),
        fixed: null(),
        reserved: null(),
        n_dynamic: 0,
        n_fixed: 0,
        n_reserved: 0,
        cool_ms: 0,
    };
    // SAFETY: the host and its name live for the call.
    let code = unsafe { (api.host_put)(context, &raw const host, 1) };
    assert_eq!(code, PR_OK);
    let foreign = |number: &u16| PrForeign {
        lo: *number,
        hi: *number,
        proto: PR_TCP,
        pid: 0,
        flags: 0,
        comm: [0; 16],
    };
    let list: Vec<PrForeign> = taken.iter().map(foreign).collect();
    let n = list.len() as u32;
    // SAFETY: the list lives for the call and has so many elements.
    let code = unsafe { (api.report_foreign)(context, number, 1, list.as_ptr(), n) };
    assert_eq!(code, PR_OK);
}

fn profile(api: &PrApi, context: PrCtx) -> u32 {
    let port = |name, fixed| PrPort {
        name: text(name),
        env: NO_TEXT,
        network: NO_TEXT,
        within: null(),
        n_within: 0,
        fixed,
        count: 1,
        proto: PR_TCP,
        flags: 0,
    };
    let ports = [
        port("admin", FIXED),
        port("a", 0),
        port("b", 0),
        port("c", 0),
    ];
    let profile = PrProfile {
        size: size_of::<PrProfile>() as u32,
        flags: 0,
        name: text("web"),
        service: text("web.alice"),
        ports: ports.as_ptr(),
        n_ports: ports.len() as u32,
        port_size: size_of::<PrPort>() as u32,
    };
    let mut id = 0;
    // SAFETY: what it points to lives for the call.
    let code = unsafe { (api.profile_put)(context, &raw const profile, &raw mut id) };
    assert_eq!(code, PR_OK);
    id
}

const fn text(text: &str) -> PrStr {
    PrStr {
        p: text.as_ptr().cast(),
        n: text.len() as u64,
    }
}

const NO_TEXT: PrStr = PrStr { p: null(), n: 0 };

const ZERO_CONFIG: PrConfig = PrConfig {
    size: 0,
    flags: 0,
    max_hosts: 0,
    max_allocs: 0,
    max_profiles: 0,
    max_waits: 0,
    max_watches: 0,
    max_ports: 0,
    cool_ms: 0,
    foreign_rest_ms: 0,
    seed: 0,
    env_prefix: NO_TEXT,
    ud: null_mut(),
    log: None,
};

const NO_WHY: PrWhy = PrWhy {
    holder: 0,
    reason: 0,
    item: 0,
    proto: 0,
    have: 0,
    want: 0,
    retry_ms: 0,
    pid: 0,
    port: 0,
    zero: 0,
};
