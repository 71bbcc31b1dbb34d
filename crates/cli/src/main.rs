//! The `portreeve` binary: every command. See `portreeve --help`.

mod command;
mod connect;
mod dev;
mod exit;
mod hello;
mod names;
mod output;
mod places;
mod run;
mod span;

use std::process::ExitCode;

use clap::Parser;

use command::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
