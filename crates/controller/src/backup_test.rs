use std::collections::BTreeMap;
use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::lineage::Lineage;
use crate::tally::{Noted, Tally};
use portreeve::registry::Store;

fn stored(records: &[(usize, String, String)]) -> Stored {
    let mut tables_of: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for (table, key, record) in records {
        let table = tables_of.entry(tables::ALL[table % tables::ALL.len()].to_owned());
        let record = record.clone().into_bytes();
        table.or_default().insert(key.clone(), record);
    }
    Stored {
        commits: 4711,
        tables: tables_of,
    }
}

fn some() -> Stored {
    let record = |n: usize| {
        (
            n,
            format!("k{n}"),
            format!("{{\"n\":\"{}\"}}", "v".repeat(n)),
        )
    };
    // Tokens are in a backup only with secrets.
    let tables = tables::ALL.len();
    let is_any = |n: &usize| tables::ALL[n % tables] != tables::TOKENS;
    stored(&(0..60).filter(is_any).map(record).collect::<Vec<_>>())
}

fn packed(stored: &Stored, secret: Option<[u8; 32]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let backup = Backup::of(
        RedbStore::FORMAT,
        stored.clone(),
        secret,
        WallClock::from_unix_millis(9),
    );
    backup.write(&mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn what_is_backed_up_is_what_is_restored(
        records in proptest::collection::vec((0..6_usize, "\\PC{0,12}", "\\PC{0,80}"), 0..40),
        secret in proptest::option::of(any::<[u8; 32]>()),
    ) {
        let stored = stored(&records);
        let read = Backup::read(&packed(&stored, secret)[..]).unwrap();
        prop_assert_eq!(read.stored, stored);
        prop_assert_eq!(read.secret, secret);
        prop_assert_eq!(read.head.secrets, secret.is_some());
        prop_assert_eq!(read.head.commits, 4711);
    }
}

#[test]
fn a_backup_that_was_cut_off_or_changed_anywhere_is_refused() {
    let bytes = packed(&some(), Some([7; 32]));
    for kept in 0..bytes.len() {
        let read = Backup::read(&bytes[..kept]);
        assert!(
            matches!(read, Err(BackupError::Damaged { .. })),
            "{kept}: {read:?}"
        );
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        match Backup::read(&changed[..]) {
            Err(BackupError::Damaged { reason }) => assert!(!reason.is_empty()),
            Err(other) => panic!("{at}: {other}"),
            // Gzip has bits that mean nothing.
            Ok(read) => assert_eq!(read.stored, some(), "{at}"),
        }
    }
    let twice = bytes.repeat(2);
    // What follows the end of the gzip is not read at all, or refused.
    if let Ok(read) = Backup::read(&twice[..]) {
        assert_eq!(read.stored, some());
    }
}

#[test]
fn records_that_were_exchanged_are_found_though_each_line_is_right() {
    let mut text = String::new();
    let bytes = packed(&some(), None);
    GzDecoder::new(&bytes[..])
        .read_to_string(&mut text)
        .unwrap();
    let repacked = |text: &str| {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    };
    assert!(Backup::read(&repacked(&text)[..]).is_ok());
    for (from, to) in [
        ("vvv", "vwv"),
        ("k7", "k8"),
        ("\"commits\":4711", "\"commits\":4712"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let refused = Backup::read(&repacked(&changed)[..]).unwrap_err();
        assert!(refused.to_string().contains("checksum"), "{refused}");
    }
    for (from, to) in [
        ("\"store_format\":2", "\"store_format\":3"),
        ("\"portreeve_backup\":1", "\"portreeve_backup\":9"),
    ] {
        let refused = Backup::read(&repacked(&text.replacen(from, to, 1))[..]).unwrap_err();
        assert!(matches!(refused, BackupError::Newer { .. }), "{refused}");
    }
    let foreign = Backup::read(&repacked("{\"a\":1}\n")[..]).unwrap_err();
    assert!(foreign.to_string().contains("does not begin"), "{foreign}");
}

fn reopened(folder: &Path) -> Stored {
    RedbStore::open(folder).unwrap().load().unwrap()
}

#[test]
fn a_restore_holds_the_backup_and_nothing_else_and_never_replaces_a_store_unasked() {
    let data = tempfile::tempdir().unwrap();
    let bytes = packed(&some(), None);
    let done = restore(data.path(), &bytes[..], Former::Refuse).unwrap();
    assert!(!done.kept_former && done.new_secret && done.records == 54);
    let whole = |found: Stored| {
        assert_eq!(found.commits, 4711);
        assert_eq!(full(&found), some().tables);
    };
    whole(reopened(data.path()));
    // Another one over it: refused, damaged or not.
    let refused = restore(data.path(), &bytes[..], Former::Refuse).unwrap_err();
    assert!(
        matches!(refused, BackupError::StoreThere { .. }),
        "{refused}"
    );
    let cut = restore(data.path(), &bytes[..bytes.len() / 2], Former::SetAside).unwrap_err();
    assert!(matches!(cut, BackupError::Damaged { .. }), "{cut}");
    whole(reopened(data.path()));
    let other = packed(&stored(&[(1, "x".into(), "{}".into())]), Some([3; 32]));
    let done = restore(data.path(), &other[..], Former::SetAside).unwrap();
    assert!(done.kept_former && !done.new_secret);
    assert_eq!(reopened(data.path()).tables[tables::SERVICES].len(), 1);
    assert_eq!(TokenKey::bytes_of(data.path()).unwrap(), [3; 32]);
    // Once more, with a third one: what was there first is not lost for it.
    let refused = restore(data.path(), &bytes[..], Former::SetAside).unwrap_err();
    assert!(
        matches!(refused, BackupError::KeptThere { .. }),
        "{refused}"
    );
    assert_eq!(reopened(data.path()).tables[tables::SERVICES].len(), 1);
    std::fs::rename(
        data.path().join(Restored::FORMER),
        data.path().join(RedbStore::FILE),
    )
    .unwrap();
    whole(reopened(data.path()));
}

#[test]
fn another_secret_leaves_the_former_beside_the_former_store() {
    let data = tempfile::tempdir().unwrap();
    let of = |secret| packed(&some(), Some(secret));
    restore(data.path(), &of([1; 32])[..], Former::Refuse).unwrap();
    let kept = data.path().join(Restored::FORMER_SECRET);
    restore(data.path(), &of([1; 32])[..], Former::SetAside).unwrap();
    assert!(!kept.exists(), "the same one");
    std::fs::remove_file(data.path().join(Restored::FORMER)).unwrap();
    restore(data.path(), &of([2; 32])[..], Former::SetAside).unwrap();
    assert_eq!(std::fs::read(&kept).unwrap(), [1; 32]);
    assert_eq!(TokenKey::bytes_of(data.path()).unwrap(), [2; 32]);
}

fn full(stored: &Stored) -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
    let mut tables = stored.tables.clone();
    tables.retain(|_, table| !table.is_empty());
    tables
}

/// Kills a restore before each thing that it changes.
#[test]
fn a_restore_that_dies_at_any_step_leaves_either_store_and_is_done_by_the_next() {
    let former = stored(&[(1, "x".into(), "{}".into())]);
    let holds = |stored: &Stored, what: &Stored| full(stored) == full(what);
    let bytes = packed(&some(), Some([2; 32]));
    let (mut before, mut after) = (0, 0);
    for dies_at in 0.. {
        let data = tempfile::tempdir().unwrap();
        restore(
            data.path(),
            &packed(&former, Some([1; 32]))[..],
            Former::Refuse,
        )
        .unwrap();
        Tally::of(data.path()).note(Noted {
            commits: 4711,
            doubt: false,
        });
        Lineage::of(data.path(), 4711, Some(4711))
            .note(4711)
            .unwrap();
        let mut step = 0;
        let mut die = || {
            // Unwinds past all that would clean up, as a kill does.
            assert_ne!(step, dies_at, "killed");
            step += 1;
        };
        let restored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            restore::step_by_step(data.path(), &bytes[..], Former::SetAside, &mut die)
        }));
        let found = reopened(data.path());
        let secret = TokenKey::bytes_of(data.path()).unwrap();
        let copied = || {
            let noted = Tally::of(data.path()).noted().map(|it| it.commits);
            Lineage::of(data.path(), 4711, noted).copied().is_some()
        };
        if holds(&found, &some()) {
            assert_eq!(secret, [2; 32], "step {dies_at}");
            assert!(copied(), "step {dies_at}: no new epoch");
            after += 1;
        } else {
            assert!(holds(&found, &former), "step {dies_at}");
            before += 1;
        }
        let is_through = restored.is_ok();
        if !is_through {
            let kept = data.path().join(Restored::FORMER);
            if holds(&reopened(data.path()), &some()) {
                // It stands: what was kept is the former one.
                std::fs::rename(kept, data.path().join("former.redb")).unwrap();
                std::fs::remove_file(data.path().join(Restored::FORMER_SECRET)).unwrap();
            }
            restore(data.path(), &bytes[..], Former::SetAside).unwrap();
            assert!(holds(&reopened(data.path()), &some()), "step {dies_at}");
            assert!(copied());
            assert_eq!(TokenKey::bytes_of(data.path()).unwrap(), [2; 32]);
            continue;
        }
        break;
    }
    assert!(before >= 5 && after >= 2, "{before} {after}");
}

#[test]
fn a_backup_of_an_older_store_leaves_it_of_its_format_and_so_does_its_restore() {
    use std::os::unix::fs::MetadataExt;
    let packed = include_bytes!("tests/golden/format-1.redb.gz");
    let mut old = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut old).unwrap();
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join(RedbStore::FILE);
    std::fs::write(&path, &old).unwrap();
    let mut bytes = Vec::new();
    let now = WallClock::from_unix_millis(1);
    let head = back_up(data.path(), false, now, &mut bytes).unwrap();
    assert_eq!(head.store_format, 1);
    let (format, stored) = RedbStore::read(data.path()).unwrap();
    assert_eq!(format, 1, "the version that made it has to take it still");
    assert!(!data.path().join("portreeve.redb.format-1").exists());
    let other = tempfile::tempdir().unwrap();
    // As the controller's account: what root makes there is that one's.
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(other.path(), Some(4711), Some(4712)).unwrap();
    }
    restore(other.path(), &bytes[..], Former::Refuse).unwrap();
    for made in [RedbStore::FILE, "lock"].map(|name| other.path().join(name)) {
        let made = std::fs::metadata(made).unwrap();
        if is_root {
            assert_eq!((made.uid(), made.gid()), (4711, 4712));
        }
    }
    let (format, restored) = RedbStore::read(other.path()).unwrap();
    assert_eq!(format, 1);
    assert!(full(&restored) == full(&stored));
    assert!(full(&reopened(other.path())) == full(&stored));
    assert_eq!(RedbStore::read(other.path()).unwrap().0, RedbStore::FORMAT);
}

#[test]
fn a_directory_that_a_controller_has_is_neither_read_nor_restored() {
    let data = tempfile::tempdir().unwrap();
    let bytes = packed(&some(), None);
    restore(data.path(), &bytes[..], Former::Refuse).unwrap();
    let taken = DataDir::take(data.path()).unwrap();
    let own = std::process::id();
    let in_use = |refused: BackupError| {
        assert!(
            matches!(refused, BackupError::InUse { pid: Some(pid), .. } if pid == own),
            "{refused}"
        );
    };
    let now = WallClock::from_unix_millis(1);
    in_use(restore(data.path(), &bytes[..], Former::SetAside).unwrap_err());
    in_use(back_up(data.path(), false, now, Vec::new()).unwrap_err());
    drop(taken);
    let mut again = Vec::new();
    let head = back_up(data.path(), false, now, &mut again).unwrap();
    assert_eq!(head.commits, 4711);
    let elsewhere = tempfile::tempdir().unwrap();
    let none = back_up(elsewhere.path(), false, now, Vec::new()).unwrap_err();
    assert!(matches!(none, BackupError::NoStore { .. }), "{none}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
