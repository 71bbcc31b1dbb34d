//! Jobs in strange places: other namespaces, no room for files, outputs that nobody reads, huge environments.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::world::{eventually, kill, names_in};

use super::{Job, POOL, Site, hello, port, shell};

/// Whether nothing of a job is left in this folder.
fn is_clean(folder: &std::path::Path) -> bool {
    let left = names_in(folder);
    !left.iter().any(|it| it.starts_with("portreeve-run"))
}

#[test]
fn a_job_in_a_process_namespace_of_its_own_is_served_and_its_end_is_seen() {
    let Some(site) = Site::new(POOL) else { return };
    let own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let mut job = site.job_through("a", &own, &hello(&[]), |_| {});
    let first = site.ready("web", 0);
    assert!(!site.is_foreign(port(&first)));
    // Orders reach it.
    site.world.ok(&["restart", "web"]);
    site.replica_when("web", 0, "restarted", |it| {
        it["ready"] == true && it["user_restarts"] == 1
    });
    job.signal("KILL");
    job.ended();
    let ended = site.replica_when("web", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(site.others(), Vec::<String>::new(), "{ended:#}");
    assert_eq!(site.held(), 0);
}

#[test]
fn a_job_without_a_place_for_its_files_says_so_and_takes_no_port() {
    let Some(site) = Site::new(POOL) else { return };
    let file = site.world.profile("file", "");
    for (name, place) in [
        ("a", "/nowhere/tmp"),
        ("b", file.as_str()),
        ("c", "/proc/self"),
    ] {
        let mut job = site.job_in(name, &hello(&[]), &[("TMPDIR", place)]);
        assert_eq!(job.ended(), Some(125), "{}", job.stderr());
        let said = job.stderr();
        assert!(said.contains(place) && said.contains("TMPDIR"), "{said}");
    }
    assert_eq!(site.held(), 0);
    let services = site.world.json(&["services"]);
    assert_eq!(services["services"].as_array().map(Vec::len), Some(0));
}

/// A folder on a disk of its own with so much room; `None` where this account may not mount one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn new(site: &Site, size: &str) -> Option<Self> {
        let path = site.world.path("small");
        std::fs::create_dir(&path).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(&path)
            .status();
        mounted.unwrap().success().then_some(Self(path))
    }

    fn fill(&self) {
        let full = std::fs::write(self.0.join("filler"), vec![1_u8; 16 << 20]);
        assert!(full.is_err(), "the disk is larger than it shall be");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_before_the_start_is_our_failure_and_leaves_no_port() {
    let Some(site) = Site::new(POOL) else { return };
    let Some(disk) = SmallDisk::new(&site, "64k") else {
        eprintln!("skipped: needs to mount a tmpfs");
        return;
    };
    disk.fill();
    let place = disk.0.display().to_string();
    let mut job = site.job_in("a", &hello(&[]), &[("TMPDIR", &place)]);
    assert_eq!(job.ended(), Some(125), "{}", job.stderr());
    assert!(job.stderr().contains("space"), "{}", job.stderr());
    assert!(eventually(|| site.held() == 0));
    assert_eq!(site.others(), Vec::<String>::new());
    assert!(is_clean(&disk.0));
}

#[test]
fn a_disk_that_fills_up_later_disturbs_neither_the_service_nor_its_stop() {
    let Some(site) = Site::new(POOL) else { return };
    let Some(disk) = SmallDisk::new(&site, "2m") else {
        eprintln!("skipped: needs to mount a tmpfs");
        return;
    };
    let place = disk.0.display().to_string();
    let mut job = site.job_in("a", &hello(&[]), &[("TMPDIR", &place)]);
    let before = site.ready("web", 0);
    disk.fill();
    let address = format!("http://127.0.0.1:{}/", port(&before));
    assert!(site.world.curl(&[&address]).contains("hello"));
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    let ended = site.replica_when("web", 0, "ended", |it| it["job_state"] != "RUN");
    assert_eq!((&ended["state"], site.held()), (&"stopped".into(), 0));
    assert_eq!(site.others(), Vec::<String>::new());
    assert!(is_clean(&disk.0));
}

#[test]
fn an_output_whose_reader_is_gone_does_not_end_a_quiet_service() {
    let Some(site) = Site::new(POOL) else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut job = site.job_with("a", &hello(&["--kill-wait", "1s"]), |command| {
        command
            .stdout(writer.try_clone().unwrap())
            .stderr(writer.try_clone().unwrap());
    });
    drop(writer);
    site.ready("web", 0);
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0));
    assert!(eventually(|| site.held() == 0));
}

#[test]
fn an_output_that_nobody_reads_keeps_no_job_from_its_stop() {
    let Some(site) = Site::new(POOL) else { return };
    let (mut reader, writer) = std::io::pipe().unwrap();
    // Full before anything is said.
    let full = Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "count=64", "oflag=nonblock"])
        .stdout(writer.try_clone().unwrap())
        .stderr(Stdio::null())
        .status();
    assert!(!full.unwrap().success());
    // The flag was of the pipe, not of the program: blocking again for who comes next.
    nix::fcntl::fcntl(
        &writer,
        nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()),
    )
    .unwrap();
    let mut job: Job<'_> = site.job_with("a", &hello(&["--kill-wait", "1s"]), |command| {
        command.stderr(writer.try_clone().unwrap());
    });
    drop(writer);
    site.ready("web", 0);
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0));
    assert!(eventually(|| site.held() == 0));
    let mut filling = Vec::new();
    reader.read_to_end(&mut filling).unwrap();
    assert!(filling.starts_with(&[0; 4096]));
}

#[test]
fn a_huge_environment_reaches_the_service_as_it_is() {
    let Some(site) = Site::new(POOL) else { return };
    let script = "env | grep -c '^NOISE_'; echo $NOISE_4999 $(printf %s \"$LONG\" | wc -c)";
    let options = ["--name", "web", "--restart", "never"];
    let mut job = site.job_with("a", &shell(&options, script), |command| {
        for number in 0..5000 {
            command.env(format!("NOISE_{number}"), format!("value {number}"));
        }
        command.env("LONG", "x".repeat(100_000));
        command.env("NO_TEXT", OsString::from_vec(vec![0xff, 0xfe]));
        command.env(OsString::from_vec(b"NO\xffNAME".to_vec()), "x");
    });
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
    assert_eq!(job.stdout(), "5000\nvalue 4999 100000\n");
}

#[test]
fn a_suspended_job_keeps_its_replica_and_goes_on_as_if_nothing_had_been() {
    let Some(site) = Site::new(POOL) else { return };
    let liveness = [
        "--set",
        "liveness={ tcp = {}, interval = \"200ms\", timeout = \"200ms\", failure_threshold = 2 }",
    ];
    let mut job = site.job("a", &hello(&liveness));
    let before = site.ready("web", 0);
    let all: Vec<i32> = site.jobs_processes();
    all.iter().for_each(|pid| kill(*pid, "STOP"));
    // Long enough for several probes to have failed.
    let since = Instant::now();
    assert!(eventually(|| since.elapsed() > Duration::from_secs(2)));
    // As a scheduler does: everything of the job, in any order.
    all.iter().for_each(|pid| kill(*pid, "CONT"));
    let address = format!("http://127.0.0.1:{}/", port(&before));
    assert!(site.world.curl(&[&address]).contains("hello"));
    site.world.ok(&["restart", "web"]);
    let after = site.replica_when("web", 0, "restarted", |it| {
        it["ready"] == true && it["user_restarts"] == 1
    });
    assert_eq!(after["restarts"], 0, "{after:#}");
    job.signal("TERM");
    assert_eq!(job.ended(), Some(0), "{}", job.stderr());
}
