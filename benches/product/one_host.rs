//! Rows 1 to 3: ports of one host come and go, beside the limit and beside a rebuild per decision.
//!
//! The product's side is everything that a host does for a replica: the choice, the grant kept by
//! replica, its phase, the release. So the flat bitset keeps grants by replica as well, and the bare
//! sets are held against each other beside; the product against bare bits is told. The rebuild only
//! finds and keeps nothing: the set alone is held against it, the product's whole work is told.

use criterion::Criterion;

use crate::baseline::flat::Flat;
use crate::baseline::rebuild::Rebuild;
use crate::baseline::roaring_pool::{Form, RoaringPool};
use crate::baseline::with_grants::WithGrants;
use crate::churn::{Churn, Level, Ports};
use crate::interleaved::{Ratio, clocked, interleave};
use crate::own_set::OwnSet;
use crate::product_pool::ProductPool;
use crate::requests::any;
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
            what: "4 any come and go: the product with its grants against a flat set with grants by replica, and its set against that set alone",
            target: "<= 4x at <= 100 live, <= 9x at any fill",
            parts: against_flat::<4>(|live| if live <= 100 { 4.0 } else { 9.0 }),
        },
        Row {
            number: 2,
            what: "1 any comes and goes: the product with its grant against a flat set with grants by replica, and its set against that set alone",
            target: "<= 10x to 50 %, <= 25x anywhere",
            parts: against_flat::<1>(|live| if live <= 6_000 { 10.0 } else { 25.0 }),
        },
        Row {
            number: 3,
            what: "4 any come and go in the set, against a rebuild per decision that only finds 4; the product with its grants is told",
            target: "no slower at <= 100 live, >= 4x faster at 1,000, >= 12x at 6,000, >= 50x at 90 %",
            parts: LIVE.into_iter().flat_map(against_rebuild).collect(),
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
        let bound = Bound::AtMost(bound(live));
        let part = |case: String, this, other, sides, bound| {
            Part::ratio(case, &Ratio::of(this, other), sides, bound)
        };
        let whole = ("product", "flat with grants");
        parts.push(part(live.to_string(), &product, &kept, whole, bound));
        let alone = ("own set", "flat");
        parts.push(part(format!("{live} set"), &own, &flat, alone, bound));
        let unlike = ("product", "flat");
        let case = format!("{live}, the product with grants beside bits alone");
        parts.push(part(case, &product, &flat, unlike, Bound::Told));
        let other = ("roaring", "flat");
        let case = format!("{live}, the roaring set alone");
        parts.push(part(case, &roaring, &flat, other, Bound::Told));
    }
    parts
}

fn against_rebuild(live: usize) -> [Part; 3] {
    let level = Level::Live(live);
    let mut product = Churn::<_, 4>::new(ProductPool::new(), level);
    let mut own = Churn::<_, 4>::new(OwnSet::new(), level);
    let mut finding = Churn::<_, 4>::new(ProductPool::new(), level);
    // The same numbers for the rebuild: the product keeps them for itself.
    let held = Churn::<_, 4>::new(Flat::new(), level);
    let mut rebuild = Rebuild::new();
    let request = any(4);
    let [product, own, finding, rebuild] = interleave(
        ROUNDS,
        [
            &mut |times| product.clocked(times),
            &mut |times| own.clocked(times),
            &mut |times| clocked(times, || finding.ports.fits(&request)),
            &mut |times| clocked(times, || rebuild.find(std::hint::black_box(held.owners()))),
        ],
    );
    let bound = match live {
        0..=100 => 1.0,
        101..=1_000 => 4.0,
        1_001..=6_000 => 12.0,
        _ => 50.0,
    };
    [
        Part::ratio(
            live.to_string(),
            &Ratio::of(&rebuild, &own),
            ("rebuild", "own set"),
            Bound::AtLeast(bound),
        ),
        Part::ratio(
            format!("{live}, the product with its grants"),
            &Ratio::of(&rebuild, &product),
            ("rebuild", "product"),
            Bound::Told,
        ),
        Part::ratio(
            format!("{live}, finding alone on both sides"),
            &Ratio::of(&rebuild, &finding),
            ("rebuild", "product"),
            Bound::Told,
        ),
    ]
}
