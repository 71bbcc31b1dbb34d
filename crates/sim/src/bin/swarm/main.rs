//! Tries seeds: each is the run of another virtual cluster, watched for broken promises after every step.
//!
//! `swarm --seeds 200` tries seeds 0 to 199, `swarm --for 60s` fresh ones for a minute. The first seeds that break a
//! promise are told with the shortest run found that breaks the same, and how to try them again. Exit code 1 then.
#![expect(
    clippy::disallowed_methods,
    reason = "it stands outside of virtual time: it plays seeds beside each other and looks at the clock"
)]

mod wish;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use portreeve::time::Spelled;
use portreeve_sim::swarm::{Broken, Reached, Tried, shorten, trace, try_seed};
use wish::Wish;

fn main() -> ExitCode {
    let wish = match Wish::read(std::env::args().skip(1), fresh_seed) {
        Ok(wish) => wish,
        Err(problem) => {
            say(&format!("{problem}\n"));
            return ExitCode::from(2);
        }
    };
    // What is panicked about is told with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if wish.trace {
        say(&trace(wish.from));
    }
    let found = hunt(&wish);
    say(&found.summary(&wish));
    for broken in &found.broken {
        say(&tell(broken, &wish));
    }
    if found.broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What all seeds together came to.
#[derive(Default)]
struct Found {
    seeds: u64,
    steps: u64,
    reached: Reached,
    broken: Vec<(u64, Broken)>,
    took_ms: u64,
}

/// Tries the seeds in order, several beside each other, until all are tried, the time is over, or enough are broken.
fn hunt(wish: &Wish) -> Found {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let found = Mutex::new(Found::default());
    let is_over = || {
        let is_late = wish.lasts.is_some_and(|span| began.elapsed() >= span);
        let found = lock(&found);
        let is_late = is_late && found.steps >= wish.least_steps;
        is_late || found.broken.len() >= wish.most_broken
    };
    std::thread::scope(|threads| {
        for _ in 0..wish.jobs {
            threads.spawn(|| {
                loop {
                    let no = next.fetch_add(1, Ordering::Relaxed);
                    if no >= wish.seeds || is_over() {
                        return;
                    }
                    let tried = try_seed(wish.from.wrapping_add(no));
                    lock(&found).add(tried);
                }
            });
        }
    });
    let mut found = found
        .into_inner()
        .unwrap_or_else(|broken| broken.into_inner());
    found.broken.sort_by_key(|(seed, _)| *seed);
    found.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    found
}

fn lock(found: &Mutex<Found>) -> std::sync::MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(|broken| broken.into_inner())
}

impl Found {
    fn add(&mut self, tried: Tried) {
        self.seeds += 1;
        self.steps += tried.steps;
        self.reached.merge(&tried.reached);
        self.broken.extend(tried.broken.map(|it| (tried.seed, it)));
    }

    fn summary(&self, wish: &Wish) -> String {
        let took = std::time::Duration::from_millis(self.took_ms);
        let rate = self.steps * 1000 / self.took_ms.max(1);
        let reached = &self.reached;
        format!(
            "{reached}\n{} seeds from {} in {}: {} steps, {rate} a second on {} threads; {} broken\n",
            self.seeds,
            wish.from,
            Spelled(took),
            self.steps,
            wish.jobs,
            self.broken.len()
        )
    }
}

/// The seed's break, the shortest run like it, and how to see it again.
fn tell((seed, broken): &(u64, Broken), wish: &Wish) -> String {
    let short = shorten(*seed, broken, wish.most_steps);
    let at = &short.broken;
    format!(
        "\nseed {seed} broke {broken}\n\nthe shortest run found that does the same:\n{}\n{}{at}\n\n\
         again: make seeds FROM={seed} SEEDS=1\neverything that happens: swarm --from {seed} --seeds 1 --trace\n",
        short.scenario, short.trace
    )
}

fn say(text: &str) {
    // Where nobody reads, the code still counts.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// The present millisecond: another one at each start.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0))
}
