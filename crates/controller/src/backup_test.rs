use std::collections::BTreeMap;
use std::io::Write;

use proptest::prelude::*;

use super::*;

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
    stored(&(0..60).map(record).collect::<Vec<_>>())
}

fn packed(stored: &Stored, secret: Option<[u8; 32]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let backup = Backup::of(stored.clone(), secret, WallClock::from_unix_millis(9));
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
    assert!(!done.kept_former && done.new_secret && done.records == 60);
    let whole = |found: Stored| {
        let full = found
            .tables
            .into_iter()
            .filter(|(_, table)| !table.is_empty());
        assert_eq!(found.commits, 4711);
        assert_eq!(full.collect::<BTreeMap<_, _>>(), some().tables);
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
    std::fs::rename(
        data.path().join(Restored::FORMER),
        data.path().join(RedbStore::FILE),
    )
    .unwrap();
    whole(reopened(data.path()));
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
