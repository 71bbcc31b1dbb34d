//! Row 22: what a worker and a shim weigh, and what many of them cost while nothing changes.
//!
//! The shipped binary, started as users start it: a controller, an agent and one replica per worker in a network
//! of their own, each probed over TCP every 10 s. It needs `cargo build --release -p portreeve-cli` before it,
//! and `unshare`, as root or with user namespaces; without them the row is told as absent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::verdict::{Bound, Part, Row};

/// How many workers, and for how long their time is taken.
const CASES: [(u32, Duration); 3] = [
    (1, Duration::from_secs(20)),
    (100, Duration::from_secs(20)),
    (1_000, Duration::from_secs(60)),
];
/// How long a thousand replicas may take to be ready.
const PATIENCE: &str = "600s";
/// The most resident kilobytes (PSS) of one worker or one shim, and the most of a core that a thousand workers and
/// their shims take, in percent.
const MOST_KB: f64 = 6_144.0;
const MOST_PERCENT: f64 = 5.0;

/// The row, if the binary is built and the machine allows namespaces.
pub(crate) fn row() -> Option<Row> {
    let program = program()?;
    let mut parts = Vec::new();
    for (count, span) in CASES {
        let Some(site) = Site::start(&program, count) else {
            eprintln!("row 22 with {count} workers: no replica became ready; see above");
            continue;
        };
        parts.extend(site.measure(count, span));
    }
    (!parts.is_empty()).then_some(Row {
        number: 22,
        what: "worker and shim: resident memory, and time in the steady state",
        target: "6 MB resident (PSS) each; 1,000 with tcp probes each 10 s at most 5 % of a core",
        parts,
    })
}

/// The release binary beside this one.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let program = own.parent()?.parent()?.join("portreeve");
    if program.is_file() {
        return Some(program);
    }
    eprintln!("row 22 is absent: `cargo build --release -p portreeve-cli` makes what it measures");
    None
}

/// A controller and an agent in a network and a process namespace of their own.
struct Site {
    holder: Child,
    folder: PathBuf,
    program: PathBuf,
}

impl Site {
    fn start(program: &Path, count: u32) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("portreeve-row-22-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let at = |name: &str| folder.join(name).display().to_string();
        let script = format!(
            "ip link set lo up; {p} controller --single-host --data {c} --run-dir {r} >{c}.out 2>&1 & \
             {p} agent --host n1 --single-host --data {a} --controller unix:{r}/controller.sock >{a}.out 2>&1 & \
             echo; wait",
            p = program.display(),
            c = at("c"),
            a = at("a"),
            r = at("run"),
        );
        let holder = Command::new("unshare")
            .args([
                "--map-root-user",
                "--net",
                "--pid",
                // Processes are named by what `/proc` tells; that of the outer namespace tells of others.
                "--mount-proc",
                "--fork",
                "--kill-child",
            ])
            .args(["sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let site = Self {
            holder,
            folder,
            program: program.to_owned(),
        };
        site.fill(count).then_some(site)
    }

    /// Submits the replicas and waits until all are ready.
    fn fill(&self, count: u32) -> bool {
        let profile = self.folder.join("row.toml");
        let text = format!(
            "kind = \"service\"\nname = \"row\"\nreplicas = {count}\n\
             command = \"exec portreeve hello --port ${{port.http}}\"\n\
             [ports]\nhttp = \"any\"\n[readiness]\ntcp = {{}}\ninterval = \"10s\"\n"
        );
        let began = Instant::now();
        let mut up = false;
        while !up && began.elapsed() < Duration::from_secs(30) {
            up = self.run(&["hosts"]).is_some_and(|text| text.contains("n1"));
            std::thread::park_timeout(Duration::from_millis(50));
        }
        let number = count.to_string();
        let wait = ["wait", "row", "--ready", &number, "--timeout", PATIENCE];
        up && fs::write(&profile, text).is_ok()
            && self
                .run(&["submit", &profile.display().to_string()])
                .is_some()
            && self.run(&wait).is_some()
    }

    fn run(&self, arguments: &[&str]) -> Option<String> {
        let socket = self.folder.join("run/controller.sock");
        let output = Command::new(&self.program)
            .args(arguments)
            .env("PORTREEVE_CONTROLLER", format!("unix:{}", socket.display()))
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    fn measure(&self, count: u32, span: Duration) -> Vec<Part> {
        // What the last one that became ready still does is no steady state.
        std::thread::park_timeout(Duration::from_secs(3));
        let kinds = ["worker", "shim"].map(|kind| (kind, self.processes(kind)));
        let spent = || -> Duration {
            kinds
                .iter()
                .flat_map(|(_, pids)| pids)
                .map(|pid| on_cpu(*pid))
                .sum()
        };
        let (began, before) = (Instant::now(), spent());
        while let Some(left) = span.checked_sub(began.elapsed()) {
            std::thread::park_timeout(left);
        }
        let percent =
            (spent().saturating_sub(before)).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
        let mut parts: Vec<Part> = kinds
            .iter()
            .filter_map(|(kind, pids)| weight(kind, pids, count))
            .collect();
        parts.push(Part {
            case: format!("{count} workers and shims, time"),
            measured: percent,
            shown: format!("{percent:.2} % of a core"),
            detail: format!("over {} s", span.as_secs()),
            bound: Bound::AtMost(MOST_PERCENT),
        });
        parts
    }

    /// The processes of this site that are `portreeve KIND`.
    fn processes(&self, kind: &str) -> Vec<u32> {
        let folder = self.folder.display().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_it = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.split('\0').nth(1) == Some(kind) && line.contains(&folder)
        };
        pids.filter(is_it).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The namespace's first process is killed with it, and every other with that one.
        _ = self.holder.kill();
        _ = self.holder.wait();
        let began = Instant::now();
        while fs::remove_dir_all(&self.folder).is_err() && began.elapsed() < Duration::from_secs(10)
        {
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

/// The median of what each of them has resident. What it shares, above all the pages of the one binary, counts by
/// its share: a thousand workers do not have a thousand binaries in memory.
fn weight(kind: &str, pids: &[u32], count: u32) -> Option<Part> {
    let read = |name: &str| -> Option<u64> {
        let mut all: Vec<u64> = pids
            .iter()
            .filter_map(|pid| kilobytes(*pid, name))
            .collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    };
    let share = read("Pss:")?;
    let own = read("Private_Dirty:")? + read("Private_Clean:")?;
    Some(Part {
        case: format!("{kind}, {count} of them, resident"),
        measured: share as f64,
        shown: format!("{share} kB"),
        detail: format!(
            "median PSS; RSS {} kB, its alone {own} kB, not of a file {} kB",
            read("Rss:")?,
            read("Anonymous:")?
        ),
        bound: Bound::AtMost(MOST_KB),
    })
}

fn kilobytes(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// How long the process was on a processor.
fn on_cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let spent = text
        .split_ascii_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    Duration::from_nanos(spent.unwrap_or(0))
}
