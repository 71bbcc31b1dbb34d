//! Removing what jobs left, by a thread of its own: it may take long, and no other replica waits for it.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use portreeve_api::local::ReplicaFolder;
use portreeve_api::removal::remove_folder;
use tracing::warn;

use super::folder;

/// What is to go is moved to here first, so that its place is free at once.
const ASIDE: &str = "removed";

/// Hands over what is to be removed. Dropped, what was handed over is still removed.
#[derive(Debug)]
pub(super) struct Clearing {
    aside: PathBuf,
    tasks: mpsc::Sender<Task>,
}

/// At most one of each kind for each folder.
#[derive(Debug)]
enum Task {
    /// Everything of an ended replica that is not kept.
    Unkept(ReplicaFolder),
    /// A folder with everything in it.
    Whole(PathBuf),
}

impl Clearing {
    /// Begins with what an earlier agent moved aside below `state`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn begin(state: &Path) -> io::Result<Self> {
        let aside = state.join(ASIDE);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&aside)?;
        let (tasks, todo) = mpsc::channel();
        let clear = move || todo.into_iter().for_each(clear);
        std::thread::Builder::new()
            .name("clearing".into())
            .spawn(clear)?;
        let clearing = Self { aside, tasks };
        for left in fs::read_dir(&clearing.aside)? {
            clearing.hand_over(Task::Whole(left?.path()));
        }
        Ok(clearing)
    }

    /// Removes soon what is not kept of a replica that ended.
    pub(super) fn unkept(&self, folder: &ReplicaFolder) {
        self.hand_over(Task::Unkept(folder.clone()));
    }

    /// Moves the folder away at once and removes it soon.
    ///
    /// # Errors
    ///
    /// The system's; the folder is where it was.
    pub(super) fn whole(&self, folder: &Path) -> io::Result<()> {
        /// Others of the same name that could not be removed.
        const MOST: u32 = 1_000;
        let name = folder.file_name().unwrap_or_default();
        for number in 0..MOST {
            let mut place = name.to_owned();
            place.push(format!(".{number}"));
            let place = self.aside.join(place);
            match fs::rename(folder, &place) {
                Ok(()) => {
                    self.hand_over(Task::Whole(place));
                    return Ok(());
                }
                Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
                Err(cause) if cause.kind() == ErrorKind::DirectoryNotEmpty => {}
                Err(cause) => return Err(cause),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    fn hand_over(&self, task: Task) {
        // The thread ends after this.
        _ = self.tasks.send(task);
    }
}

fn clear(task: Task) {
    let (path, cleared) = match &task {
        Task::Unkept(folder) => (folder.path(), folder::clear(folder)),
        Task::Whole(path) => (path.as_path(), remove_folder(path)),
    };
    match cleared {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            // Tried again when it is let go, or by the next agent.
            warn!("{} cannot be cleared: {cause}", path.display());
        }
        _ => {}
    }
}
