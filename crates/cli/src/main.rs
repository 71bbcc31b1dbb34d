//! The `portreeve` binary: every command. See `portreeve --help`.
#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "they panic where nobody reads: print and tell of `output` do not"
)]

mod command;
mod config;
mod connect;
mod dev;
mod exit;
mod hello;
mod kept_token;
mod lean;
mod listing;
mod look;
mod meant;
mod names;
mod output;
mod places;
mod run;
mod size;
mod span;
mod supervised;

use std::process::ExitCode;

fn main() -> ExitCode {
    // What a parent blocked would never be heard: neither Ctrl-C nor the TERM of a scheduler. Nothing is refused here
    // but an invalid argument.
    _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    let ended = lean::run(std::env::args_os().skip(1))
        .unwrap_or_else(|| config::cli(std::env::args_os())?.run());
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
