//! Rung two: a namespace of process numbers for each run, whose end is the end of everything in it.
//!
//! Its first process is a small one of ours that only reaps. The service is started into it by the shim, which
//! stays its parent and so learns how it ended. The kernel ends the first process only when it has ended and
//! buried every other one, so that a reaped first process proves that nothing of the run is left.
//!
//! The service sees itself as a small number; `/proc` is still that of the host.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use portreeve_api::local::ProcessIdentity;
use rustix::process::WaitOptions;

use crate::process::{self, Stat};

/// The namespace of one run, for the shim that made it.
#[derive(Debug, Default)]
pub(crate) struct Namespace {
    init: Option<ProcessIdentity>,
}

impl Namespace {
    /// From here on what this process starts is in the namespace, this process itself is not.
    pub(super) fn prepare(
        &mut self,
        arguments: &[String],
        env: &[(String, String)],
    ) -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWPID).map_err(|errno| {
            io::Error::new(
                io::Error::from(errno).kind(),
                format!("a namespace of process numbers: {errno}"),
            )
        })?;
        // Reaped with the shim's other children; what is not awaited here is not forgotten.
        let init = Command::new("/proc/self/exe")
            .args(arguments)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        // Our own unreaped child: its number is still its own.
        self.init = Some(ProcessIdentity::of(init.id())?);
        Ok(())
    }

    pub(super) fn kill(&self) {
        if let Some(init) = self.init.as_ref().filter(|init| process::lives(init))
            && let Ok(stat) = Stat::read(init.pid)
            && stat.start_ticks == init.start_ticks
        {
            process::kill(&stat);
        }
    }

    pub(super) fn close_if_unused(&self) {
        let below = process::descendants(std::process::id());
        let is_init = |stat: &Stat| self.init.as_ref().is_some_and(|init| init.pid == stat.pid);
        if below.iter().all(is_init) {
            self.kill();
        }
    }
}

/// Is the first process of a namespace: buries whatever ends there, and never returns while it may live.
///
/// # Errors
///
/// The system's, and [`io::ErrorKind::Unsupported`] for a process that is not the first of a namespace.
pub(crate) fn init() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only the first process of a namespace can be its init; a shim starts it",
        ));
    }
    let children = SigSet::from(Signal::SIGCHLD);
    // The others are the kernel's to keep away: the first process is sent none from inside that it does not handle.
    children.thread_block()?;
    // It holds no folder of the service's.
    _ = std::env::set_current_dir("/");
    _ = fs::write("/proc/self/comm", "portreeve-init");
    loop {
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        children.wait()?;
    }
}
