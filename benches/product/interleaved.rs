//! Times several ways of doing one thing in turn, so that a change of the machine's speed meets all.

use std::fmt;
use std::time::{Duration, Instant};

/// How long one sample lasts at least: long beside the clock's own cost, short beside a time slice.
const SAMPLE: Duration = Duration::from_micros(100);

/// One way of doing it: does it so many times and says how long that took.
pub(crate) type Side<'a> = dyn FnMut(u32) -> Duration + 'a;

/// How long it takes to do `work` so many times.
pub(crate) fn clocked<T>(times: u32, mut work: impl FnMut() -> T) -> Duration {
    let begun = Instant::now();
    for _ in 0..times {
        std::hint::black_box(work());
    }
    begun.elapsed()
}

/// Runs each side in turn, `rounds` times, for as many operations as make a sample long enough;
/// finding that number also warms the side.
pub(crate) fn interleave<const N: usize>(
    rounds: usize,
    mut sides: [&mut Side<'_>; N],
) -> [Samples; N] {
    let samples = interleave_all(rounds, &mut sides);
    samples
        .try_into()
        .unwrap_or_else(|_| unreachable!("each side has its samples"))
}

/// The same for as many sides as there are.
pub(crate) fn interleave_all(rounds: usize, sides: &mut [&mut Side<'_>]) -> Vec<Samples> {
    let batches: Vec<u32> = sides.iter_mut().map(|side| batch(*side)).collect();
    let mut times = vec![Vec::with_capacity(rounds); sides.len()];
    for round in 0..rounds {
        for turn in 0..sides.len() {
            // Each side goes first as often as the others.
            let at = (round + turn) % sides.len();
            let nanos = sides[at](batches[at]).as_secs_f64() * 1e9;
            times[at].push(nanos / f64::from(batches[at]));
        }
    }
    times.into_iter().map(Samples::new).collect()
}

fn batch(side: &mut Side<'_>) -> u32 {
    // What is made at the first use is no part of the course.
    side(1);
    let mut batch = 1;
    while side(batch) < SAMPLE && batch < 1 << 20 {
        batch *= 2;
    }
    batch
}

/// The times of one side in nanoseconds per operation, in the order of the rounds; never empty.
#[derive(Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn new(times: Vec<f64>) -> Self {
        assert!(!times.is_empty(), "a side is timed at least once");
        Self(times)
    }

    pub(crate) fn median(&self) -> f64 {
        quantile(self.0.clone(), 0.5)
    }
}

/// How often one side's time holds the other's: the ratio of the medians, and how far the ratios of
/// single rounds lie apart.
#[derive(Clone)]
pub(crate) struct Ratio {
    /// The ratio of the medians.
    pub(crate) value: f64,
    /// A tenth of the rounds lies below.
    pub(crate) low: f64,
    /// A tenth of the rounds lies above.
    pub(crate) high: f64,
    /// The medians: what is divided, and by what.
    pub(crate) medians: (f64, f64),
    /// Of each side, what a tenth of the rounds stays below: how it is when nothing else runs.
    pub(crate) quiet: (f64, f64),
}

impl Ratio {
    /// How many times as long as `other` does `this` take?
    pub(crate) fn of(this: &Samples, other: &Samples) -> Self {
        let pairs: Vec<f64> = this.0.iter().zip(&other.0).map(|(a, b)| a / b).collect();
        let medians = (this.median(), other.median());
        Self {
            value: medians.0 / medians.1,
            low: quantile(pairs.clone(), 0.1),
            high: quantile(pairs, 0.9),
            medians,
            quiet: (
                quantile(this.0.clone(), 0.1),
                quantile(other.0.clone(), 0.1),
            ),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}x", self.value)
    }
}

/// Nanoseconds as people read them.
pub(crate) fn spelled(nanos: f64) -> String {
    match nanos {
        n if n < 1e3 => format!("{n:.1} ns"),
        n if n < 1e6 => format!("{:.2} us", n / 1e3),
        n => format!("{:.2} ms", n / 1e6),
    }
}

fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values[at.min(values.len() - 1)]
}
