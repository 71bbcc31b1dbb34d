//! Worker and shim as one program for the tests, with the arguments of the shipped one.

use std::process::ExitCode;

use portreeve::identity::Run;
use portreeve_api::local::ReplicaFolder;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match words.as_slice() {
        ["worker", "--folder", folder] => portreeve_worker::run(ReplicaFolder::at(*folder)),
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
