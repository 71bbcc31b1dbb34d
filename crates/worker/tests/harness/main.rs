//! Worker and shim as one program for the tests, with the arguments of the shipped one.

use std::fmt::{self, Write};
use std::process::ExitCode;

use portreeve::identity::Run;
use portreeve_api::local::ReplicaFolder;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, span};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // The only one in this process.
    _ = tracing::subscriber::set_global_default(Lines);
    let ended = match words.as_slice() {
        ["shim", "--init"] => portreeve_worker::shim::init().map_err(Into::into),
        ["worker", "--folder", folder] => portreeve_worker::run(ReplicaFolder::at(*folder), None),
        ["shim", "--folder", folder, "--run", run] => {
            let run = Run(run.parse().unwrap_or_default());
            portreeve_worker::shim::run(&ReplicaFolder::at(*folder), run).map_err(Into::into)
        }
        _ => Err(anyhow::anyhow!(
            "write: worker --folder DIR, or shim --folder DIR --run N"
        )),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("{cause:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes what the worker logs to standard error, level and message.
struct Lines;

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(event.metadata().level().to_string());
        event.record(&mut message);
        eprintln!("{}", message.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // A string takes everything.
            _ = write!(self.0, " {value:?}");
        }
    }
}
