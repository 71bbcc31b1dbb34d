//! Row 4: no fill of a host is a cliff, in time or in memory.

use criterion::Criterion;

use crate::baseline::flat::Flat;
use crate::baseline::roaring_pool::{Form, RoaringPool};
use crate::baseline::sorted_list::SortedList;
use crate::churn::{Churn, DYNAMIC, Level, Ports};
use crate::interleaved::{Samples, Side, interleave_all, spelled};
use crate::one_host_growth::Weight;
use crate::own_set::OwnSet;
use crate::product_pool::ProductPool;
use crate::verdict::{Bound, Growth, Part, Row};

/// Of 12,000 numbers: 7,902 to 7,905 leave 4,098 to 4,095 free, where a set of 16-bit numbers that
/// are not runs changes its form.
const LEVELS: [Level; 14] = [
    Level::Live(0),
    Level::Live(20),
    Level::Live(100),
    Level::Live(1_000),
    Level::Live(3_000),
    Level::Live(6_000),
    Level::Live(7_902),
    Level::Live(7_903),
    Level::Live(7_904),
    Level::Live(7_905),
    Level::Live(9_000),
    Level::Live(10_800),
    Level::Live(11_880),
    Level::Checkerboard,
];
const ROUNDS: usize = 41;
/// What is measured at each level, the product first.
const FORMS: [&str; 7] = [
    "product",
    "own set",
    "flat set",
    "roaring set",
    "roaring without runs",
    "roaring of the dynamic range without runs",
    "sorted list",
];

/// Criterion's own samples, the product at every fill.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one host, 1 any comes and goes");
    for level in LEVELS {
        let mut product = Churn::<_, 1>::new(ProductPool::new(), level);
        group.bench_function(level.to_string(), |bencher| {
            bencher.iter(|| product.turn(1));
        });
    }
    group.finish();
}

/// Row 4, and the same figures as lines of the table of growth.
pub(crate) fn row() -> (Row, Vec<Growth>) {
    let (single, mut growth) = sweep::<1>();
    let (four, more) = sweep::<4>();
    growth.extend(more);
    let row = Row {
        number: 4,
        what: "no cliff over 14 fills of a host, 4,095 to 4,098 free and checkerboard among them",
        target: "worst <= 5x the median of the fills; heap of the set at its peak <= 17 KB",
        parts: vec![single, four, peak()],
    };
    (row, growth)
}

fn sweep<const K: usize>() -> (Part, Vec<Growth>)
where
    ProductPool<K>: Ports<K>,
{
    let mut products = LEVELS.map(|level| Churn::<_, K>::new(ProductPool::new(), level));
    let mut owns = LEVELS.map(|level| Churn::<_, K>::new(OwnSet::new(), level));
    let mut flats = LEVELS.map(|level| Churn::<_, K>::new(Flat::new(), level));
    let roaring = |form| LEVELS.map(|level| Churn::<_, K>::new(RoaringPool::new(form), level));
    let (mut runs, mut plains) = (roaring(Form::Runs), roaring(Form::Plain));
    let mut narrows = roaring(Form::Narrow);
    let mut lists = LEVELS.map(|level| Churn::<_, K>::new(SortedList::new(), level));
    let mut sides: Vec<Box<Side<'_>>> = Vec::new();
    let roarings = runs.iter_mut().zip(&mut plains).zip(&mut narrows);
    let others = roarings.zip(&mut lists);
    let all = products
        .iter_mut()
        .zip(&mut owns)
        .zip(&mut flats)
        .zip(others);
    for (((product, own), flat), (((runs, plain), narrow), list)) in all {
        sides.push(Box::new(|times| product.clocked(times)));
        sides.push(Box::new(|times| own.clocked(times)));
        sides.push(Box::new(|times| flat.clocked(times)));
        sides.push(Box::new(|times| {
            Ports::<K>::tidy(&mut runs.ports);
            runs.clocked(times)
        }));
        sides.push(Box::new(|times| plain.clocked(times)));
        sides.push(Box::new(|times| narrow.clocked(times)));
        sides.push(Box::new(|times| list.clocked(times)));
    }
    let mut borrowed: Vec<&mut Side<'_>> = sides.iter_mut().map(|side| &mut **side).collect();
    let samples = interleave_all(ROUNDS, &mut borrowed);
    let medians: Vec<f64> = samples.iter().map(Samples::median).collect();
    let levels = LEVELS.iter().zip(medians.chunks(FORMS.len()));
    let lines = levels.map(|(level, times)| {
        let told: Vec<String> = FORMS
            .iter()
            .zip(times)
            .map(|(form, nanos)| format!("{form} {}", spelled(*nanos)))
            .collect();
        Growth {
            what: format!("{K} any come and go, by fill"),
            at: level.to_string(),
            measured: told.join(", "),
        }
    });
    let worst_of = |form: usize| {
        let mut times: Vec<(f64, Level)> = medians
            .iter()
            .skip(form)
            .step_by(FORMS.len())
            .copied()
            .zip(LEVELS)
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((median, _), (worst, level)) = (times[LEVELS.len() / 2], times[LEVELS.len() - 1]);
        (
            worst / median,
            format!("{} at {level}, median {}", spelled(worst), spelled(median)),
        )
    };
    let (measured, detail) = worst_of(0);
    let others = (1..FORMS.len()).map(|form| format!("{} {:.1}x", FORMS[form], worst_of(form).0));
    let others: Vec<String> = others.collect();
    let part = Part {
        case: format!("{K} any"),
        measured,
        shown: format!("{measured:.1}x"),
        detail: format!("{detail}; alone: {}", others.join(", ")),
        bound: Bound::AtMost(5.0),
    };
    (part, lines.collect())
}

/// The most that the product's set has on the heap while ports come and go at any of the fills.
fn peak() -> Part {
    let peaks = LEVELS.map(|level| (Weight::of::<_, 1>(OwnSet::new, level).peak, level));
    let (peak, level) = peaks
        .into_iter()
        .max_by_key(|(peak, _)| *peak)
        .expect("there are levels");
    Part {
        case: "heap of the set".to_owned(),
        measured: peak as f64,
        shown: format!("{:.1} KB", peak as f64 / 1e3),
        detail: format!("{peak} B at {level}, without grants"),
        bound: Bound::AtMost(17_000.0),
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Live(live) => write!(f, "{live} of {} live", DYNAMIC.len()),
            Self::Checkerboard => f.write_str("checkerboard"),
        }
    }
}
