//! The way in for worker and shim, of which a host has thousands: without the tables of every command and its
//! help, which would stay in the memory of each.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::command::daemon::Shim;
use crate::command::worker::Worker;
use crate::exit::Failure;

/// Runs this process to its end if its arguments are those that agents and workers write; `None`: it is for
/// the usual way, which also explains what is wrong with them.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Option<Result<ExitCode, Failure>> {
    /// More than any of ours.
    const MOST: usize = 6;
    let arguments: Vec<OsString> = arguments.take(MOST).collect();
    let text = |place: usize| arguments.get(place).and_then(|text| text.to_str());
    let folder = || arguments[2].clone().into();
    let done = |ended: Result<(), Failure>| ended.map(|()| ExitCode::SUCCESS);
    let ended = match (text(0)?, text(1)?, text(3), arguments.len()) {
        ("worker", "--folder", None, 3) => Worker::of(folder(), None).run(),
        ("worker", "--folder", Some("--as"), 5) => {
            Worker::of(folder(), Some(text(4)?.parse().ok()?)).run()
        }
        ("shim", "--folder", Some("--run"), 5) => {
            done(Shim::of(folder(), text(4)?.parse().ok()?).run())
        }
        ("shim", "--init", None, 2) => done(Shim::of_namespace().run()),
        _ => return None,
    };
    Some(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_else_goes_the_usual_way() {
        for line in [
            "",
            "worker",
            "worker --help",
            "worker --folder",
            "worker --folder x --as",
            "worker --folder x --as nonsense",
            "worker --folder x --data y",
            "shim --folder x",
            "shim --folder x --run y",
            "shim --folder x --run 1 --more",
            "-v worker --folder x",
        ] {
            let arguments = line.split_ascii_whitespace().map(OsString::from);
            assert!(run(arguments).is_none(), "{line}");
        }
    }
}
