//! Row 20: how long after a worker began to tell a change clients can read it.
//!
//! The worker opens a connection for each status, as ours do; the client asks `resolve` again and again on a kept one.
//! Both over loopback. The unit is one such question of the client while nothing changes.

use std::io;
use std::time::{Duration, Instant};

use crate::interleaved::{Ratio, Samples};
use crate::served::{PATIENCE, Served, absent};
use crate::verdict::{Bound, Part, Row};
use crate::wire::Wire;

const PATH: &str = "/api/v1/resolve/web";
const REPLICAS: usize = 10;
const ROUNDS: usize = 101;
/// Longer than changes are gathered: each here is the first after quiet.
const QUIET: Duration = Duration::from_millis(60);

/// The row.
pub(crate) fn row() -> Option<Row> {
    absent(20, measure())
}

fn measure() -> io::Result<Row> {
    let mut served = Served::start(REPLICAS, &[])?;
    let mut client = Wire::open(&served.place, PATIENCE)?;
    let (mut news, mut trips) = (Vec::new(), Vec::new());
    let (mut withdrawals, mut returns) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        std::thread::sleep(QUIET);
        let begun = Instant::now();
        let before = lines(&mut client)?;
        trips.push(nanos(begun));
        let ready = !served.host.is_ready(0);
        let begun = Instant::now();
        let mut worker = served.host.begin_to_tell(0, ready)?;
        while lines(&mut client)? == before {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("a change never became visible"));
            }
        }
        let took = nanos(begun);
        // The first is the connection's own warming.
        if round > 0 {
            news.push(took);
            if ready {
                &mut returns
            } else {
                &mut withdrawals
            }
            .push(took);
        }
        worker.answer()?;
    }
    trips.remove(0);
    let trips = Samples::new(trips);
    let part = |case: &str, times, bound| {
        let ratio = Ratio::of(&Samples::new(times), &trips);
        Part::ratio(case, &ratio, ("change", "round trip"), bound)
    };
    Ok(Row {
        number: 20,
        what: "readiness flip at the worker to visible in resolve, loopback, against one round trip",
        target: "<= 5x",
        parts: vec![
            part("flip", news, Bound::AtMost(5.0)),
            part("withdrawal", withdrawals, Bound::Told),
            part("return", returns, Bound::Told),
        ],
    })
}

fn lines(client: &mut Wire) -> io::Result<usize> {
    Ok(client.get(PATH, &[])?.text().lines().count())
}

fn nanos(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e9
}
