//! The live view: a table that is redrawn on a terminal, a line per change in a pipe.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;

use portreeve_api::body::{ReplicaView, ServiceView};

use crate::command::services::{REPLICA_HEADING, ports, reasons, replica_rows};
use crate::output;
use crate::places;

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
    /// On a terminal: the last picture, which the next one is drawn over.
    drawn: String,
    /// In a pipe: the last line of each replica.
    lines: BTreeMap<String, String>,
    stopping: bool,
}

impl Screen {
    pub(crate) fn new(addresses: &[String]) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let mut text = answers_at(addresses, output::terminal_width());
        if terminal {
            text.push_str(&format!(
                "In another terminal: {}portreeve endpoints NAME. Ctrl-C stops everything.\n\n",
                naming(addresses)
            ));
        }
        // A reader that is gone is noticed at the first drawing.
        _ = write(&text);
        Self {
            terminal,
            drawn: String::new(),
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
        let size = output::terminal_size();
        let text = picture(services, self.stopping, size);
        // Up to the first line of the last picture as it stands in the terminal of now, then clear to the end. From the
        // first column on: the terminal echoes Ctrl-C as two characters where the cursor stands.
        let width = size.map(|(width, _)| width);
        let up = match wrapped_lines(&self.drawn, width) {
            0 => String::new(),
            lines => format!("\r\x1b[{lines}A\x1b[J"),
        };
        self.drawn.clone_from(&text);
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
                    let own = name
                        .parse()
                        .ok()
                        .and_then(|name| replica.addresses.get(&name));
                    let address = own.copied().unwrap_or(address);
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

/// One line where it fits, else one address a line.
fn answers_at(addresses: &[String], width: Option<u16>) -> String {
    let line = format!("portreeve dev answers at {}\n", addresses.join(" and "));
    if wrapped_lines(&line, width) == 1 {
        line
    } else {
        format!("portreeve dev answers at {}\n", addresses.join("\n  and "))
    }
}

/// What another terminal must know first: nothing where the socket is the one that commands look for.
fn naming(addresses: &[String]) -> String {
    let usual = places::usual_targets();
    let found = |address: &&String| usual.iter().any(|it| it.to_string() == **address);
    match addresses.first().filter(|address| !found(address)) {
        Some(address) => format!("export PORTREEVE_CONTROLLER={address}, then "),
        None => String::new(),
    }
}

/// The table, the reasons below it and how the end stands; never more than the terminal holds, since what has
/// scrolled out of it cannot be drawn over.
fn picture(services: &[ServiceView], stopping: bool, size: Option<(u16, u16)>) -> String {
    let width = size.map(|(width, _)| width);
    let table = table(services, width);
    let mut lines: Vec<String> = table.lines().map(|line| cut(line, width)).collect();
    for service in services {
        lines.extend(reasons(service).lines().map(str::to_owned));
    }
    let living = |service: &ServiceView| {
        let mut states = service.replicas.iter().map(|it| it.job_state.as_str());
        states.any(|state| matches!(state, "PEND" | "RUN"))
    };
    let end = match (stopping, services.iter().any(living)) {
        (false, _) => None,
        (true, true) => Some("stopping: each service is unpublished, signalled, and waited for"),
        (true, false) => Some("stopped: no service runs any more"),
    };
    if let Some((_, height)) = size {
        // One line for the cursor, one for what is left out, and the last word.
        let room = usize::from(height).saturating_sub(2 + usize::from(end.is_some()));
        shorten(&mut lines, room, width);
    }
    lines.extend(end.map(str::to_owned));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The table, without the last failures where those do not fit; the reasons below tell of most of them.
fn table(services: &[ServiceView], width: Option<u16>) -> String {
    let mut rows: Vec<_> = services.iter().flat_map(replica_rows).collect();
    let whole = output::table(&REPLICA_HEADING, rows.clone(), width);
    let fits = |line: &str| wrapped_lines(line, width) == 1;
    if whole.lines().all(fits) {
        return whole;
    }
    let columns = REPLICA_HEADING.len() - 1;
    for row in &mut rows {
        row.truncate(columns);
    }
    output::table(&REPLICA_HEADING[..columns], rows, width)
}

/// Leaves what takes at most `room` lines of the terminal, and says how much is left out.
fn shorten(lines: &mut Vec<String>, room: usize, width: Option<u16>) {
    let mut taken = 0;
    let fit = lines.iter().take_while(|line| {
        taken += wrapped_lines(line, width);
        taken <= room
    });
    let fit = fit.count();
    let left = lines.len() - fit;
    if left > 0 {
        lines.truncate(fit);
        lines.push(format!("… {left} more lines: `portreeve services`"));
    }
}

/// The part of a line that one line of the terminal holds.
fn cut(line: &str, width: Option<u16>) -> String {
    let width = usize::from(width.unwrap_or(u16::MAX));
    line.chars().take(width).collect()
}

/// How many lines of the terminal `text` takes, long ones wrapped.
fn wrapped_lines(text: &str, width: Option<u16>) -> usize {
    let width = usize::from(width.unwrap_or(u16::MAX)).max(1);
    text.lines()
        .map(|line| line.chars().count().div_ceil(width).max(1))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> Vec<String> {
        (0..count).map(|line| format!("line {line}")).collect()
    }

    #[test]
    fn a_picture_never_takes_more_lines_than_the_terminal_holds() {
        let mut all = lines(10);
        shorten(&mut all, 10, Some(80));
        assert_eq!(all, lines(10));
        shorten(&mut all, 3, Some(80));
        assert_eq!(
            all,
            [
                "line 0",
                "line 1",
                "line 2",
                "… 7 more lines: `portreeve services`"
            ]
        );
        // A line that wraps takes as many as it needs.
        let mut long = vec!["x".repeat(25), "y".to_owned()];
        shorten(&mut long, 3, Some(10));
        assert_eq!(long.len(), 2);
        assert_eq!(long[0].len(), 25);
        assert!(long[1].starts_with('…'));
    }

    #[test]
    fn addresses_that_do_not_fit_one_line_have_one_each() {
        let addresses = [
            "unix:/run/x.sock".to_owned(),
            "http://[::1]:7373".to_owned(),
        ];
        let line = "portreeve dev answers at unix:/run/x.sock and http://[::1]:7373\n";
        assert_eq!(answers_at(&addresses, None), line);
        assert_eq!(answers_at(&addresses, Some(80)), line);
        assert_eq!(
            answers_at(&addresses, Some(60)),
            "portreeve dev answers at unix:/run/x.sock\n  and http://[::1]:7373\n"
        );
    }
}
