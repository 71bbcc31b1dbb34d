//! The controller's own process, as `/proc` tells of it.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::family::{Families, number};

/// What the system says; nothing of what it does not.
pub(super) fn tell(families: &mut Families) {
    if let Some(stat) = Stat::read() {
        families.counter(
            "process_cpu_seconds",
            "Processor time of the controller, in seconds",
            stat.cpu_seconds,
        );
        families.gauge(
            "process_resident_memory_bytes",
            "Memory of the controller that is in use, in bytes",
            stat.resident,
        );
        families.gauge(
            "process_virtual_memory_bytes",
            "Addresses that the controller has, in bytes",
            stat.virtual_size,
        );
        if let Some(started) = stat.started {
            families.gauge(
                "process_start_time_seconds",
                "When the controller was started, in seconds since 1970",
                started,
            );
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The folder itself is one while it is read.
        let open = u64::try_from(open.count()).unwrap_or_default();
        families.gauge(
            "process_open_fds",
            "Files and connections that the controller has open",
            number(open.saturating_sub(1)),
        );
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        families.gauge(
            "process_max_fds",
            "Files and connections that the controller may have open",
            number(most),
        );
    }
}

struct Stat {
    cpu_seconds: f64,
    virtual_size: f64,
    resident: f64,
    started: Option<f64>,
}

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok();
        let boot = boot.and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
            line.trim().parse::<f64>().ok()
        });
        let ticks = number(rustix::param::clock_ticks_per_second());
        let page = number(u64::try_from(rustix::param::page_size()).ok()?);
        Self::parse(&text, boot, ticks, page)
    }

    /// Of a line of `/proc/PID/stat`. The name may hold anything, also brackets and blanks.
    fn parse(text: &str, boot: Option<f64>, ticks: f64, page: f64) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The numbers of proc(5) less the two before the bracket and one.
        let field = |nth: usize| fields.get(nth - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            virtual_size: field(23)?,
            resident: field(24)? * page,
            started: boot.and_then(|boot| Some(boot + field(22)? / ticks)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_moves_no_field() {
        let line = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1000 8192 3 1";
        let stat = Stat::parse(line, Some(5_000.0), 100.0, 4096.0).unwrap();
        let told = (stat.cpu_seconds, stat.virtual_size, stat.resident);
        assert_eq!(told, (3.0, 8192.0, 12288.0));
        assert_eq!(stat.started, Some(5_010.0));
        for broken in ["", "7 (a", "7 (a) S 1", "7 (a) S x"] {
            assert!(Stat::parse(broken, None, 100.0, 4096.0).is_none());
        }
        assert!(Stat::read().is_some());
    }
}
