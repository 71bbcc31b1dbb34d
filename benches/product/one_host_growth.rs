//! What one host's set weighs in each form, and what a block costs to find where none is.

use crate::baseline::flat::Flat;
use crate::baseline::roaring_pool::{Form, RoaringPool};
use crate::baseline::sorted_list::SortedList;
use crate::churn::{Churn, Level, Ports};
use crate::heap::counted;
use crate::interleaved::{clocked, interleave, spelled};
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

/// Heap of the sets alone: single ports come and go.
fn weights(level: Level) -> Growth {
    let told = [
        format!("flat {}", weight(Flat::new(), level)),
        format!("roaring {}", weight(RoaringPool::new(Form::Runs), level)),
        format!(
            "roaring without runs {}",
            weight(RoaringPool::new(Form::Plain), level)
        ),
        format!(
            "roaring of the dynamic range without runs {}",
            weight(RoaringPool::new(Form::Narrow), level)
        ),
        format!("sorted list {}", weight(SortedList::new(), level)),
        format!(
            "whole pool with grants {}",
            weight(ProductPool::<1>::new(), level)
        ),
    ];
    Growth {
        what: "heap of one host, kept (at most in between)".to_owned(),
        at: level.to_string(),
        measured: told.join(", "),
    }
}

fn weight(ports: impl Ports<1>, level: Level) -> String {
    let mut churn = Churn::<_, 1>::new(ports, level);
    let ((), turning) = counted(|| churn.turn(20_000));
    churn.ports.tidy();
    let ports = churn.into_ports();
    // What is given back was had.
    let ((), dropped) = counted(|| drop(ports));
    let kept = -dropped.kept;
    format!(
        "{kept} B ({} B)",
        kept.max(kept - turning.kept + turning.peak)
    )
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
