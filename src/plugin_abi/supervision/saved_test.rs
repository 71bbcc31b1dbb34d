//! What is saved is what goes on; what is no state of ours is refused with a code, whatever it is.

use proptest::prelude::*;

use super::saved;
use super::supervised::Supervised;
use super::worker_test::{NO_EVENT, PROFILE, Worker, event, try_load, try_new};
use crate::plugin_abi::caller_test::last_error;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::PrSupEvent;
use crate::profile::Profile;
use crate::supervision::Config;

/// A machine that has ended a run, restarted and has something left to take.
fn busy() -> Worker {
    let worker = Worker::new();
    for (now, kind, run) in [
        (10_000, PR_SE_START, 0),
        (10_000, PR_SE_SPAWNED, 1),
        (10_100, PR_SE_EXITED, 1),
        (10_200, PR_SE_GROUP_EMPTY, 1),
    ] {
        worker.after(now, event(kind, run));
    }
    worker.after_deadline(11_100);
    assert_eq!(worker.event(11_101, event(PR_SE_SPAWNED, 2)), PR_OK);
    worker
}

#[test]
fn a_saved_machine_goes_on_where_it_was_with_what_was_not_taken() {
    let worker = busy();
    let loaded = try_load(PROFILE, &worker.save()).unwrap();
    assert_ne!(loaded.sup, worker.sup);
    assert_eq!(loaded.save(), worker.save());
    assert_eq!(loaded.next_deadline(), worker.next_deadline());
    let (left, taken) = (worker.effects(), loaded.effects());
    assert_eq!(left.len(), 1);
    assert_eq!(format!("{left:?}"), format!("{taken:?}"));
    let stop = event(PR_SE_STOP, 0);
    let (one, other) = (worker.after(20_000, stop), loaded.after(20_000, stop));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    // A state may be loaded as often as one likes, and its machine is another.
    assert_eq!(worker.free(), PR_OK);
    assert!(loaded.after(20_001, event(PR_SE_EXITED, 2)).len() == 1);
}

#[test]
fn every_flipped_bit_and_every_cut_is_seen() {
    let state = busy().save();
    let rules = rules();
    let code = |bytes: &[u8]| {
        saved::read(bytes, &rules)
            .err()
            .map(|refused| refused.code())
    };
    assert_eq!(code(&state), None);
    for place in 0..state.len() {
        for bit in 0..8 {
            let mut flipped = state.clone();
            flipped[place] ^= 1 << bit;
            assert_eq!(code(&flipped), Some(PR_EINVAL));
        }
        assert_eq!(code(&state[..place]), Some(PR_EINVAL));
        let mut longer = state.clone();
        longer.extend(&state[..=place]);
        assert_eq!(code(&longer), Some(PR_EINVAL));
    }
    for foreign in [&b"portreeve"[..], b"{}", &[0; 24], &[0xff; 4096]] {
        assert_eq!(try_load(PROFILE, foreign).err(), Some(PR_EINVAL));
        assert!(last_error().contains("state: "), "{}", last_error());
    }
}

#[test]
fn a_newer_state_and_one_under_other_rules_are_told_from_a_damaged_one() {
    let worker = busy();
    let newer = saved::framed(2, b"whatever a later version writes");
    assert_eq!(try_load(PROFILE, &newer).err(), Some(PR_EVERSION));
    let other = PROFILE.replace("\"10s\"", "\"11s\"");
    assert_eq!(try_load(&other, &worker.save()).err(), Some(PR_ESTATE));
    // What is no rule of supervision may change.
    let other = PROFILE.replace("serve", "serve --better");
    assert!(try_load(&other, &worker.save()).is_ok());
}

#[test]
fn a_state_of_another_boot_is_refused_at_its_first_call_once_the_clock_shows_it() {
    let state = busy().save();
    let loaded = try_load(PROFILE, &state).unwrap();
    let adopt = event(PR_SE_ADOPT, 0);
    assert_eq!(loaded.event(11_100, adopt), PR_ESTATE);
    assert!(last_error().contains("another boot"), "{}", last_error());
    assert_eq!(loaded.deadline(0), PR_ESTATE);
    assert_eq!(loaded.save(), state, "a refusal changed something");
    // At the very moment it is the same boot; from then on the clock may only stand still.
    assert_eq!(loaded.event(11_101, adopt), PR_OK);
    assert_eq!(loaded.event(5, adopt), PR_OK);
}

#[test]
fn the_buffer_of_a_state_is_asked_for_and_never_written_in_part() {
    let worker = busy();
    let need = u32::try_from(worker.save().len()).unwrap();
    let mut room = vec![0xaa_u8; need as usize];
    let mut told = 0;
    let at = room.as_mut_ptr().cast();
    let api = crate::plugin_abi::caller_test::api();
    // SAFETY: more room than is said, and a live local.
    let code = unsafe { (api.sup_save)(worker.sup, at, need - 1, &raw mut told) };
    assert_eq!((code, told), (PR_ENOSPC, need));
    assert!(room.iter().all(|byte| *byte == 0xaa));
}

#[test]
fn an_early_state_is_still_read() {
    // Written by the first version. A change that cannot read it needs a new version and a reader of this one.
    let content = include_bytes!("state_v1.json").trim_ascii();
    let state = saved::framed(1, content);
    let loaded = try_load(PROFILE, &state).unwrap_or_else(|_| panic!("{}", last_error()));
    assert_eq!(loaded.save(), busy().save());
}

fn rules() -> Config {
    Profile::from_json_text(PROFILE)
        .unwrap()
        .profile
        .supervision
        .as_ref()
        .clone()
}

/// JSON of a machine with values of its state replaced by others, in a sound frame: what nobody but an attacker or a
/// defect writes.
fn forged(machine: &Supervised, replaced: &[(usize, u64)]) -> Vec<u8> {
    fn numbers<'a>(value: &'a mut serde_json::Value, all: &mut Vec<&'a mut serde_json::Value>) {
        match value {
            serde_json::Value::Number(_) | serde_json::Value::Bool(_) => all.push(value),
            serde_json::Value::Array(list) => list.iter_mut().for_each(|v| numbers(v, all)),
            serde_json::Value::Object(map) => map.values_mut().for_each(|v| numbers(v, all)),
            _ => {}
        }
    }
    let mut tree = serde_json::to_value(machine).unwrap();
    let rules = tree["machine"]["config"].take();
    let mut all = Vec::new();
    numbers(&mut tree, &mut all);
    let count = all.len();
    for (place, number) in replaced {
        *all[place % count] = match number {
            0 => serde_json::Value::Bool(true),
            number => (*number).into(),
        };
    }
    tree["machine"]["config"] = rules;
    saved::framed(1, &serde_json::to_vec(&tree).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bytes_of_anybody_are_refused_or_make_a_machine_that_answers(
        events in proptest::collection::vec((1_u32..12, 0_u64..9_000, any::<bool>()), 0..25),
        replaced in proptest::collection::vec((0_usize..1000, prop_oneof![
            Just(0_u64), 1_u64..5, Just(u64::from(u32::MAX)), Just(u64::MAX), any::<u64>()
        ]), 0..4),
        noise in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut machine = Supervised::new(rules(), 3);
        let mut now = 0;
        for (kind, wait, due) in &events {
            now += wait;
            let raw = PrSupEvent { kind: *kind, run: 1, probe_kind: 3, probe: 1, result: 1, code: 1, flags: 0, ms: 0, ..NO_EVENT };
            let raw = if *kind == PR_SE_PORT_CONFLICT { PrSupEvent { flags: PR_TCP, ..raw } } else { raw };
            machine.handle(now, super::event::read(&raw).unwrap()).unwrap();
            if *due {
                machine.act_until(now).unwrap();
            }
        }
        let back = saved::read(&saved::write(&machine).unwrap(), &rules()).unwrap();
        prop_assert_eq!(saved::write(&back).unwrap(), saved::write(&machine).unwrap());
        let _refused = try_load(PROFILE, &noise).err();
        let _refused = try_load(PROFILE, &saved::framed(1, &noise)).err();
        let Ok(loaded) = try_load(PROFILE, &forged(&machine, &replaced)) else { return Ok(()) };
        for kind in 1..12 {
            let now = now + u64::from(kind) * 7_000;
            let flags = if kind == PR_SE_PORT_CONFLICT { PR_TCP } else { 0 };
            let code = loaded.event(now, PrSupEvent { kind, run: 1, probe_kind: 1, probe: 1, result: 1, code: 1, flags, ..NO_EVENT });
            prop_assert!(matches!(code, PR_OK | PR_EAGAIN | PR_ESTATE), "{}: {}", code, last_error());
            loaded.effects();
            let code = loaded.deadline(now);
            prop_assert!(matches!(code, PR_OK | PR_ESTATE), "{}: {}", code, last_error());
            loaded.effects();
            loaded.next_deadline();
        }
    }
}

#[test]
fn a_machine_of_another_profile_can_be_made_beside_a_loaded_one() {
    let state = busy().save();
    let other = try_new(r#"{"name": "plain", "command": ["serve"]}"#).unwrap();
    let loaded = try_load(PROFILE, &state).unwrap();
    assert_eq!(other.free(), PR_OK);
    assert_eq!(loaded.effects().len(), 1);
}
