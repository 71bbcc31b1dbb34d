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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    #[ignore = "is the first process of another test's namespace"]
    fn a_first_process() {
        if std::process::id() == 1 {
            init().unwrap();
        }
    }

    #[test]
    fn the_end_of_the_first_process_alone_is_the_end_of_everything_inside() {
        if let Err(refused) = portreeve_api::containment::Rung::PidNamespace.possible() {
            let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL");
            assert!(!required.is_ok_and(|value| value == "1"), "{refused}");
            eprintln!("skipped: needs a namespace of process numbers: {refused}");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("children");
        // A session of its own, an empty environment, TERM ignored, and no living parent.
        let line = format!(
            "env -i setsid sh -c '(trap \"\" TERM; read me rest < /proc/self/stat; echo $me > {}; exec sleep 1000) &'; \
             exec sleep 1000",
            script.display()
        );
        let until = |what: &str, condition: &mut dyn FnMut() -> bool| {
            let begun = Instant::now();
            while !condition() {
                assert!(begun.elapsed() < Duration::from_secs(20), "never {what}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // Only what this thread starts is inside from here on.
        let inside = std::thread::spawn(move || {
            let mut namespace = Namespace::default();
            let name = "containment::pid_namespace::tests::a_first_process";
            let arguments = ["--exact", name, "--ignored"].map(str::to_owned);
            namespace.prepare(&arguments, &[]).unwrap();
            let service = Command::new("sh").args(["-c", &line]).spawn().unwrap();
            (namespace, service)
        });
        let (namespace, mut service) = inside.join().unwrap();
        let mut orphan = None;
        until("was there", &mut || {
            let text = fs::read_to_string(&script).unwrap_or_default();
            orphan = text.trim().parse::<u32>().ok();
            orphan.is_some()
        });
        let orphan = Stat::read(orphan.unwrap()).unwrap();
        namespace.kill();
        let ended = service.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&ended),
            Some(9)
        );
        let init = namespace.init.unwrap();
        until("ended", &mut || !process::lives(&init));
        // No walk and no mark: it went with the first process.
        let now = Stat::read(orphan.pid);
        assert!(now.map_or(true, |now| now.start_ticks != orphan.start_ticks
            || now.is_dead()));
    }
}
