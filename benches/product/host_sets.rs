//! Sets of hosts: "in service, and the number is not used there", by words and by roaring bitmaps.

use std::cell::Cell;

use roaring::RoaringBitmap;

use crate::chance::Chance;
use crate::interleaved::{clocked, interleave, spelled};
use crate::verdict::Growth;

/// Lines of the table of growth.
pub(crate) fn lines() -> Vec<Growth> {
    let sizes = [1_000, 10_000, 100_000, 1_000_000];
    sizes.into_iter().map(by_hosts).collect()
}

fn by_hosts(hosts: u32) -> Growth {
    let mut chance = Chance::new(3);
    let (mut up, mut busy) = (Vec::new(), Vec::new());
    for host in 0..hosts {
        if chance.below(100) < 98 {
            up.push(host);
        }
        if chance.below(100) < 30 {
            busy.push(host);
        }
    }
    let words = |list: &[u32]| {
        let mut words = vec![0_u64; hosts.div_ceil(64) as usize];
        list.iter()
            .for_each(|host| words[(host / 64) as usize] |= 1 << (host % 64));
        words
    };
    let (up_words, busy_words, mut fits) = (words(&up), words(&busy), words(&[]));
    let mut changed_words = busy_words.clone();
    let (up_set, busy_set) = (set(&up), set(&busy));
    let mut changed_set = busy_set.clone();
    let turn = Cell::new(0);
    let next = || {
        turn.set((turn.get() + 7_919) % hosts);
        turn.get()
    };
    let [by_words, by_roaring, word_kept, roaring_kept] = interleave(
        61,
        [
            &mut |times| {
                clocked(times, || {
                    let sides = up_words.iter().zip(&busy_words);
                    fits.iter_mut()
                        .zip(sides)
                        .for_each(|(fit, (up, busy))| *fit = up & !busy);
                    std::hint::black_box(&fits);
                })
            },
            &mut |times| clocked(times, || &up_set - &busy_set),
            &mut |times| {
                clocked(times, || {
                    let host = next();
                    changed_words[(host / 64) as usize] ^= 1 << (host % 64);
                })
            },
            &mut |times| {
                clocked(times, || {
                    let host = next();
                    if !changed_set.insert(host) {
                        changed_set.remove(host);
                    }
                })
            },
        ],
    );
    Growth {
        what: "hosts in service less hosts where a number is used".to_owned(),
        at: format!("{hosts} hosts"),
        measured: format!(
            "words in place {}, roaring {}; one host changed: words {}, roaring {}",
            spelled(by_words.median()),
            spelled(by_roaring.median()),
            spelled(word_kept.median()),
            spelled(roaring_kept.median()),
        ),
    }
}

/// Arrays and bitmaps, never runs: interval arithmetic over 100,000 runs is ten times as slow.
fn set(list: &[u32]) -> RoaringBitmap {
    let mut set: RoaringBitmap = list.iter().copied().collect();
    set.remove_run_compression();
    set
}
