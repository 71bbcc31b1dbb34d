//! What was saved and is read again: a machine by the C table, the record of a replica, the truth of a store.

use std::ffi::c_char;
use std::sync::LazyLock;

use portreeve::attendance::Record;
use portreeve::plugin_abi::constants::{PR_ABI, PR_NEVER, PR_OK};
use portreeve::plugin_abi::pr_get_api;
use portreeve::plugin_abi::types::{PrApi, PrHostinfo, PrStr, PrSup, PrSupEffect, PrSupEvent};
use portreeve::registry::{Config, Registry, Stored, tables};
use portreeve::supervision::record::{replay, why};
use portreeve::time::{Monotonic, Now, WallClock};

use crate::{choice, text};

/// The rules of the state that the core's tests keep of the first version.
const PROFILE: &str = r#"{
    "name": "web", "command": ["serve"], "ports": {"http": "any"},
    "restart": {"backoff": {"jitter": 0}},
    "readiness": {"tcp": {}, "interval": "5s"},
    "stop": {"drain": "2s", "grace": "10s"}
}"#;

static API: LazyLock<&'static PrApi> = LazyLock::new(|| {
    let host = PrHostinfo {
        size: size_of::<PrHostinfo>() as u32,
        abi: PR_ABI,
        want_caps: 0,
    };
    let mut api: *const PrApi = std::ptr::null();
    let mut abi = 0;
    // SAFETY: live locals.
    let code = unsafe { pr_get_api(&raw const host, &raw mut api, &raw mut abi) };
    assert_eq!(code, PR_OK);
    // SAFETY: the table lives as long as the program.
    unsafe { &*api }
});

fn profile() -> PrStr {
    PrStr {
        p: PROFILE.as_ptr().cast::<c_char>(),
        n: PROFILE.len() as u64,
    }
}

/// The state of a machine: as it is, and in the frame that tells whole ones. One that is accepted is then driven on.
pub(crate) fn saved(bytes: &[u8]) {
    let (events, state) = bytes.split_at(bytes.len().min(16));
    if let Some(sup) = load(state) {
        drive(sup, events);
    }
    if let Some(sup) = load(&framed(state)) {
        let first = save(sup);
        let again = load(&first).expect("what was saved is loaded");
        assert_eq!(save(again), first, "the same machine");
        free(again);
        drive(sup, events);
    }
}

fn load(state: &[u8]) -> Option<PrSup> {
    let mut sup: PrSup = 0;
    // SAFETY: live texts of the length said, and a live local.
    let code = unsafe {
        (API.sup_load)(
            profile(),
            state.as_ptr().cast(),
            state.len() as u64,
            &raw mut sup,
        )
    };
    (code == PR_OK).then_some(sup)
}

fn save(sup: PrSup) -> Vec<u8> {
    let mut room = vec![0_u8; 1 << 20];
    let mut need = 0;
    // SAFETY: the room has as many bytes as is said, and a live local.
    let code = unsafe {
        (API.sup_save)(
            sup,
            room.as_mut_ptr().cast(),
            room.len() as u32,
            &raw mut need,
        )
    };
    assert_eq!(code, PR_OK, "a machine is saved in 1 MiB");
    room.truncate(need as usize);
    room
}

fn free(sup: PrSup) {
    // SAFETY: nothing of it is used afterwards.
    assert_eq!(unsafe { (API.sup_free)(sup) }, PR_OK);
}

/// Hands over what may happen, each time takes all effects, and goes to the next deadline.
fn drive(sup: PrSup, events: &[u8]) {
    let mut now = 0_u64;
    for (nth, byte) in events.iter().enumerate() {
        let event = PrSupEvent {
            size: size_of::<PrSupEvent>() as u32,
            kind: u32::from(byte % 13),
            run: u32::from(byte >> 4),
            probe_kind: u32::from(byte % 4),
            probe: nth as u32,
            result: u32::from(byte % 3),
            code: i32::from(*byte) - 3,
            flags: 0,
            ms: u64::from(*byte),
        };
        // SAFETY: a live struct of the size it says.
        let _ = unsafe { (API.sup_event)(sup, now, &raw const event) };
        for _ in 0..600 {
            let mut effect = PrSupEffect {
                size: size_of::<PrSupEffect>() as u32,
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
            // SAFETY: a live struct of the size it says.
            if unsafe { (API.sup_next_effect)(sup, &raw mut effect) } != 1 {
                break;
            }
        }
        let mut next = 0;
        // SAFETY: a live local.
        let code = unsafe { (API.sup_next_deadline)(sup, &raw mut next) };
        if code == PR_OK && next != PR_NEVER {
            now = now.max(next);
            // SAFETY: no memory is handed over.
            let _ = unsafe { (API.sup_deadline)(sup, now) };
        }
    }
    free(sup);
}

/// The frame of `sup_save`, as the core writes it.
fn framed(content: &[u8]) -> Vec<u8> {
    let mut state = b"portsup\n".to_vec();
    state.extend(1_u32.to_le_bytes());
    state.extend((content.len() as u32).to_le_bytes());
    let summed = state[8..].iter().chain(content);
    let sum = summed.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    state.extend(sum.to_le_bytes());
    state.extend(content);
    state
}

/// The record of what happened to a replica, which its job can write, and where a worker begins again.
pub(crate) fn record(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    if kind % 2 == 0 {
        let _ = replay(text(bytes));
        let _ = why(text(bytes));
        return;
    }
    let Ok(record) = serde_json::from_slice::<Record>(bytes) else {
        return;
    };
    let text = serde_json::to_string(&record).expect("plain data is written as JSON");
    let again: Record = serde_json::from_str(&text).expect("what was written is read");
    assert_eq!(again, record);
    let _ = (record.is_final(), record.leaving(), record.began());
    let over = record.in_boot("another").over();
    assert!(over.is_final());
}

/// What a store holds: lines `TABLE KEY RECORD`, table and key without blanks.
pub(crate) fn stored(bytes: &[u8]) {
    let mut stored = Stored::default();
    for line in text(bytes).lines() {
        let mut parts = line.splitn(3, ' ');
        let (Some(table), Some(key), Some(record)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let nth = table.bytes().map(usize::from).sum::<usize>();
        let named = tables::ALL.iter().find(|name| **name == table);
        let table = named.unwrap_or(&tables::ALL[nth % tables::ALL.len()]);
        let records = stored.tables.entry((*table).to_owned()).or_default();
        records.insert(key.to_owned(), record.as_bytes().to_vec());
    }
    let now = Now {
        mono: Monotonic::from_millis(1_000),
        wall: WallClock::from_unix_millis(1_700_000_000_000),
    };
    let _ = Registry::load(Config::default(), &stored, "epoch".to_owned(), now);
}
