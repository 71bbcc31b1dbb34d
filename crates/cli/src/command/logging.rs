//! What a daemon writes about its own work, on standard error: for people, or as JSON lines for a collector.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How much a daemon tells, and in which form.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LogOptions {
    /// How log lines are written: text for people, or json, an object a line with timestamp, level, target and fields
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    log_format: LogFormat,
    /// From which level on: error, warn, info, debug or trace; also by part of the program, such as
    /// info,portreeve_controller=debug
    #[arg(
        long,
        value_name = "LEVEL",
        env = "PORTREEVE_LOG",
        default_value = "info"
    )]
    log_level: LogLevel,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What is written and what is not; as the filter is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogLevel(String);

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = EnvFilter::try_new(text);
        read.map(|_| Self(text.to_owned()))
            .map_err(|cause| format!("{cause}; write error, warn, info, debug or trace"))
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LogOptions {
    /// Log lines go to standard error from now on.
    pub(crate) fn begin(&self) {
        let filter = EnvFilter::try_new(&self.log_level.0);
        let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
        match self.log_format {
            LogFormat::Text => text(filter, std::io::stderr),
            LogFormat::Json => json(filter, std::io::stderr),
        }
    }
}

/// Log lines go to standard error; `PORTREEVE_LOG=debug` says more.
pub(crate) fn log_to_stderr() {
    log_by("info", std::io::stderr);
}

/// Log lines go to what `writer` makes, by default from this level on.
pub(crate) fn log_by<W>(level: &str, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_from_env("PORTREEVE_LOG");
    text(filter.unwrap_or_else(|_| EnvFilter::new(level)), writer);
}

fn text<W>(filter: EnvFilter, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_target(false)
        // It would say on standard error that a line is lost, and die where that is full or closed as well.
        .log_internal_errors(false)
        .init();
}

fn json<W>(filter: EnvFilter, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_current_span(false)
        .with_span_list(false)
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_or_a_word_for_each_part() {
        for fine in ["info", "trace", "warn,portreeve_controller=debug", "off"] {
            assert_eq!(fine.parse::<LogLevel>().unwrap().to_string(), fine);
        }
        assert!("portreeve=loud".parse::<LogLevel>().is_err());
    }
}
