//! What is counted while the controller runs, for `/metrics`: an atomic number a request, nothing more on the way.
//!
//! Everything else that is told there is found when it is asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Semaphore;

/// Requests and connections since the start.
pub(crate) struct Meters {
    routes: matchit::Router<usize>,
    /// The label of each route; the last is for what is none.
    labels: Vec<String>,
    /// By route, method and status.
    requests: Vec<AtomicU64>,
    /// By the code of the problem.
    refusals: Mutex<BTreeMap<String, u64>>,
    pub(crate) connections: Present,
    pub(crate) streams: Present,
    /// Whoever asks for the figures waits for who asked before: to find them takes a while where there are many
    /// replicas.
    pub(crate) turn: Semaphore,
}

/// Methods that are told apart; all others are one.
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "other"];
/// Statuses that are told apart; all others are one.
const STATUSES: [u16; 20] = [
    200, 204, 304, 400, 401, 403, 404, 405, 406, 409, 410, 412, 413, 415, 422, 429, 500, 503, 504,
    0,
];
/// Codes of problems that are told apart. They are words of ours, far fewer than this.
const MOST_CODES: usize = 128;

impl Meters {
    /// Nothing counted yet, for these routes.
    pub(crate) fn new(paths: impl IntoIterator<Item = String>) -> Self {
        let mut routes = matchit::Router::new();
        let mut labels = Vec::new();
        for path in paths {
            // One that cannot be told from another counts with what is no route.
            if routes.insert(path.as_str(), labels.len()).is_ok() {
                labels.push(path);
            }
        }
        labels.push("none".to_owned());
        let all = labels.len() * METHODS.len() * STATUSES.len();
        Self {
            routes,
            labels,
            requests: std::iter::repeat_with(AtomicU64::default)
                .take(all)
                .collect(),
            refusals: Mutex::default(),
            connections: Present::default(),
            streams: Present::default(),
            turn: Semaphore::new(1),
        }
    }

    /// Which counters a request belongs to.
    pub(crate) fn place(&self, method: &Method, path: &str) -> Place {
        let route = self.routes.at(path).map(|found| *found.value);
        let route = route.unwrap_or(self.labels.len() - 1);
        let others = METHODS.len() - 1;
        let method = METHODS.iter().position(|it| *it == method.as_str());
        Place((route * METHODS.len() + method.unwrap_or(others)) * STATUSES.len())
    }

    /// The route of these counters, as it is written.
    pub(crate) fn route(&self, place: Place) -> &str {
        &self.labels[place.0 / STATUSES.len() / METHODS.len()]
    }

    /// A request was answered.
    pub(crate) fn answered(&self, place: Place, status: StatusCode) {
        let others = STATUSES.len() - 1;
        let status = STATUSES.iter().position(|it| *it == status.as_u16());
        self.requests[place.0 + status.unwrap_or(others)].fetch_add(1, Ordering::Relaxed);
    }

    /// A request was refused, with the problem of this code.
    pub(crate) fn refused(&self, code: &str) {
        let mut refusals = self.refusals.lock();
        if let Some(count) = refusals.get_mut(code) {
            *count += 1;
        } else if refusals.len() < MOST_CODES {
            refusals.insert(code.to_owned(), 1);
        }
    }

    /// Requests by route, method and status, those that there were.
    pub(crate) fn requests(&self) -> impl Iterator<Item = ([&str; 2], String, u64)> {
        let counted = self.requests.iter().enumerate();
        counted.filter_map(|(nth, count)| {
            let count = count.load(Ordering::Relaxed);
            let (nth, status) = (nth / STATUSES.len(), STATUSES[nth % STATUSES.len()]);
            let route = &self.labels[nth / METHODS.len()];
            let status = match status {
                0 => "other".to_owned(),
                known => known.to_string(),
            };
            (count > 0).then_some(([route, METHODS[nth % METHODS.len()]], status, count))
        })
    }

    /// Refusals by code.
    pub(crate) fn refusals(&self) -> BTreeMap<String, u64> {
        self.refusals.lock().clone()
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// The counters of one route and method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(usize);

/// How many of something there are at present.
#[derive(Debug, Default)]
pub(crate) struct Present(AtomicU64);

impl Present {
    /// One more, until what is returned is dropped.
    pub(crate) fn enter(&self) -> Presence<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Presence(self)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One that is present.
#[derive(Debug)]
pub(crate) struct Presence<'a>(&'a Present);

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What became of commits since the start.
#[derive(Debug)]
pub(crate) struct Commits {
    /// Refused by the store.
    pub(crate) refused: AtomicU64,
    /// How long each took that was accepted, in seconds.
    pub(crate) seconds: Histogram,
    /// How many records each of these wrote.
    pub(crate) records: Histogram,
}

impl Default for Commits {
    fn default() -> Self {
        Self {
            refused: AtomicU64::default(),
            seconds: Histogram::new([
                0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
                10.0,
            ]),
            records: Histogram::new([
                1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1_000.0, 5_000.0,
            ]),
        }
    }
}

impl Commits {
    /// A commit became durable.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a batch of 2^52 records does not fit in memory"
    )]
    pub(crate) fn accepted(&self, took: Duration, records: usize) {
        self.seconds.observe(took.as_secs_f64());
        self.records.observe(records as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_whatever_stands_in_its_places() {
        let routes = ["/api/v1/services/{service}", "/healthz"];
        let meters = Meters::new(routes.map(str::to_owned));
        for path in ["/api/v1/services/a", "/api/v1/services/b", "/nowhere", "/"] {
            let place = meters.place(&Method::GET, path);
            meters.answered(place, StatusCode::OK);
        }
        let odd = Method::from_bytes(b"BREW").unwrap();
        let place = meters.place(&odd, "/healthz");
        meters.answered(place, StatusCode::IM_A_TEAPOT);
        let told: Vec<_> = meters.requests().collect();
        assert_eq!(
            told,
            [
                (["/api/v1/services/{service}", "GET"], "200".to_owned(), 2),
                (["/healthz", "other"], "other".to_owned(), 1),
                (["none", "GET"], "200".to_owned(), 2),
            ]
        );
    }

    #[test]
    fn codes_are_bounded_and_what_leaves_is_not_present() {
        let meters = Meters::new([]);
        for nth in 0..2 * MOST_CODES {
            meters.refused(&nth.to_string());
        }
        meters.refused("0");
        assert_eq!(meters.refusals().len(), MOST_CODES);
        assert_eq!(meters.refusals()["0"], 2);
        let one = meters.streams.enter();
        assert_eq!(meters.streams.count(), 1);
        drop(one);
        assert_eq!(meters.streams.count(), 0);
    }
}
