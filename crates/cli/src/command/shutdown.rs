//! `agent --shutdown`: what a service manager runs before it takes the machine down.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use portreeve_api::attach::Closing;
use tokio::time::{Instant, timeout_at};

use crate::exit::{Code, Failure};
use crate::output::{self, Format};
use crate::run::link::{Answer, Shutdown};

/// Has the agent at `socket` end everything that was placed on this host, and waits until nothing is left.
///
/// # Errors
///
/// No agent answers there, it refuses, or something is left after `patience`; the shutdown goes on then.
pub(crate) async fn run(
    socket: &Path,
    patience: Duration,
    output: Format,
) -> Result<ExitCode, Failure> {
    let deadline = Instant::now() + patience;
    let nobody = |cause| {
        Failure::plain(format!(
            "no agent answers at {}: {cause}; nothing was stopped. Name its socket with --socket",
            socket.display()
        ))
    };
    let begun = timeout_at(deadline, Shutdown::begin(socket)).await;
    let mut shutdown = begun
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(nobody)?;
    let mut last: Option<Closing> = None;
    loop {
        match timeout_at(deadline, shutdown.next()).await {
            Ok(Ok(Answer::Closing(now))) => {
                if last.replace(now) != Some(now) && output == Format::Table {
                    output::print(&format!("{}\n", words(now)))?;
                }
            }
            Ok(Ok(Answer::Refused(problem))) => {
                return Err(Failure::new(Code::NotAllowed, problem.detail));
            }
            // The agent hangs up when it is done.
            Ok(Err(_)) if last.is_some_and(|it| it.is_done()) => break,
            Ok(Err(cause)) => {
                return Err(Failure::plain(format!(
                    "the agent went away while it ended the replicas of this host: {cause}; the next agent finds what is left"
                )));
            }
            Err(_) => {
                let left = last.map_or_else(|| "the agent said nothing".to_owned(), words);
                return Err(Failure::new(
                    Code::Timeout,
                    format!("after {} s: {left}; the agent goes on", patience.as_secs()),
                ));
            }
        }
    }
    if output == Format::Json {
        output::print_json(&last)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn words(now: Closing) -> String {
    let Closing {
        running,
        untold,
        attached,
    } = now;
    let mut words = match (running, untold) {
        (0, 0) => "nothing that was placed here runs any more".to_owned(),
        (0, untold) => format!("{} ended; the controller is told of it", replicas(untold)),
        (running, _) => format!("{} to end", replicas(running)),
    };
    if attached > 0 {
        words.push_str(&format!(
            "; {} inside jobs of another scheduler, which ends them",
            replicas(attached)
        ));
    }
    words
}

fn replicas(count: usize) -> String {
    match count {
        1 => "1 replica".to_owned(),
        many => format!("{many} replicas"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_what_is_left_and_whose_it_is() {
        let now = |running, untold, attached| {
            words(Closing {
                running,
                untold,
                attached,
            })
        };
        assert_eq!(now(3, 1, 0), "3 replicas to end");
        assert_eq!(
            now(0, 1, 0),
            "1 replica ended; the controller is told of it"
        );
        assert_eq!(
            now(0, 0, 2),
            "nothing that was placed here runs any more; 2 replicas inside jobs of another scheduler, which ends them"
        );
    }
}
