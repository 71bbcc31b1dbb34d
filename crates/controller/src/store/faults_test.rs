//! Whatever the disk does: what was accepted is there, what was refused is not, and what is damaged is named.

use std::collections::BTreeMap;

use portreeve::registry::{Store, StoreError, tables};
use proptest::prelude::*;

use super::disk::{Disk, Faults};
use super::tests::{batch, forget, set};
use super::*;

/// Table and key to record: what a store shall hold.
type Held = BTreeMap<(String, String), String>;

fn held(store: &mut RedbStore) -> Held {
    let stored = store.load().unwrap();
    let records = stored.tables.into_iter().flat_map(|(table, records)| {
        let of = move |(key, value)| {
            let value = String::from_utf8(value).unwrap();
            ((table.clone(), key), value)
        };
        records.into_iter().map(of)
    });
    records.collect()
}

fn after(held: &Held, writes: &[Write]) -> Held {
    let mut held = held.clone();
    for write in writes {
        let key = (write.table.to_owned(), write.key.clone());
        match &write.value {
            Some(value) => held.insert(key, String::from_utf8(value.clone()).unwrap()),
            None => held.remove(&key),
        };
    }
    held
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u8, u8, Option<u16>)>),
    /// From now on the disk fails so.
    Fail(Faults),
    Heal,
    /// The process dies after so many more operations, in the middle of whatever it does.
    Kill(u8),
    /// The power goes; the dice say what survives.
    Power(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (
        0..4_u8,
        0..12_u8,
        proptest::option::weighted(0.8, 0..3_000_u16),
    );
    let fault = |change: fn(&mut Faults)| {
        let mut faults = Faults::default();
        change(&mut faults);
        Just(Step::Fail(faults))
    };
    prop_oneof![
        8 => proptest::collection::vec(write, 0..8).prop_map(Step::Commit),
        1 => fault(|faults| faults.full = true),
        1 => fault(|faults| faults.writes = true),
        1 => fault(|faults| faults.short = true),
        1 => fault(|faults| faults.syncs = true),
        2 => Just(Step::Heal),
        2 => (1..20_u8).prop_map(Step::Kill),
        2 => any::<u64>().prop_map(Step::Power),
        1 => Just(Step::Restart),
    ]
}

/// Dice that need nothing but a number.
fn dice(seed: u64) -> impl FnMut() -> bool {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & 4 == 0
    }
}

/// A life of one store: what is accepted, and what the newest refused batch would have made of it.
struct Life {
    disk: Disk,
    store: RedbStore,
    accepted: Held,
    /// Refused, and not known to be undone: a process that dies before it could undo it may leave one of these.
    doubtful: Vec<Held>,
    number: u64,
}

impl Life {
    fn commit(&mut self, writes: Vec<Write>) {
        self.number += 1;
        let would = after(&self.accepted, &writes);
        match self.store.commit(&batch(self.number, writes)) {
            Ok(()) => {
                self.accepted = would;
                self.doubtful.clear();
            }
            Err(_) => self.doubtful.push(would),
        }
    }

    /// Another process on whatever is there.
    fn restart(&mut self) {
        self.disk.fails(Faults::default());
        // As a killed process: what it did when it was dropped is not done.
        let operations = self.disk.operations();
        self.disk.fails(Faults {
            dies_at: Some(operations),
            ..Faults::default()
        });
        self.store = Disk::default().store().unwrap();
        self.disk.fails(Faults::default());
        self.store = self.disk.store().unwrap();
        let found = held(&mut self.store);
        let mut doubtful = std::mem::take(&mut self.doubtful).into_iter();
        if let Some(stood) = doubtful.find(|one| *one == found) {
            self.accepted = stood;
        }
        assert_eq!(found, self.accepted, "after a restart");
    }
}

fn live(steps: Vec<Step>) {
    let disk = Disk::default();
    let store = disk.store().unwrap();
    let mut life = Life {
        accepted: Held::new(),
        doubtful: Vec::new(),
        number: 0,
        disk,
        store,
    };
    for step in steps {
        match step {
            Step::Commit(writes) => {
                let writes = writes.into_iter().map(|(table, key, value)| {
                    let table = tables::ALL[usize::from(table)];
                    let key = format!("k{key}");
                    match value {
                        Some(len) => set(table, &key, &"v".repeat(usize::from(len))),
                        None => forget(table, &key),
                    }
                });
                life.commit(writes.collect());
            }
            Step::Fail(faults) => life.disk.fails(faults),
            Step::Heal => {
                life.disk.fails(Faults::default());
                // The same process: nothing that it refused is left.
                assert_eq!(held(&mut life.store), life.accepted, "after healing");
                life.doubtful.clear();
            }
            Step::Kill(after) => {
                life.disk.fails(Faults {
                    dies_at: Some(life.disk.operations() + u64::from(after)),
                    ..Faults::default()
                });
                life.commit(vec![set(tables::META, "last", "words")]);
                life.restart();
            }
            Step::Power(seed) => {
                life.disk.lose_power(dice(seed));
                life.restart();
            }
            Step::Restart => life.restart(),
        }
    }
    life.disk.lose_power(dice(7));
    life.restart();
}

proptest! {
    // A store is made, opened and checked many times in each.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]

    #[test]
    fn after_any_fault_the_store_holds_exactly_what_was_accepted(
        steps in proptest::collection::vec(step(), 1..40)
    ) {
        live(steps);
    }
}

fn some_writes() -> Vec<Write> {
    let record = |n| set(tables::REPLICAS, &format!("k{n}"), &"v".repeat(700));
    let mut writes: Vec<_> = (0..30).map(record).collect();
    writes.push(forget(tables::REPLICAS, "k3"));
    writes
}

/// Kills the process at each operation of a commit, and loses the power there in several ways.
#[test]
fn a_commit_that_dies_at_any_operation_is_whole_or_not_there() {
    let base = Disk::default();
    let mut store = base.store().unwrap();
    store.commit(&batch(1, some_writes())).unwrap();
    let before = held(&mut store);
    drop(store);
    let bytes = base.bytes();
    let second = || {
        vec![
            set(tables::HOSTS, "n1", "a"),
            forget(tables::REPLICAS, "k4"),
        ]
    };
    let then = after(&before, &second());
    let (mut not_there, mut whole) = (0, 0);
    for operation in 1.. {
        let mut survived = false;
        for seed in [0, 1, 77, 4711, 99_991] {
            let disk = Disk::holding(bytes.clone());
            let mut store = disk.store().unwrap();
            disk.fails(Faults {
                dies_at: Some(disk.operations() + operation),
                ..Faults::default()
            });
            let accepted = store.commit(&batch(2, second())).is_ok();
            survived |= accepted;
            drop(store);
            // 0: the process died and the machine goes on.
            if seed == 0 {
                disk.fails(Faults::default());
            } else {
                disk.lose_power(dice(seed));
            }
            let found = held(&mut disk.store().unwrap());
            if accepted || found != before {
                assert_eq!(found, then, "operation {operation}, dice {seed}");
                whole += 1;
            } else {
                not_there += 1;
            }
        }
        if survived {
            break;
        }
    }
    assert!(not_there > 0 && whole > 0);
}

fn of_format_1() -> Vec<u8> {
    use std::io::Read;
    let packed = include_bytes!("../tests/golden/format-1.redb.gz");
    let mut bytes = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(&packed[..]);
    unpacked.read_to_end(&mut bytes).unwrap();
    bytes
}

fn format_of(disk: &Disk) -> u32 {
    let database = builder().create_with_backend(disk.clone()).unwrap();
    read_format(&database).unwrap().0.unwrap()
}

#[test]
fn a_migration_that_dies_at_any_operation_is_done_by_the_next_start_and_leaves_what_was() {
    let old = of_format_1();
    let disk = Disk::holding(old.clone());
    assert_eq!(format_of(&disk), 1);
    let whole = held(&mut Disk::holding(old.clone()).store().unwrap());
    assert!(whole.keys().any(|(table, _)| table == tables::COOLING));
    let mut half_way = 0;
    for operation in 1.. {
        let mut done = false;
        for seed in [0, 3, 4711] {
            let disk = Disk::holding(old.clone());
            disk.fails(Faults {
                dies_at: Some(operation),
                ..Faults::default()
            });
            done |= disk.store().is_ok();
            if seed == 0 {
                disk.fails(Faults::default());
            } else {
                disk.lose_power(dice(seed));
            }
            half_way += u32::from(format_of(&disk) == 1);
            assert_eq!(
                held(&mut disk.store().unwrap()),
                whole,
                "operation {operation}"
            );
            assert_eq!(format_of(&disk), RedbStore::FORMAT);
            let (format, kept) = disk.older().unwrap();
            assert_eq!(format, 1);
            assert_eq!(format_of(&Disk::holding(kept)), 1);
        }
        if done {
            break;
        }
    }
    assert!(half_way > 0);
}

#[test]
fn a_migrated_store_has_the_older_one_beside_it_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(RedbStore::FILE);
    std::fs::write(&path, of_format_1()).unwrap();
    // What an earlier try left.
    std::fs::write(folder.path().join("portreeve.redb.older"), "half").unwrap();
    drop(RedbStore::open(folder.path()).unwrap());
    let kept = folder.path().join("portreeve.redb.format-1");
    assert_eq!(format_of(&Disk::holding(std::fs::read(&kept).unwrap())), 1);
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!folder.path().join("portreeve.redb.older").exists());
    // The way back: the older file in its place.
    std::fs::rename(&kept, &path).unwrap();
    RedbStore::open(folder.path()).unwrap();
    let odd = |format: u64| {
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction
            .open_table(HEAD)
            .unwrap()
            .insert(FORMAT, format)
            .unwrap();
        transaction.commit().unwrap();
        drop(database);
        RedbStore::open(folder.path()).err().unwrap()
    };
    assert!(matches!(odd(0), StoreError::Damaged { .. }));
    assert!(matches!(odd(1 << 40), StoreError::Newer { .. }));
}

/// Random damage: every record is read back as it was, or the file is refused by name.
#[test]
fn random_damage_is_named_and_never_served() {
    let disk = Disk::default();
    let mut store = disk.store().unwrap();
    for number in 0..20 {
        store.commit(&batch(number, some_writes())).unwrap();
    }
    let whole = held(&mut store);
    drop(store);
    let bytes = disk.bytes();
    let mut seed = 0x5eed_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let mut named = 0;
    for _ in 0..400 {
        let mut damaged = bytes.clone();
        let (at, len) = (next(bytes.len()), 1 + next(64));
        let flip = u8::try_from(1 + next(255)).unwrap();
        for byte in damaged.iter_mut().skip(at).take(len) {
            *byte ^= flip;
        }
        if next(8) == 0 {
            damaged.truncate(next(bytes.len()));
        }
        if damaged.is_empty() {
            continue;
        }
        match Disk::holding(damaged)
            .store()
            .and_then(|mut store| store.load())
        {
            Err(StoreError::Damaged { place, .. } | StoreError::Newer { place, .. }) => {
                assert_eq!(place, "disk");
                named += 1;
            }
            Err(other) => panic!("damage at {at}: {other}"),
            Ok(_) => {
                let found = held(&mut disk_of(&bytes, at, len, flip));
                assert_eq!(found, whole, "damage at {at} of {len} bytes");
            }
        }
    }
    assert!(named > 50, "only {named} hit what is in use");
}

fn disk_of(bytes: &[u8], at: usize, len: usize, flip: u8) -> RedbStore {
    let mut damaged = bytes.to_vec();
    for byte in damaged.iter_mut().skip(at).take(len) {
        *byte ^= flip;
    }
    Disk::holding(damaged).store().unwrap()
}
