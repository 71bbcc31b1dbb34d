//! A scheduler for tests: calls the table as C would, with valid memory.

use std::ffi::c_char;
use std::ptr::{null, null_mut};

use crate::plugin_abi::constants::*;
use crate::plugin_abi::pr_get_api;
use crate::plugin_abi::types::*;

pub(super) fn api() -> &'static PrApi {
    let host = PrHostinfo {
        size: size(&host_info()),
        ..host_info()
    };
    let mut api = null();
    // SAFETY: every pointer is to a live local.
    let code = unsafe { pr_get_api(&raw const host, &raw mut api, null_mut()) };
    assert_eq!(code, PR_OK);
    // SAFETY: the call succeeded, so it points to the static table.
    unsafe { &*api }
}

pub(super) fn host_info() -> PrHostinfo {
    PrHostinfo {
        size: 16,
        abi: PR_ABI,
        want_caps: PR_CAP_ENDPOINTS,
    }
}

pub(super) fn size<T>(_: &T) -> u32 {
    u32::try_from(size_of::<T>()).unwrap()
}

pub(super) fn text(text: &str) -> PrStr {
    PrStr {
        p: text.as_ptr().cast(),
        n: text.len() as u64,
    }
}

pub(super) const ABSENT: PrStr = PrStr { p: null(), n: 0 };

pub(super) fn config() -> PrConfig {
    PrConfig {
        size: u32::try_from(size_of::<PrConfig>()).unwrap(),
        flags: PR_CFG_NO_RESTORE,
        max_hosts: 256,
        max_allocs: 100,
        max_profiles: 10,
        max_waits: 0,
        max_watches: 0,
        max_ports: 1000,
        cool_ms: 60_000,
        foreign_rest_ms: 0,
        seed: 1,
        env_prefix: ABSENT,
        ud: null_mut(),
        log: None,
    }
}

pub(super) fn host(index: u32, name: &str) -> PrHost {
    PrHost {
        size: u32::try_from(size_of::<PrHost>()).unwrap(),
        flags: 0,
        host: index,
        state: PR_HOST_UP,
        name: text(name),
        dynamic: null(),
        fixed: null(),
        reserved: null(),
        n_dynamic: 0,
        n_fixed: 0,
        n_reserved: 0,
        cool_ms: 0,
    }
}

pub(super) fn any(name: &str) -> PrPort {
    PrPort {
        name: text(name),
        env: ABSENT,
        network: ABSENT,
        within: null(),
        n_within: 0,
        fixed: 0,
        count: 1,
        proto: PR_TCP,
        flags: 0,
    }
}

pub(super) fn fixed(name: &str, number: u16) -> PrPort {
    PrPort {
        fixed: number,
        ..any(name)
    }
}

pub(super) fn want(job: u64, replica: u32, profile: u32, host: u32) -> PrWant {
    PrWant {
        job,
        step: 0,
        replica,
        incarnation: 0,
        profile,
        host,
        flags: 0,
    }
}

pub(super) fn no_grant() -> PrGrant {
    PrGrant {
        id: 0,
        rc: 0,
        reason: 0,
        host: 0,
        n_ports: 0,
        port_off: 0,
        retry_ms: 0,
    }
}

/// A context with two hosts, out of the restore phase; destroyed at the end.
pub(super) struct Caller {
    pub(super) api: &'static PrApi,
    pub(super) ctx: PrCtx,
}

impl Caller {
    pub(super) fn new() -> Self {
        let caller = Self::with(&config());
        assert_eq!(caller.put(&[host(0, "n1"), host(1, "n2")]), PR_OK);
        caller
    }

    pub(super) fn with(config: &PrConfig) -> Self {
        let api = api();
        let mut ctx = 0;
        let code = in_turn(|| {
            // SAFETY: every pointer is to a live value.
            unsafe { (api.create)(config, &raw mut ctx) }
        });
        assert_eq!(code, PR_OK, "{}", last_error());
        Self { api, ctx }
    }

    pub(super) fn put(&self, hosts: &[PrHost]) -> i32 {
        let n = u32::try_from(hosts.len()).unwrap();
        // SAFETY: `hosts` has `n` elements.
        unsafe { (self.api.host_put)(self.ctx, hosts.as_ptr(), n) }
    }

    pub(super) fn try_profile(&self, service: &str, ports: &[PrPort]) -> Result<u32, i32> {
        let profile = PrProfile {
            size: u32::try_from(size_of::<PrProfile>()).unwrap(),
            flags: 0,
            name: text("kind"),
            service: text(service),
            ports: ports.as_ptr(),
            n_ports: u32::try_from(ports.len()).unwrap(),
            port_size: u32::try_from(size_of::<PrPort>()).unwrap(),
        };
        let mut id = 0;
        // SAFETY: every pointer is to a live value.
        match unsafe { (self.api.profile_put)(self.ctx, &raw const profile, &raw mut id) } {
            PR_OK => Ok(id),
            code => Err(code),
        }
    }

    pub(super) fn profile(&self, service: &str, ports: &[PrPort]) -> u32 {
        self.try_profile(service, ports)
            .unwrap_or_else(|code| panic!("{code}: {}", last_error()))
    }

    pub(super) fn try_begin(&self, flags: u32, now_ms: u64) -> Result<PrTxn, i32> {
        let mut txn = 0;
        // SAFETY: `txn` is a live local.
        match unsafe { (self.api.txn_begin)(self.ctx, flags, now_ms, &raw mut txn) } {
            PR_OK => Ok(txn),
            code => Err(code),
        }
    }

    pub(super) fn begin(&self, now_ms: u64) -> PrTxn {
        self.try_begin(0, now_ms).unwrap()
    }

    /// Reserves one want with room for `cap` numbers.
    pub(super) fn reserve(&self, txn: PrTxn, want: PrWant) -> (i32, PrGrant, Vec<u16>) {
        let (code, grants, ports) = self.reserve_all(txn, 0, &[want]);
        (code, grants[0], ports)
    }

    pub(super) fn reserve_all(
        &self,
        txn: PrTxn,
        flags: u32,
        wants: &[PrWant],
    ) -> (i32, Vec<PrGrant>, Vec<u16>) {
        let n = u32::try_from(wants.len()).unwrap();
        let mut grants = vec![no_grant(); wants.len()];
        let mut ports = vec![0; 64];
        let mut need = 0;
        // SAFETY: every pointer is to live memory of the length said.
        let code = unsafe {
            (self.api.reserve)(
                txn,
                flags,
                wants.as_ptr(),
                n,
                grants.as_mut_ptr(),
                ports.as_mut_ptr(),
                64,
                &raw mut need,
            )
        };
        ports.truncate(need as usize);
        (code, grants, ports)
    }

    pub(super) fn commit(&self, txn: PrTxn) -> i32 {
        let mut number = 0;
        // SAFETY: `number` is a live local.
        unsafe { (self.api.commit)(txn, &raw mut number) }
    }

    pub(super) fn abort(&self, txn: PrTxn) -> i32 {
        // SAFETY: no pointer is passed.
        unsafe { (self.api.abort_)(txn) }
    }

    /// A committed grant.
    pub(super) fn hold(&self, want: PrWant) -> (PrAlloc, Vec<u16>) {
        let txn = self.begin(0);
        let (code, grant, ports) = self.reserve(txn, want);
        assert_eq!(code, PR_OK, "{}", last_error());
        assert_eq!(self.commit(txn), PR_OK);
        (grant.id, ports)
    }

    pub(super) fn release_begin(&self, id: PrAlloc) -> i32 {
        // SAFETY: one live id.
        unsafe { (self.api.release_begin)(self.ctx, &raw const id, 1, 0, null_mut()) }
    }

    pub(super) fn release_confirm(&self, id: PrAlloc, now_ms: u64) -> i32 {
        // SAFETY: one live id.
        unsafe { (self.api.release_confirm)(self.ctx, &raw const id, 1, 0, now_ms, null_mut()) }
    }

    pub(super) fn pump(&self, now_ms: u64) -> u64 {
        let mut next = 0;
        // SAFETY: `next` is a live local.
        let code = unsafe { (self.api.pump)(self.ctx, now_ms, &raw mut next) };
        assert_eq!(code, PR_OK, "{}", last_error());
        next
    }

    pub(super) fn address(&self, host: u32, seq: u64, last: u8) -> i32 {
        let mut ip = [0; 16];
        ip[..4].copy_from_slice(&[10, 0, 0, last]);
        let address = PrAddr {
            ip,
            family: 4,
            scope: 0,
            pref: 0,
            flags: 0,
        };
        // SAFETY: one live address.
        unsafe { (self.api.report_addr)(self.ctx, host, seq, &raw const address, 1) }
    }

    pub(super) fn report(&self, id: PrAlloc, run: u32, seq: u64, state: u32) -> i32 {
        let report = PrReady {
            id,
            seq,
            run,
            state,
            reason: 0,
            restarts: 0,
        };
        // SAFETY: one live report.
        unsafe { (self.api.report_ready)(self.ctx, &raw const report, 1, null_mut()) }
    }

    pub(super) fn host_state(&self, host: u32, state: u32) -> i32 {
        // SAFETY: no pointer is passed.
        unsafe { (self.api.host_state)(self.ctx, host, state) }
    }

    /// The endpoints and the revision, or the code.
    pub(super) fn resolve(&self, service: &str, flags: u32) -> Result<(Vec<PrEndpoint>, u64), i32> {
        let (mut need, mut revision) = (0, 0);
        let mut endpoints: Vec<PrEndpoint> = Vec::with_capacity(16);
        // SAFETY: every pointer is to live memory of the length said.
        let code = unsafe {
            (self.api.resolve)(
                self.ctx,
                text(service),
                ABSENT,
                flags,
                endpoints.as_mut_ptr(),
                16,
                &raw mut need,
                &raw mut revision,
            )
        };
        if code != PR_OK {
            return Err(code);
        }
        // SAFETY: the call wrote `need` elements, no more than there is room for.
        unsafe { endpoints.set_len(need as usize) };
        Ok((endpoints, revision))
    }

    pub(super) fn listed(&self, service: &str) -> usize {
        self.resolve(service, 0).unwrap().0.len()
    }

    /// The variables, sorted.
    pub(super) fn env(&self, id: PrAlloc) -> Vec<String> {
        let mut need = 0;
        let mut buffer = vec![0_u8; 4096];
        // SAFETY: `buffer` has the length said.
        let code = unsafe {
            (self.api.env)(
                self.ctx,
                id,
                0,
                buffer.as_mut_ptr().cast::<c_char>(),
                4096,
                &raw mut need,
            )
        };
        assert_eq!(code, PR_OK, "{}", last_error());
        assert_eq!(buffer[need as usize - 2..need as usize], [0, 0]);
        buffer.truncate(need as usize - 2);
        let all = buffer.split(|byte| *byte == 0);
        let mut all: Vec<_> = all
            .map(|v| String::from_utf8(v.to_vec()).unwrap())
            .collect();
        all.sort();
        all
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // A test may have destroyed it already.
        destroy(self.ctx);
    }
}

/// Makes or ends a context once no other test of this process does: `PR_EBUSY` says that one does just now.
pub(super) fn in_turn(mut call: impl FnMut() -> i32) -> i32 {
    loop {
        match call() {
            PR_EBUSY => std::thread::yield_now(),
            code => return code,
        }
    }
}

pub(super) fn destroy(ctx: PrCtx) -> i32 {
    in_turn(|| {
        // SAFETY: no pointer is passed.
        unsafe { (api().destroy)(ctx) }
    })
}

pub(super) fn last_error() -> String {
    let mut need = 0;
    let mut buffer = vec![0_u8; 1024];
    // SAFETY: `buffer` has the length said.
    let code =
        unsafe { (api().last_error)(buffer.as_mut_ptr().cast::<c_char>(), 1024, &raw mut need) };
    assert_eq!(code, PR_OK);
    buffer.truncate(need as usize - 1);
    String::from_utf8(buffer).unwrap()
}
