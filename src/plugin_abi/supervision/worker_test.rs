//! A worker for tests: calls the table as C would, with valid memory.

use std::ptr::null_mut;

use crate::plugin_abi::caller_test::{api, last_error, text};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

/// A worker for tests: one machine, called as C would.
pub(super) struct Worker {
    pub(super) sup: PrSup,
}

/// Ends are at their defaults; a readiness probe, so that nothing is due by itself.
pub(super) const PROFILE: &str = r#"{
    "name": "web", "command": ["serve"], "ports": {"http": "any"},
    "restart": {"backoff": {"jitter": 0}},
    "readiness": {"tcp": {}, "interval": "5s"},
    "stop": {"drain": "2s", "grace": "10s"}
}"#;

pub(super) const NO_EVENT: PrSupEvent = PrSupEvent {
    size: 40,
    kind: 0,
    run: 0,
    probe_kind: 0,
    probe: 0,
    result: 0,
    code: 0,
    flags: 0,
    ms: 0,
};

pub(super) const NO_EFFECT: PrSupEffect = PrSupEffect {
    size: 48,
    kind: 0,
    run: 0,
    probe_kind: 0,
    number: 0,
    report: 0,
    reason: 0,
    code: 0,
    count: 0,
    flags: 0,
    ms: 0,
};

pub(super) const fn event(kind: u32, run: u32) -> PrSupEvent {
    PrSupEvent {
        kind,
        run,
        ..NO_EVENT
    }
}

pub(super) fn try_new(profile: &str) -> Result<Worker, i32> {
    let mut sup = 0;
    // SAFETY: a live text and a live local.
    match unsafe { (api().sup_new)(text(profile), 7, &raw mut sup) } {
        PR_OK => Ok(Worker { sup }),
        code => Err(code),
    }
}

pub(super) fn try_load(profile: &str, state: &[u8]) -> Result<Worker, i32> {
    let mut sup = 0;
    let n = state.len() as u64;
    // SAFETY: live texts of the length said and a live local.
    match unsafe { (api().sup_load)(text(profile), state.as_ptr().cast(), n, &raw mut sup) } {
        PR_OK => Ok(Worker { sup }),
        code => Err(code),
    }
}

impl Worker {
    pub(super) fn new() -> Self {
        try_new(PROFILE).unwrap_or_else(|code| panic!("{code}: {}", last_error()))
    }

    pub(super) fn event(&self, now: u64, event: PrSupEvent) -> i32 {
        // SAFETY: a live event.
        unsafe { (api().sup_event)(self.sup, now, &raw const event) }
    }

    pub(super) fn deadline(&self, now: u64) -> i32 {
        // SAFETY: no pointer is passed.
        unsafe { (api().sup_deadline)(self.sup, now) }
    }

    pub(super) fn next_deadline(&self) -> u64 {
        let mut ms = 0;
        // SAFETY: a live local.
        let code = unsafe { (api().sup_next_deadline)(self.sup, &raw mut ms) };
        assert_eq!(code, PR_OK);
        ms
    }

    pub(super) fn next_effect(&self) -> Option<PrSupEffect> {
        let mut effect = NO_EFFECT;
        // SAFETY: a live effect.
        match unsafe { (api().sup_next_effect)(self.sup, &raw mut effect) } {
            0 => None,
            1 => Some(effect),
            code => panic!("{code}: {}", last_error()),
        }
    }

    pub(super) fn effects(&self) -> Vec<PrSupEffect> {
        std::iter::from_fn(|| self.next_effect()).collect()
    }

    /// Hands over an event and takes what follows from it.
    pub(super) fn after(&self, now: u64, event: PrSupEvent) -> Vec<PrSupEffect> {
        assert_eq!(self.event(now, event), PR_OK, "{}", last_error());
        self.effects()
    }

    pub(super) fn after_deadline(&self, now: u64) -> Vec<PrSupEffect> {
        assert_eq!(self.deadline(now), PR_OK);
        self.effects()
    }

    pub(super) fn save(&self) -> Vec<u8> {
        let mut need = 0;
        // SAFETY: no room is said, and a live local.
        let code = unsafe { (api().sup_save)(self.sup, null_mut(), 0, &raw mut need) };
        assert_eq!(code, PR_ENOSPC);
        let mut state = vec![0_u8; need as usize];
        let room = state.as_mut_ptr().cast();
        // SAFETY: as much room as is said, and a live local.
        let code = unsafe { (api().sup_save)(self.sup, room, need, &raw mut need) };
        assert_eq!(code, PR_OK);
        state
    }

    pub(super) fn free(&self) -> i32 {
        // SAFETY: no pointer is passed.
        unsafe { (api().sup_free)(self.sup) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A test may have freed it already.
        self.free();
    }
}
