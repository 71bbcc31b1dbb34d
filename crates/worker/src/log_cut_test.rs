use super::*;
use std::os::unix::fs::FileExt;

const KIB: u64 = 1 << 10;

struct Place {
    _root: tempfile::TempDir,
    folder: ReplicaFolder,
    bounds: LogBounds,
}

impl Place {
    /// A folder on the disk of the build, which takes bytes out of files, or on one that cannot.
    fn new(root: &str, files: u32) -> Self {
        let root = tempfile::tempdir_in(root).unwrap();
        Self {
            folder: ReplicaFolder::at(root.path()),
            _root: root,
            bounds: LogBounds {
                size: 128 * KIB,
                files,
            },
        }
    }

    fn log(&self) -> Log<'_> {
        Log::new(&self.folder, LogStream::Stdout, self.bounds)
    }

    fn append(&self, text: &[u8]) {
        let path = self.folder.log(LogStream::Stdout);
        let mut file = OpenOptions::new();
        let mut file = file.append(true).create(true).open(path).unwrap();
        file.write_all(text).unwrap();
    }

    /// Everything that is kept, and the position of its first byte.
    fn kept(&self) -> (u64, Vec<u8>) {
        let mut ends = self.log().parts().unwrap();
        ends.sort_unstable();
        let mut text = Vec::new();
        for end in &ends {
            let part = fs::read(self.log().part(*end)).unwrap();
            text.extend(part);
        }
        let end = ends.last().copied().unwrap_or(0);
        let begin = end - text.len() as u64;
        text.extend(fs::read(self.folder.log(LogStream::Stdout)).unwrap());
        (begin, text)
    }

    fn can_collapse(&self) -> bool {
        let probe = self.folder.path().join("probe");
        let can = can_collapse(&create(&probe).unwrap());
        fs::remove_file(probe).unwrap();
        can
    }
}

/// Bytes that tell their position.
fn lines(from: u64, count: u64) -> Vec<u8> {
    let lines = (from..from + count).map(|number| format!("{number:015}\n"));
    lines.collect::<String>().into_bytes()
}

/// Where this test program lies.
fn build_folder() -> String {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().display().to_string()
}

/// A file system that takes bytes out of files, if the build's does.
fn collapsing(files: u32) -> Option<Place> {
    let place = Place::new(&build_folder(), files);
    if place.can_collapse() {
        return Some(place);
    }
    eprintln!("skipped: no file system here takes bytes out of files");
    None
}

/// One that does not.
fn emptying(files: u32) -> Option<Place> {
    let place = Place::new("/dev/shm", files);
    if !place.can_collapse() {
        return Some(place);
    }
    eprintln!("skipped: /dev/shm takes bytes out of files here");
    None
}

#[test]
fn a_log_within_bounds_is_left_alone() {
    for place in [collapsing(3), emptying(3)].into_iter().flatten() {
        place.log().cut().unwrap();
        place.append(&lines(0, 8192));
        place.log().cut().unwrap();
        assert!(place.kept() == (0, lines(0, 8192)));
        assert_eq!(place.log().parts().unwrap(), [0_u64; 0]);
    }
}

#[test]
fn what_is_cut_off_is_kept_in_parts_and_nothing_is_lost_or_twice() {
    for place in [collapsing(3), emptying(3)].into_iter().flatten() {
        let mut written = 0;
        for _ in 0..20 {
            place.append(&lines(written, 5000));
            written += 5000;
            place.log().cut().unwrap();
            let (begin, text) = place.kept();
            assert_eq!(begin % 16, 0);
            assert!(
                text == lines(begin / 16, written - begin / 16),
                "round at {written}"
            );
            let now = length_of(&File::open(place.folder.log(LogStream::Stdout)).unwrap());
            assert!(now.unwrap() <= place.bounds.size);
            assert!(place.log().parts().unwrap().len() <= 2);
        }
        assert!(place.kept().1.len() as u64 > 2 * 64 * KIB);
        let left: Vec<_> = fs::read_dir(place.folder.path()).unwrap().collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }
}

#[test]
fn of_a_flood_only_the_newest_is_copied() {
    for place in [collapsing(3), emptying(3)].into_iter().flatten() {
        place.append(&lines(0, 1 << 20));
        place.log().cut().unwrap();
        let (begin, text) = place.kept();
        assert!(text == lines(begin / 16, (1 << 20) - begin / 16));
        assert!(text.len() as u64 <= 3 * place.bounds.size);
        assert!(text.len() as u64 >= place.bounds.size);
    }
}

#[test]
fn with_one_file_nothing_but_the_position_is_kept_of_what_is_cut_off() {
    for place in [collapsing(1), emptying(1)].into_iter().flatten() {
        for round in 0..3 {
            place.append(&lines(round * 10_000, 10_000));
            place.log().cut().unwrap();
            let (begin, text) = place.kept();
            assert!(begin > 0);
            assert!(text == lines(begin / 16, (round + 1) * 10_000 - begin / 16));
        }
    }
}

#[test]
fn a_service_that_writes_meanwhile_loses_nothing() {
    let Some(place) = collapsing(100) else { return };
    let total = 200_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..total / 10 {
                place.append(&lines(number * 10, 10));
            }
        });
        for _ in 0..200 {
            place.log().cut().unwrap();
            std::thread::yield_now();
        }
    });
    place.log().cut().unwrap();
    let (begin, text) = place.kept();
    assert!(begin == 0 && text == lines(0, total));
}

#[test]
fn a_cut_that_was_interrupted_is_finished_or_undone() {
    let Some(place) = collapsing(5) else { return };
    place.append(&lines(0, 10_000));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.folder.log(LogStream::Stdout))
        .unwrap();
    let (length, cut) = (length_of(&file).unwrap(), BLOCK);
    let moving = Moving {
        begin: 0,
        length,
        cut,
    };
    // Killed while it copied, and before the bytes were taken out.
    drop(place.log().copy(&file, 0, cut).unwrap());
    place.log().finish(&file).unwrap();
    assert!(!place.log().unfinished().exists());
    drop(place.log().copy(&file, 0, cut).unwrap());
    place.log().mark(&moving).unwrap();
    place.log().finish(&file).unwrap();
    assert!(place.kept() == (0, lines(0, 10_000)));
    // Killed after they were, before the part had its name.
    drop(place.log().copy(&file, 0, cut).unwrap());
    place.log().mark(&moving).unwrap();
    collapse(&file, cut).unwrap();
    place.log().finish(&file).unwrap();
    assert!(place.kept() == (0, lines(0, 10_000)));
    // And after it had.
    place.log().mark(&moving).unwrap();
    place.log().finish(&file).unwrap();
    assert!(place.kept() == (0, lines(0, 10_000)));
    assert!(!place.log().moving().exists() && !place.log().unfinished().exists());
}

#[test]
fn a_link_in_place_of_the_log_is_not_cut() {
    let Some(place) = emptying(3) else { return };
    let other = place.folder.path().join("other");
    let file = create(&other).unwrap();
    file.write_all_at(&[7; 1 << 20], 0).unwrap();
    std::os::unix::fs::symlink(&other, place.folder.log(LogStream::Stdout)).unwrap();
    place.log().cut().unwrap_err();
    assert_eq!(length_of(&file).unwrap(), 1 << 20);
}
