use std::path::PathBuf;

use portreeve::registry::BatchNumber;

use super::disk::{Disk, Faults};
use super::*;

pub(super) fn set(table: &'static str, key: &str, value: &str) -> Write {
    Write {
        table,
        key: key.into(),
        value: Some(value.into()),
    }
}

pub(super) fn forget(table: &'static str, key: &str) -> Write {
    Write {
        table,
        key: key.into(),
        value: None,
    }
}

pub(super) fn batch(number: u64, writes: Vec<Write>) -> Batch {
    Batch {
        number: BatchNumber(number),
        writes,
    }
}

fn of(stored: &Stored, table: &str, key: &str) -> Option<String> {
    let value = stored.tables.get(table)?.get(key)?;
    Some(String::from_utf8(value.clone()).unwrap())
}

fn filled(folder: &Path) -> Stored {
    let mut store = RedbStore::open(folder).unwrap();
    for n in 0..20 {
        let key = format!("k{n}");
        let value = "v".repeat(500);
        let writes = vec![
            set(tables::SERVICES, &key, &value),
            set(tables::META, "last", &key),
        ];
        store.commit(&batch(n, writes)).unwrap();
    }
    store.load().unwrap()
}

fn file_of(folder: &Path) -> PathBuf {
    folder.join(RedbStore::FILE)
}

#[test]
fn what_was_committed_is_read_back_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = RedbStore::open(folder.path()).unwrap();
    let empty = store.load().unwrap();
    assert!(empty.tables.values().all(|table| table.is_empty()));
    let writes = vec![
        set(tables::SERVICES, "web", "1"),
        set(tables::HOSTS, "n1", "h"),
        set(tables::SERVICES, "web", "2"),
        set(tables::EVENTS, "e", "gone"),
        forget(tables::EVENTS, "e"),
    ];
    store.commit(&batch(1, writes)).unwrap();
    let stored = store.load().unwrap();
    drop(store);
    let mut store = RedbStore::open(folder.path()).unwrap();
    assert_eq!(store.load().unwrap(), stored);
    assert_eq!(of(&stored, tables::SERVICES, "web").as_deref(), Some("2"));
    assert_eq!(of(&stored, tables::EVENTS, "e"), None);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file_of(folder.path()))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
}

#[test]
fn a_second_store_in_one_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = RedbStore::open(folder.path()).unwrap();
    let second = RedbStore::open(folder.path()).err();
    assert!(
        matches!(second, Some(StoreError::InUse { .. })),
        "{second:?}"
    );
    drop(first);
    RedbStore::open(folder.path()).unwrap();
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(RedbStore::open(folder.path()).unwrap());
    let database = Database::open(file_of(folder.path())).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction
        .open_table(HEAD)
        .unwrap()
        .insert(FORMAT, 7)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    for _ in 0..2 {
        let refused = RedbStore::open(folder.path()).err();
        assert!(
            matches!(
                refused,
                Some(StoreError::Newer {
                    found: 7,
                    known: RedbStore::FORMAT,
                    ..
                })
            ),
            "{refused:?}"
        );
    }
}

#[test]
fn a_foreign_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Database::create(file_of(folder.path())).unwrap());
    let refused = RedbStore::open(folder.path()).err();
    assert!(
        matches!(refused, Some(StoreError::Damaged { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_truncated_file_is_named_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let path = file_of(folder.path());
    let whole = std::fs::read(&path).unwrap();
    for kept in [0, 1, 100, 4096, 5000, whole.len() / 2, whole.len() - 4096] {
        std::fs::write(&path, &whole[..kept]).unwrap();
        let refused = RedbStore::open(folder.path()).err();
        match &refused {
            Some(StoreError::Damaged { place, .. }) => assert!(place.contains(RedbStore::FILE)),
            other => panic!("{kept} of {} bytes: {other:?}", whole.len()),
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), kept as u64);
    }
    std::fs::write(&path, &whole).unwrap();
    RedbStore::open(folder.path()).unwrap();
}

/// Every record is read back as it was, or the file is refused: never a silent loss.
#[test]
fn a_store_that_lost_an_accepted_commit_is_named_and_not_taken_for_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let older = std::fs::read(file_of(folder.path())).unwrap();
    let mut store = RedbStore::open(folder.path()).unwrap();
    let newest = vec![set(tables::META, "last", "newest")];
    store.commit(&batch(20, newest)).unwrap();
    drop(store);
    // What a damaged newest commit makes of it.
    std::fs::write(file_of(folder.path()), &older).unwrap();
    let refused = RedbStore::open(folder.path()).err().unwrap();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("commit 20, but 21") && said.contains(Tally::FILE),
        "{said}"
    );
    // Whoever knows better may say so; and a note that cannot be read tells nothing.
    for note in ["", "garbage", "00000000000000000020"] {
        std::fs::write(folder.path().join(Tally::FILE), note).unwrap();
        RedbStore::open(folder.path()).unwrap();
    }
    std::fs::remove_file(folder.path().join(Tally::FILE)).unwrap();
    let mut store = RedbStore::open(folder.path()).unwrap();
    store.commit(&batch(20, Vec::new())).unwrap();
    drop(store);
    RedbStore::open(folder.path()).unwrap();
}

#[test]
fn damaged_bytes_are_detected_or_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let stored = filled(folder.path());
    let path = file_of(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let mut refusals = 0;
    for place in (0..whole.len()).step_by(6_007) {
        let mut damaged = whole.clone();
        for byte in damaged.iter_mut().skip(place).take(64) {
            *byte ^= 0x5a;
        }
        std::fs::write(&path, &damaged).unwrap();
        match RedbStore::open(folder.path()).and_then(|mut store| store.load()) {
            Ok(read) => assert_eq!(read, stored, "damage at {place} went unnoticed"),
            Err(StoreError::Damaged { .. } | StoreError::Newer { .. }) => refusals += 1,
            Err(other) => panic!("damage at {place}: {other}"),
        }
    }
    assert!(refusals > 0, "no damage hit a page in use");
}

#[test]
fn a_process_that_died_in_doubt_has_the_next_one_write_everything_anew_and_believe_its_disk_again()
{
    let folder = tempfile::tempdir().unwrap();
    let stored = filled(folder.path());
    let note = folder.path().join(Tally::FILE);
    for told in ["00000000000000000020?", "00000000000000000020\n"] {
        std::fs::write(&note, told).unwrap();
        let tally = Tally::of(folder.path());
        let noted = tally.noted().unwrap();
        assert_eq!((noted.commits, noted.doubt), (20, told.ends_with('?')));
        let written = |path: PathBuf| path.metadata().unwrap().modified().unwrap();
        let before = written(file_of(folder.path()));
        let mut store = RedbStore::open(folder.path()).unwrap();
        assert_eq!(store.load().unwrap(), stored);
        assert!(written(file_of(folder.path())) >= before);
        assert!(!tally.noted().unwrap().doubt);
    }
    // What cannot be written anew is not believed.
    std::fs::write(&note, "00000000000000000020?").unwrap();
    let path = file_of(folder.path());
    let kept = folder.path().join("kept");
    std::fs::rename(&path, &kept).unwrap();
    std::fs::create_dir(&path).unwrap();
    let refused = RedbStore::open(folder.path()).err();
    assert!(
        matches!(refused, Some(StoreError::Io { .. })),
        "{refused:?}"
    );
    assert!(Tally::of(folder.path()).noted().unwrap().doubt);
}

#[test]
fn a_full_disk_refuses_the_batch_whole_and_heals_by_itself() {
    let disk = Disk::default();
    let mut store = disk.store().unwrap();
    store
        .commit(&batch(1, vec![set(tables::HOSTS, "n1", "a")]))
        .unwrap();
    let before = store.load().unwrap();
    let full = Faults {
        full: true,
        ..Faults::default()
    };
    let unsyncable = Faults {
        syncs: true,
        ..Faults::default()
    };
    for faults in [full, unsyncable] {
        disk.fails(faults);
        for number in 2..4 {
            let writes = vec![set(tables::HOSTS, "n1", "b"), set(tables::HOSTS, "n2", "b")];
            let refused = store.commit(&batch(number, writes)).unwrap_err();
            assert!(matches!(refused, StoreError::Io { .. }), "{refused}");
        }
        disk.fails(Faults::default());
        // Whatever reached the platter meanwhile: the refused batches are gone.
        assert_eq!(store.load().unwrap().tables, before.tables);
    }
    store
        .commit(&batch(4, vec![set(tables::HOSTS, "n3", "c")]))
        .unwrap();
    drop(store);
    let stored = disk.store().unwrap().load().unwrap();
    let hosts: Vec<_> = stored.tables[tables::HOSTS].keys().collect();
    assert_eq!(hosts, ["n1", "n3"]);
}
