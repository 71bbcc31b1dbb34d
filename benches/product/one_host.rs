//! Rows 1 to 3: ports of one host come and go, beside the limit and beside a rebuild per decision.
//!
//! The product's side is everything that a host does for a replica: the choice, the grant kept by
//! replica, its phase, the release. The flat bitset only turns bits, and the rebuild only finds.

use criterion::Criterion;

use crate::baseline::flat::Flat;
use crate::baseline::rebuild::Rebuild;
use crate::baseline::roaring_pool::{Form, RoaringPool};
use crate::baseline::with_grants::WithGrants;
use crate::churn::{Churn, Level, Ports};
use crate::interleaved::{Ratio, clocked, interleave};
use crate::own_set::OwnSet;
use crate::product_pool::ProductPool;
use crate::verdict::{Bound, Part, Row};

const LIVE: [usize; 7] = [0, 20, 100, 1_000, 6_000, 10_800, 11_880];
const ROUNDS: usize = 201;

/// Criterion's own samples.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one host, 4 any come and go");
    for live in [100, 6_000] {
        let mut product = Churn::<_, 4>::new(ProductPool::new(), Level::Live(live));
        let mut flat = Churn::<_, 4>::new(Flat::new(), Level::Live(live));
        let mut roaring = Churn::<_, 4>::new(RoaringPool::new(Form::Runs), Level::Live(live));
        let mut rebuild = Rebuild::new();
        group.bench_function(format!("product, {live} live"), |bencher| {
            bencher.iter(|| product.turn(1));
        });
        group.bench_function(format!("flat bitset, {live} live"), |bencher| {
            bencher.iter(|| flat.turn(1));
        });
        group.bench_function(format!("roaring, {live} live"), |bencher| {
            bencher.iter(|| roaring.turn(1));
        });
        group.bench_function(format!("rebuild, find only, {live} live"), |bencher| {
            bencher.iter(|| rebuild.find(flat.owners()));
        });
    }
    group.finish();
}

/// Rows 1 to 3.
pub(crate) fn rows() -> [Row; 3] {
    [
        Row {
            number: 1,
            what: "4 any come and go with their grant, against bits of a flat set alone",
            target: "<= 4x at <= 100 live, <= 9x at any fill",
            parts: against_flat::<4>(|live| if live <= 100 { 4.0 } else { 9.0 }),
        },
        Row {
            number: 2,
            what: "1 any comes and goes with its grant, against bits of a flat set alone",
            target: "<= 10x to 50 %, <= 25x anywhere",
            parts: against_flat::<1>(|live| if live <= 6_000 { 10.0 } else { 25.0 }),
        },
        Row {
            number: 3,
            what: "4 any come and go with their grant, against a rebuild that only finds 4",
            target: "no slower at <= 100 live, >= 4x faster at 1,000, >= 12x at 6,000, >= 50x at 90 %",
            parts: LIVE.into_iter().map(against_rebuild).collect(),
        },
    ]
}

fn against_flat<const K: usize>(bound: fn(usize) -> f64) -> Vec<Part>
where
    ProductPool<K>: Ports<K>,
{
    let mut parts = Vec::new();
    for live in LIVE {
        let level = Level::Live(live);
        let mut product = Churn::<_, K>::new(ProductPool::new(), level);
        let mut flat = Churn::<_, K>::new(Flat::new(), level);
        let mut kept = Churn::<_, K>::new(WithGrants::new(Flat::new()), level);
        let mut own = Churn::<_, K>::new(OwnSet::new(), level);
        let mut roaring = Churn::<_, K>::new(RoaringPool::new(Form::Runs), level);
        let [product, flat, kept, own, roaring] = interleave(
            ROUNDS,
            [
                &mut |times| product.clocked(times),
                &mut |times| flat.clocked(times),
                &mut |times| kept.clocked(times),
                &mut |times| own.clocked(times),
                &mut |times| {
                    Ports::<K>::tidy(&mut roaring.ports);
                    roaring.clocked(times)
                },
            ],
        );
        let told = |what, samples, sides| {
            let case = format!("{live}, {what}");
            Part::ratio(case, &Ratio::of(samples, &flat), sides, Bound::Told)
        };
        parts.push(Part::ratio(
            live.to_string(),
            &Ratio::of(&product, &flat),
            ("product", "flat"),
            Bound::AtMost(bound(live)),
        ));
        parts.push(Part::ratio(
            format!("{live}, against a flat set with grants by replica"),
            &Ratio::of(&product, &kept),
            ("product", "flat with grants"),
            Bound::Told,
        ));
        parts.push(told("the product's set alone", &own, ("own set", "flat")));
        parts.push(told("the roaring set alone", &roaring, ("roaring", "flat")));
    }
    parts
}

fn against_rebuild(live: usize) -> Part {
    let mut product = Churn::<_, 4>::new(ProductPool::new(), Level::Live(live));
    // The same numbers for the rebuild: the product keeps them for itself.
    let held = Churn::<_, 4>::new(Flat::new(), Level::Live(live));
    let mut rebuild = Rebuild::new();
    let [product, rebuild] = interleave(
        ROUNDS,
        [&mut |times| product.clocked(times), &mut |times| {
            clocked(times, || rebuild.find(std::hint::black_box(held.owners())))
        }],
    );
    let bound = match live {
        0..=100 => 1.0,
        101..=1_000 => 4.0,
        1_001..=6_000 => 12.0,
        _ => 50.0,
    };
    Part::ratio(
        live.to_string(),
        &Ratio::of(&rebuild, &product),
        ("rebuild", "product"),
        Bound::AtLeast(bound),
    )
}
