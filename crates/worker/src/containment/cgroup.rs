//! Rung one: a control group of version 2 for each run, with a child for the probes that are commands.
//!
//! `cgroup.kill` reaches every process of the group at once, whatever it forks meanwhile, and `populated 0` says
//! that none is left. Nothing needs a controller, so a hybrid mount without any will do.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::supervision::ProbeKind;
use portreeve_api::containment::Containment;

use super::{about, enter, from_inside, make, run_group};

/// The child group of the probes that are commands; each kind has one of its own in it, since several run at once.
pub(crate) const PROBE: &str = "probe";

/// The group of one run.
#[derive(Debug)]
pub(crate) struct RunGroup {
    path: PathBuf,
    /// Where the shim is when it is not inside.
    home: PathBuf,
    events: Option<File>,
    /// The shim is inside and could not leave: killing the group would end the shim before it has told anything.
    inside: bool,
}

impl RunGroup {
    pub(super) fn of(replica: &Path, run: Run) -> Self {
        let path = run_group(replica, run);
        Self {
            events: File::open(path.join("cgroup.events")).ok(),
            path,
            home: replica.join(Containment::WORKER),
            inside: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn prepare(&mut self) -> io::Result<()> {
        let prepared = || {
            // The agent has moved the worker, and the shim was started by it; one that was not moves itself.
            enter(&self.home)?;
            make(&self.path)?;
            File::open(self.path.join("cgroup.events"))
        };
        self.events = Some(prepared().map_err(|cause| about(&self.path, &cause))?);
        Ok(())
    }

    pub(super) fn start<T>(&mut self, start: impl FnOnce() -> T) -> io::Result<T> {
        let (started, left) = from_inside(&self.path, &self.home, start)
            .map_err(|cause| about(&self.path, &cause))?;
        self.inside = left.is_err();
        Ok(started)
    }

    pub(super) fn kill(&mut self) {
        if self.inside {
            self.inside = enter(&self.home).is_err();
        }
        if !self.inside {
            // Without the file nothing is inside; what else may fail, the walk tries.
            _ = fs::write(self.path.join("cgroup.kill"), "1");
        }
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        match &self.events {
            Some(events) => unpopulated(events),
            None => match File::open(self.path.join("cgroup.events")) {
                Ok(events) => unpopulated(&events),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(true),
                Err(cause) => Err(cause),
            },
        }
    }

    pub(super) fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }
}

/// The group of a run's probes of one kind: each is started inside and ended whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeGroup {
    path: PathBuf,
    home: PathBuf,
}

impl ProbeGroup {
    /// Below the group of the run.
    pub(crate) fn of(run: &Path, kind: ProbeKind) -> Option<Self> {
        Some(Self {
            path: run.join(PROBE).join(kind.to_string()),
            home: run.parent()?.join(Containment::WORKER),
        })
    }

    /// Does `start` so that what it starts is inside from its first instruction. Where that cannot be, it is done
    /// all the same: a probe is also known by its mark.
    ///
    /// The run's group must not be killed by another process meanwhile: the worker would end with it. It is not,
    /// because the worker gives up its probes before it has the run killed.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> T) -> T {
        let all = self.path.parent().unwrap_or(&self.path);
        let ready = make(all)
            .and_then(|()| make(&self.path))
            .and_then(|()| enter(&self.path));
        let started = start();
        if ready.is_ok()
            && let Err(cause) = enter(&self.home)
        {
            tracing::error!("the worker cannot leave the group of its probes: {cause}");
        }
        started
    }

    /// Kills everything inside.
    pub(crate) fn kill(&self) {
        // Not while we could not leave it.
        if !fs::read_to_string("/proc/self/cgroup").is_ok_and(|own| own.contains("/probe/")) {
            _ = fs::write(self.path.join("cgroup.kill"), "1");
        }
    }

    /// Kills what is inside until nothing is; the timeout of the check that waits bounds it.
    pub(crate) async fn emptied(&self) {
        while !self.is_empty() {
            self.kill();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Whether nothing is inside; unknown counts as such, for there are other ways to know.
    pub(crate) fn is_empty(&self) -> bool {
        File::open(self.path.join("cgroup.events"))
            .and_then(|events| unpopulated(&events))
            .unwrap_or(true)
    }
}

fn unpopulated(events: &File) -> io::Result<bool> {
    let mut text = [0; 256];
    match events.read_at(&mut text, 0) {
        Ok(length) => {
            let text = String::from_utf8_lossy(&text[..length]);
            match text
                .lines()
                .find_map(|line| line.strip_prefix("populated "))
            {
                Some(populated) => Ok(populated.trim() == "0"),
                None => Err(io::ErrorKind::InvalidData.into()),
            }
        }
        // The group was removed, which only an empty one can be.
        Err(cause) if cause.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32) => Ok(true),
        Err(cause) => Err(cause),
    }
}
