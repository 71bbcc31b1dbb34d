//! Row 21: how long readers wait after a controller with many replicas was started.

use std::path::Path;
use std::time::{Duration, Instant};

use portreeve::host_addr::Networks;
use portreeve::registry::{Silence, Store};
use portreeve_api::site_profiles::SiteFolder;
use portreeve_controller::{Config, Controller, RedbStore};

use crate::filled::fill;
use crate::interleaved::Samples;
use crate::verdict::{Bound, Part, Row};

const SERVICES: usize = 1_000;
const EACH: usize = 100;
const ROUNDS: usize = 5;

fn config(folder: &Path) -> Config {
    Config {
        data: folder.join("data"),
        socket: folder.join("run/controller.sock"),
        listen: Vec::new(),
        single_host: false,
        cooling: Duration::from_secs(60),
        coalesce: Config::COALESCE,
        silence: Silence::default(),
        new_epoch: false,
        networks: Networks::default(),
        site_profiles: SiteFolder::at(None),
        max_connections: None,
        max_streams: None,
        requests_per_second: None,
        limits: None,
    }
}

fn part(case: &str, times: Vec<Duration>, bound: Bound) -> (Part, f64) {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    let (low, high) = seconds.iter().fold((f64::MAX, 0_f64), |(low, high), it| {
        (low.min(*it), high.max(*it))
    });
    let median = Samples::new(seconds).median();
    let part = Part {
        case: case.to_owned(),
        measured: median,
        shown: format!("{median:.2} s"),
        detail: format!("{ROUNDS} rounds, {low:.3} s to {high:.3} s"),
        bound,
    };
    (part, median)
}

pub(crate) fn row() -> Row {
    let folder = crate::folder();
    let config = config(folder.path());
    std::fs::create_dir_all(&config.data).expect("the folder takes folders");
    let placed = fill(&config.data, SERVICES, EACH);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let file = config.data.join(RedbStore::FILE);
    let mut bytes = 0;
    let (mut starts, mut raw, mut loads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        bytes = std::fs::read(&file).expect("it is there").len();
        raw.push(begun.elapsed());
        let begun = Instant::now();
        let mut store = RedbStore::open(&config.data).expect("it is whole");
        let stored = store.load().expect("it is whole");
        loads.push(begun.elapsed());
        drop((store, stored));
        let begun = Instant::now();
        // It listens when this is through: whoever connects then reads the stored set.
        let controller = runtime.block_on(Controller::start(config.clone()));
        starts.push(begun.elapsed());
        let controller = controller.expect("nothing is in its way");
        runtime.block_on(controller.stop());
    }
    let (raw, raw_median) = part("reading the file", raw, Bound::Told);
    let (start, start_median) = part("until reads are answered", starts, Bound::AtMost(3.0));
    let (load, _) = part("of that, the store checked and read", loads, Bound::Told);
    let detail = format!(
        "{} MB, {placed} replicas; {:.0}x of reading the file; {}",
        bytes >> 20,
        start_median / raw_median,
        start.detail
    );
    Row {
        number: 21,
        what: "start of a controller with 100,000 stored replicas",
        target: "< 3 s wanted; beside reading the same bytes",
        parts: vec![Part { detail, ..start }, load, raw],
    }
}
