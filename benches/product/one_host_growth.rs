//! What one host's set weighs in each form, and what a block costs to find where none is.

use crate::baseline::flat::Flat;
use crate::baseline::roaring_pool::{Form, RoaringPool};
use crate::baseline::sorted_list::SortedList;
use crate::churn::{Churn, Level, Ports};
use crate::heap::counted;
use crate::interleaved::{clocked, interleave, spelled};
use crate::own_set::OwnSet;
use crate::product_pool::ProductPool;
use crate::requests::block;
use crate::verdict::Growth;

const LEVELS: [Level; 7] = [
    Level::Live(0),
    Level::Live(100),
    Level::Live(1_000),
    Level::Live(6_000),
    Level::Live(10_800),
    Level::Live(11_880),
    Level::Checkerboard,
];

/// Lines of the table of growth.
pub(crate) fn lines() -> Vec<Growth> {
    let mut lines: Vec<Growth> = LEVELS.into_iter().map(weights).collect();
    lines.extend(LEVELS.into_iter().skip(3).map(blocks));
    lines
}

/// Heap of one host while single ports come and go.
fn weights(level: Level) -> Growth {
    let roaring = |form| Weight::of::<_, 1>(|| RoaringPool::new(form), level);
    let told = [
        ("own set", Weight::of::<_, 1>(OwnSet::new, level)),
        ("flat", Weight::of::<_, 1>(Flat::new, level)),
        ("roaring", roaring(Form::Runs)),
        ("roaring without runs", roaring(Form::Plain)),
        (
            "roaring of the dynamic range without runs",
            roaring(Form::Narrow),
        ),
        ("sorted list", Weight::of::<_, 1>(SortedList::new, level)),
        (
            "whole pool with grants",
            Weight::of::<_, 1>(ProductPool::<1>::new, level),
        ),
    ];
    let told = told.map(|(form, weight)| format!("{form} {} B ({} B)", weight.kept, weight.peak));
    Growth {
        what: "heap of one host between cycles (at its peak)".to_owned(),
        at: level.to_string(),
        measured: told.join(", "),
    }
}

/// What a host has on the heap.
pub(crate) struct Weight {
    /// Bytes between cycles.
    kept: isize,
    /// The most bytes at once while its numbers come to the level and replicas come and go.
    pub(crate) peak: isize,
}

impl Weight {
    pub(crate) fn of<P: Ports<K>, const K: usize>(new: impl Fn() -> P, level: Level) -> Self {
        let (ports, made) = counted(|| Churn::<P, K>::new(new(), level).into_ports());
        // The owners were counted too, and are gone by now.
        let owners = level.owners(K) * size_of::<P::Taken>();
        let kept = made.kept;
        drop(ports);
        let mut churn = Churn::<P, K>::new(new(), level);
        let ((), turning) = counted(|| churn.turn(20_000));
        Self {
            kept,
            peak: (made.peak - owners.cast_signed())
                .max(kept + turning.peak)
                .max(kept),
        }
    }
}

fn blocks(level: Level) -> Growth {
    let mut product = Churn::<_, 1>::new(ProductPool::new(), level);
    let roaring = |form| Churn::<_, 1>::new(RoaringPool::new(form), level).into_ports();
    let (runs, plain) = (roaring(Form::Runs), roaring(Form::Plain));
    let mut told = Vec::new();
    for size in [4, 64] {
        let request = block(size);
        let size = u32::from(size);
        let [ours, by_runs, by_plain] = interleave(
            41,
            [
                &mut |times| clocked(times, || product.ports.fits(&request)),
                &mut |times| clocked(times, || runs.find_block(size)),
                &mut |times| clocked(times, || plain.find_block(size)),
            ],
        );
        let found = if runs.find_block(size).is_some() {
            "found"
        } else {
            "none"
        };
        told.push(format!(
            "{size} ({found}): product's whole question {}, roaring {}, roaring without runs {}",
            spelled(ours.median()),
            spelled(by_runs.median()),
            spelled(by_plain.median()),
        ));
    }
    Growth {
        what: "a block of consecutive numbers".to_owned(),
        at: level.to_string(),
        measured: told.join("; "),
    }
}
