//! Row 21: how long readers wait after a controller with many replicas was started.

use std::path::Path;
use std::time::{Duration, Instant};

use portreeve::host_addr::Networks;
use portreeve::registry::{Silence, Store};
use portreeve::time::WallClock;
use portreeve_api::site_profiles::SiteFolder;
use portreeve_controller::{Config, Controller, RedbStore, back_up};

use crate::filled::{fill, fill_past};
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
        tls: None,
        insecure: false,
        audit: None,
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
        rights: None,
        jwt: None,
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
    let (mut starts, mut raw) = (Vec::new(), Vec::new());
    let (mut checks, mut loads) = (Vec::new(), Vec::new());
    let start = || {
        let begun = Instant::now();
        // It listens when this is through: whoever connects then reads the stored set.
        let controller = runtime.block_on(Controller::start(config.clone()));
        let took = begun.elapsed();
        (controller.expect("nothing is in its way"), took)
    };
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        bytes = std::fs::read(&file).expect("it is there").len();
        raw.push(begun.elapsed());
        let begun = Instant::now();
        let mut store = RedbStore::open(&config.data).expect("it is whole");
        checks.push(begun.elapsed());
        let begun = Instant::now();
        let stored = store.load().expect("it is whole");
        loads.push(begun.elapsed());
        drop((store, stored));
        let (controller, took) = start();
        starts.push(took);
        runtime.block_on(controller.stop());
    }
    let (mut packed, mut backups, mut with_past) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        packed.clear();
        back_up(&config.data, false, WallClock::default(), &mut packed).expect("it is whole");
        backups.push(begun.elapsed());
    }
    let past = fill_past(&config.data, SERVICES);
    for _ in 0..ROUNDS {
        let (controller, took) = start();
        with_past.push(took);
        runtime.block_on(controller.stop());
    }
    let (raw, raw_median) = part("reading the file", raw, Bound::Told);
    let (start, start_median) = part("until reads are answered", starts, Bound::AtMost(3.0));
    let (check, _) = part("of that, every page checked", checks, Bound::Told);
    let (load, _) = part(
        "and read; changes wait so long for a backup",
        loads,
        Bound::Told,
    );
    let (backup, _) = part("a backup of it", backups, Bound::Told);
    let backup = Part {
        detail: format!("{} MB packed; {}", packed.len() >> 20, backup.detail),
        ..backup
    };
    let (with_past, _) = part("with the longest past as well", with_past, Bound::Told);
    let with_past = Part {
        detail: format!("{past} records more; {}", with_past.detail),
        ..with_past
    };
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
        parts: vec![
            Part { detail, ..start },
            check,
            load,
            raw,
            backup,
            with_past,
        ],
    }
}
