//! `portreeve shim`: the parent of a process.

use std::path::PathBuf;

use clap::Args;
use portreeve::identity::Run;
use portreeve_api::local::ReplicaFolder;

use crate::exit::Failure;

/// Hold one process of a replica.
#[derive(Args, Debug)]
pub(crate) struct Shim {
    /// The replica's folder
    #[arg(long, value_name = "DIR", required_unless_present = "init")]
    folder: Option<PathBuf>,
    /// Which start
    #[arg(long, default_value_t)]
    run: u32,
    /// Be the first process of a run's namespace of process numbers, and only reap
    #[arg(long, conflicts_with_all = ["folder", "run"])]
    init: bool,
}

impl Shim {
    pub(crate) const fn of_namespace() -> Self {
        Self {
            folder: None,
            run: 0,
            init: true,
        }
    }

    pub(crate) const fn of(folder: PathBuf, run: u32) -> Self {
        Self {
            folder: Some(folder),
            run,
            init: false,
        }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let ended = match self.folder {
            Some(folder) => portreeve_worker::shim::run(&ReplicaFolder::at(folder), Run(self.run)),
            None => portreeve_worker::shim::init(),
        };
        ended.map_err(Failure::plain)
    }
}
