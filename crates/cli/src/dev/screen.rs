//! The live view: a table that is redrawn on a terminal, a line per change in a pipe.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;

use portreeve_api::body::{ReplicaView, ServiceView};

use crate::command::services::{REPLICA_HEADING, ports, replica_rows};
use crate::output;

/// Whether anybody can see what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Yes,
    /// The reader of our pipe, or the terminal, is gone.
    No,
}

/// What was shown last, so that only changes are shown next.
pub(crate) struct Screen {
    terminal: bool,
    /// On a terminal: lines to go up before drawing again.
    drawn: usize,
    /// In a pipe: the last line of each replica.
    lines: BTreeMap<String, String>,
    stopping: bool,
}

impl Screen {
    pub(crate) fn new(addresses: &[String]) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let mut text = format!("portreeve dev answers at {}\n", addresses.join(" and "));
        if terminal {
            text.push_str(
                "In another terminal: portreeve endpoints NAME. Ctrl-C stops everything.\n\n",
            );
        }
        // A reader that is gone is noticed at the first drawing.
        _ = write(&text);
        Self {
            terminal,
            drawn: 0,
            lines: BTreeMap::new(),
            stopping: false,
        }
    }

    /// Says that the end has begun.
    pub(crate) fn stopping(&mut self) {
        self.stopping = true;
        if !self.terminal {
            _ = write("stopping\n");
        }
    }

    /// Shows the services as they are now.
    ///
    /// What cannot be written, to a full disk say, is left out: a service is worth more than the view of it.
    pub(crate) fn draw(&mut self, services: &[ServiceView]) -> Watched {
        if self.terminal {
            self.redraw(services)
        } else {
            self.print_changes(services)
        }
    }

    fn redraw(&mut self, services: &[ServiceView]) -> Watched {
        let rows: Vec<_> = services.iter().flat_map(replica_rows).collect();
        let mut text = output::table(&REPLICA_HEADING, rows, output::terminal_width());
        for service in services {
            for replica in &service.replicas {
                if let Some(reason) = &replica.reason {
                    text.push_str(&format!(
                        "{}/{}: {reason}\n",
                        service.service, replica.replica
                    ));
                }
            }
        }
        if self.stopping {
            text.push_str("stopping: each service is unpublished, signalled, and waited for\n");
        }
        // Up to the first line of the last drawing, then clear to the end.
        let up = match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        };
        self.drawn = wrapped_lines(&text, output::terminal_width());
        write(&format!("{up}{text}"))
    }

    fn print_changes(&mut self, services: &[ServiceView]) -> Watched {
        let mut text = String::new();
        for service in services {
            for replica in &service.replicas {
                let name = format!("{}/{}", service.service, replica.replica);
                let line = describe(replica);
                if self.lines.get(&name) != Some(&line) {
                    text.push_str(&format!("{name} {line}\n"));
                    self.lines.insert(name, line);
                }
            }
        }
        write(&text)
    }
}

fn write(text: &str) -> Watched {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Watched::No,
        Err(cause) => {
            tracing::warn!("the view cannot be written: {cause}");
            Watched::Yes
        }
        Ok(()) => Watched::Yes,
    }
}

/// `ready n1 http=127.0.0.1:20001 restarts=0`, and the reason where there is one.
fn describe(replica: &ReplicaView) -> String {
    let place = match (&replica.host, replica.address) {
        (Some(host), Some(address)) => {
            let addresses: Vec<_> = replica
                .ports
                .iter()
                .map(|(name, numbers)| {
                    format!(
                        "{name}={}",
                        SocketAddr::new(address, numbers.first().number())
                    )
                })
                .collect();
            format!(" {host} {}", addresses.join(" "))
        }
        (Some(host), None) => format!(" {host} {}", ports(replica)),
        _ => String::new(),
    };
    let mut line = format!(
        "{}{place} restarts={}",
        replica.state.replace(' ', "-"),
        replica.restarts
    );
    if let Some(failure) = &replica.last_failure {
        line.push_str(&format!(" last-failure={failure:?}"));
    }
    if let Some(reason) = &replica.reason {
        line.push_str(&format!(" reason={reason:?}"));
    }
    line
}

/// How many lines of the terminal `text` takes, long ones wrapped.
fn wrapped_lines(text: &str, width: Option<u16>) -> usize {
    let width = usize::from(width.unwrap_or(u16::MAX)).max(1);
    text.lines()
        .map(|line| line.chars().count().div_ceil(width).max(1))
        .sum()
}
