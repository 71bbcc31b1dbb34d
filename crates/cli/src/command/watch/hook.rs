//! The command that is run at a change: one at a time, bounded, with the change on standard input and in variables.

use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use crate::output::tell;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use portreeve::time::Spelled;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

/// A command of the user's, as a shell reads it.
#[derive(Debug)]
pub(super) struct Hook {
    command: String,
    /// One run may take so long.
    most: Duration,
}

/// What one run is told.
#[derive(Debug)]
pub(super) struct Occasion {
    /// The service.
    pub(super) service: String,
    /// For standard input: one line of JSON.
    pub(super) line: String,
    /// Variables beside those of the watcher. `None` takes a variable away.
    pub(super) variables: Vec<(&'static str, Option<String>)>,
}

/// A run under way. Dropped, it is killed with all it started.
pub(super) struct Run {
    group: Pid,
    /// What it is called in messages.
    service: String,
    /// `None` once it ended.
    attended: Option<Attended>,
}

/// Ends as the run does.
type Attended = Pin<Box<dyn Future<Output = Result<(), String>>>>;

impl Hook {
    /// Between the order to end and the kill.
    const END_GRACE: Duration = Duration::from_secs(5);

    pub(super) const fn new(command: String, most: Duration) -> Self {
        Self { command, most }
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// Why it could not be started.
    pub(super) fn start(&self, occasion: Occasion) -> Result<Run, String> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &self.command])
            .stdin(Stdio::piped())
            // So that all it starts can be ended with it. Ctrl-C reaches the watcher, which ends it.
            .process_group(0);
        for (name, value) in &occasion.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let refused = |cause: &dyn std::fmt::Display| {
            format!(
                "the command for {} did not start: {cause}",
                occasion.service
            )
        };
        let child = command.spawn().map_err(|cause| refused(&cause))?;
        let number = child.id().and_then(|number| i32::try_from(number).ok());
        let group = Pid::from_raw(number.ok_or_else(|| refused(&"it has no number"))?);
        let service = occasion.service.clone();
        let attended = attend(child, group, occasion, self.most);
        Ok(Run {
            group,
            service,
            attended: Some(Box::pin(attended)),
        })
    }
}

impl Run {
    /// Waits for its end; what to tell if that is no success. Dropping the call loses nothing.
    ///
    /// # Errors
    ///
    /// One sentence that says how it ended.
    pub(super) async fn ended(&mut self) -> Result<(), String> {
        let Some(attended) = &mut self.attended else {
            return Ok(());
        };
        let outcome = attended.await;
        self.attended = None;
        outcome
    }

    /// Ends it, by force after a while.
    pub(super) async fn end(&mut self) {
        if self.attended.is_none() {
            return;
        }
        // What is gone already needs no signal.
        _ = killpg(self.group, Signal::SIGTERM);
        let ended = tokio::time::timeout(Hook::END_GRACE, self.ended()).await;
        if ended.is_err() {
            tell!(
                "portreeve: the command for {} goes on after TERM and is killed",
                self.service
            );
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.attended.is_some() {
            _ = killpg(self.group, Signal::SIGKILL);
        }
    }
}

async fn attend(
    mut child: Child,
    group: Pid,
    occasion: Occasion,
    most: Duration,
) -> Result<(), String> {
    let service = &occasion.service;
    let input = child.stdin.take();
    let feed = async {
        if let Some(mut input) = input {
            // A command need not read what it is told.
            _ = input.write_all(occasion.line.as_bytes()).await;
        }
        // Its end is closed now; what counts is the end of the command.
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        status = child.wait() => Some(status),
        () = feed => None,
        () = tokio::time::sleep(most) => None,
    };
    match ended {
        Some(Ok(status)) if status.success() => Ok(()),
        Some(Ok(status)) => Err(format!(
            "the command for {service} ended with {}",
            spelled(status)
        )),
        Some(Err(cause)) => Err(format!("the command for {service} is lost: {cause}")),
        None => {
            _ = killpg(group, Signal::SIGTERM);
            if tokio::time::timeout(Hook::END_GRACE, child.wait())
                .await
                .is_err()
            {
                _ = killpg(group, Signal::SIGKILL);
                _ = child.wait().await;
            }
            let most = Spelled(most);
            Err(format!(
                "the command for {service} took longer than {most} and was ended"
            ))
        }
    }
}

fn spelled(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn outcome(command: &str, most: Duration, line: &str) -> Result<(), String> {
        let occasion = Occasion {
            service: "web.a".to_owned(),
            line: line.to_owned(),
            variables: vec![
                ("PORTREEVE_SERVICE", Some("web.a".to_owned())),
                ("PORTREEVE_FILE", None),
            ],
        };
        let mut run = Hook::new(command.to_owned(), most).start(occasion).unwrap();
        run.ended().await
    }

    #[tokio::test]
    async fn a_command_reads_the_change_and_its_failure_is_told() {
        let minute = Duration::from_secs(60);
        let check = r#"read line && test "$line" = '{"a":1}' && test "$PORTREEVE_SERVICE" = web.a"#;
        assert_eq!(outcome(check, minute, "{\"a\":1}\n").await, Ok(()));
        assert_eq!(
            outcome("exit 3", minute, "x").await.unwrap_err(),
            "the command for web.a ended with code 3"
        );
        assert_eq!(
            outcome("kill -9 $$", minute, "x").await.unwrap_err(),
            "the command for web.a ended with signal 9"
        );
    }

    #[tokio::test]
    async fn a_command_that_reads_nothing_is_no_failure_however_much_it_is_told() {
        let much = "x".repeat(1 << 20);
        assert_eq!(
            outcome("true", Duration::from_secs(60), &much).await,
            Ok(())
        );
        // What it leaves behind holds its standard input open and reads nothing.
        let leaves = "sleep 20 </dev/stdin & exec true";
        let before = tokio::time::Instant::now();
        assert_eq!(
            outcome(leaves, Duration::from_secs(60), &much).await,
            Ok(())
        );
        assert!(before.elapsed() < Duration::from_secs(15));
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let command = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let refused = outcome(&command, Duration::from_millis(300), "x").await;
        assert_eq!(
            refused.unwrap_err(),
            "the command for web.a took longer than 300ms and was ended"
        );
        let pid: i32 = std::fs::read_to_string(&file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        for _ in 0..500 {
            if gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{pid} lives on");
    }
}
