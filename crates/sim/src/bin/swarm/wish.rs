//! What is asked for on the command line.

use std::num::NonZeroUsize;
use std::time::Duration;

use portreeve::time::parse_duration;

/// Which seeds to try, for how long, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The first seed.
    pub(crate) from: u64,
    /// How many at most.
    pub(crate) seeds: u64,
    /// None is begun after so long.
    pub(crate) lasts: Option<Duration>,
    /// But on a slow machine as many more as make so many steps.
    pub(crate) least_steps: u64,
    /// How many beside each other.
    pub(crate) jobs: usize,
    /// None is begun after so many broke a promise.
    pub(crate) most_broken: usize,
    /// How many steps to look for a shorter run.
    pub(crate) most_steps: u64,
    /// Whether everything is told that happens in the first seed.
    pub(crate) trace: bool,
}

pub(crate) const USAGE: &str = "\
swarm [--seeds N] [--from SEED] [--for TIME] [--steps N] [--jobs N] [--most-broken N] [--shorten STEPS] [--trace]
  --seeds N        so many seeds; by default 100, with --for as many as there is time for
  --from SEED      the first seed; by default 0, with --for one that the clock gives
  --for TIME       begin none after this time, such as 60s
  --steps N        but go on until there were so many steps, however slow the machine is
  --jobs N         so many beside each other; by default one for each processor
  --most-broken N  begin none after so many broke a promise: more would be the same ones mostly; by default 3
  --shorten STEPS  steps of looking for a shorter run that breaks the same promise; by default 3000000
  --trace          tell everything that happens in the first seed";

impl Wish {
    /// Reads the arguments; `fresh` gives a seed that was not tried before.
    pub(crate) fn read(
        mut args: impl Iterator<Item = String>,
        fresh: impl FnOnce() -> u64,
    ) -> Result<Self, String> {
        let (mut from, mut seeds, mut lasts, mut jobs) = (None, None, None, None);
        let (mut most_broken, mut most_steps, mut trace) = (3, 3_000_000, false);
        let mut least_steps = 0;
        while let Some(flag) = args.next() {
            let mut value = || {
                args.next()
                    .ok_or_else(|| format!("{flag} lacks its value\n{USAGE}"))
            };
            match flag.as_str() {
                "--from" => from = Some(number(&flag, &value()?)?),
                "--seeds" => seeds = Some(number(&flag, &value()?)?),
                "--jobs" => jobs = Some(number(&flag, &value()?)?),
                "--steps" => least_steps = number(&flag, &value()?)?,
                "--most-broken" => most_broken = number(&flag, &value()?)?,
                "--shorten" => most_steps = number(&flag, &value()?)?,
                "--for" => {
                    let span = parse_duration(&value()?);
                    lasts = Some(span.map_err(|error| format!("--for: {error}"))?);
                }
                "--trace" => trace = true,
                _ => return Err(format!("{flag}: unknown\n{USAGE}")),
            }
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let jobs = jobs.and_then(|jobs| usize::try_from(jobs).ok());
        Ok(Self {
            from: from.unwrap_or_else(|| if lasts.is_some() { fresh() } else { 0 }),
            seeds: seeds.unwrap_or(if lasts.is_some() { u64::MAX } else { 100 }),
            lasts,
            least_steps,
            jobs: jobs.unwrap_or(processors).clamp(1, 256),
            most_broken: usize::try_from(most_broken).unwrap_or(usize::MAX),
            most_steps,
            trace,
        })
    }
}

fn number(flag: &str, text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{flag}: {text:?} is not a whole number\n{USAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Wish, String> {
        Wish::read(line.split_whitespace().map(str::to_owned), || 77)
    }

    #[test]
    fn a_time_asks_for_fresh_seeds_and_a_number_for_the_same_ones_each_time() {
        let fresh = read("--for 60s --jobs 2").unwrap();
        assert_eq!((fresh.from, fresh.seeds), (77, u64::MAX));
        assert_eq!(fresh.lasts, Some(Duration::from_secs(60)));
        let fixed = read("--seeds 5").unwrap();
        assert_eq!((fixed.from, fixed.seeds, fixed.lasts), (0, 5, None));
        assert_eq!(read("--from 9 --seeds 1").unwrap().from, 9);
    }

    #[test]
    fn what_is_not_understood_is_told_with_what_is() {
        for line in ["--seed 5", "--seeds five", "--for 5", "--from"] {
            let problem = read(line).unwrap_err();
            assert!(problem.contains("--"), "{problem}");
        }
    }
}
