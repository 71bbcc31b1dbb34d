//! Each rung of the ladder by itself: the same promises, whatever holds the processes of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use portreeve_api::containment::Rung;

use crate::world::World;

/// Whether tests can run on the rung here; where they cannot, they say so, and fail with
/// `PORTREEVE_REQUIRE_EXTERNAL=1`.
pub(crate) fn is_there(rung: Rung) -> bool {
    let Err(refused) = rung.possible() else {
        return true;
    };
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    assert!(!required, "containment {rung} is required here: {refused}");
    eprintln!("skipped: needs containment {rung}: {refused}");
    false
}

/// Makes a test of each function that takes a rung, for each rung.
macro_rules! on_each_rung {
    ($($promise:ident),+ $(,)?) => {
        on_each_rung!(@rung cgroup Cgroup $($promise)+);
        on_each_rung!(@rung pid_namespace PidNamespace $($promise)+);
        on_each_rung!(@rung freezer Freezer $($promise)+);
        on_each_rung!(@rung process_tree ProcessTree $($promise)+);
    };
    (@rung $rung:ident $name:ident $($promise:ident)+) => {
        mod $rung {
            $(
                #[test]
                fn $promise() {
                    let rung = portreeve_api::containment::Rung::$name;
                    if crate::rungs::is_there(rung) {
                        super::$promise(rung);
                    }
                }
            )+
        }
    };
}
pub(crate) use on_each_rung;

impl World {
    /// A world whose runs are held by this rung, before the worker is started.
    pub(crate) fn held(rung: Rung, command: &str, more: &str) -> Self {
        let mut world = Self::prepared(command, more);
        world.hold_by(rung);
        world
    }

    /// The runs of which a process lives, with those processes, by what they inherited; checks by a command excepted.
    pub(crate) fn living(&self) -> BTreeMap<u32, BTreeSet<u32>> {
        let token = format!("PORTREEVE_TOKEN_FILE={}", self.folder.token().display());
        let mut living: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let env = fs::read(entry.path().join("environ")).unwrap_or_default();
            let has = |wanted: &str| {
                env.split(|byte| *byte == 0)
                    .any(|one| one == wanted.as_bytes())
            };
            let number = env.split(|byte| *byte == 0).find_map(|one| {
                std::str::from_utf8(one)
                    .ok()?
                    .strip_prefix("PORTREEVE_RUN=")?
                    .parse()
                    .ok()
            });
            if let Some(run) = number.filter(|_| has(&token))
                && !env.windows(16).any(|some| some == b"PORTREEVE_PROBE=")
            {
                living.entry(run).or_default().insert(pid);
            }
        }
        living
    }
}

/// A control group of version 1 that a test made; removed with it.
pub(crate) struct Group(pub(crate) std::path::PathBuf);

impl Group {
    /// Below that of this process; `None` with a printed reason where that cannot be, as in [`is_there`].
    pub(crate) fn new(hierarchy: portreeve_api::containment::Hierarchy) -> Option<Self> {
        static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("portreeve-test-{}-{number}", std::process::id());
        let made = hierarchy.own().map_err(|cause| cause.to_string());
        let made = made.and_then(|own| {
            let path = own.join(&name);
            fs::create_dir(&path).map_err(|cause| format!("{}: {cause}", path.display()))?;
            Ok(Self(path))
        });
        match made {
            Ok(made) => Some(made),
            Err(refused) => {
                let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL");
                assert!(required.is_ok_and(|value| value != "1"), "{refused}");
                eprintln!("skipped: needs a control group: {refused}");
                None
            }
        }
    }

    pub(crate) fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        _ = fs::write(self.0.join("freezer.state"), "THAWED");
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
    }
}

/// The inode of a namespace of a process.
pub(crate) fn namespace(pid: u32, kind: &str) -> u64 {
    fs::metadata(format!("/proc/{pid}/ns/{kind}"))
        .unwrap()
        .ino()
}
