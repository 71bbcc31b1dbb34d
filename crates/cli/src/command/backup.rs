//! `backup` and `restore`: everything the controller knows, in one file, and back.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use portreeve::time::WallClock;
use portreeve_api::paths;
use portreeve_controller::{BackupError, BackupHead, Former, Restored, back_up, check_backup};

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::output::{Format, moment, print, print_json, tell};
use crate::places::Places;

/// Reading everything that is stored and packing it may take a while.
const PATIENCE: Duration = Duration::from_secs(120);

/// Write everything the controller knows into a file, as of one moment.
///
/// Asks the running controller, which goes on meanwhile; with --data it reads the directory of one that does not run.
/// `portreeve restore` takes the file, which only its owner can read (0600). For root and the controller's account.
#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// The file to write
    file: PathBuf,
    /// Also the secret that signs the tokens of running replicas: whoever has it can speak for each of them. Without it,
    /// a restore on another machine makes a new one
    #[arg(long)]
    with_secrets: bool,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Read this directory, which no controller uses now, instead of asking one
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How to print what was written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Backup {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let there = self.file.symlink_metadata().is_ok();
        if there && !self.force {
            return Err(is_there(&self.file));
        }
        let folder = match self.file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let failed = |cause: io::Error| Failure::plain(format!("{}: {cause}", self.file.display()));
        // Under another name in the same folder, so that there is never half a backup under this one; whoever finds
        // what a killed one left sees what it was to be.
        let mut begun_name = OsString::from(".");
        begun_name.push(self.file.file_name().unwrap_or_default());
        begun_name.push(".");
        let mut begun = tempfile::Builder::new()
            .prefix(&begun_name)
            .suffix(".part")
            .tempfile_in(folder)
            .map_err(failed)?;
        let head = match &self.data {
            Some(data) => {
                back_up(data, self.with_secrets, now(), begun.as_file_mut()).map_err(refused)?
            }
            None => {
                let path = paths::backup(self.with_secrets);
                let client = connect.client()?;
                let mut download = client.download(&path, "application/gzip", PATIENCE).await?;
                while let Some(piece) = download.piece().await? {
                    begun.write_all(&piece).map_err(failed)?;
                }
                // As it lies there now.
                begun.rewind().map_err(failed)?;
                check_backup(begun.as_file_mut()).map_err(unmade)?
            }
        };
        begun.as_file().sync_all().map_err(failed)?;
        if self.force {
            begun
                .persist(&self.file)
                .map_err(|cause| failed(cause.error))?;
        } else {
            begun
                .persist_noclobber(&self.file)
                .map_err(|cause| match cause.error.kind() {
                    io::ErrorKind::AlreadyExists => is_there(&self.file),
                    _ => failed(cause.error),
                })?;
        }
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)?;
        self.tell(&head)
    }

    fn tell(&self, head: &BackupHead) -> Result<(), Failure> {
        if self.output == Format::Json {
            return print_json(head);
        }
        print(&format!(
            "{}: everything up to commit {}, {}\n",
            self.file.display(),
            head.commits,
            if head.secrets {
                "with the secret that signs tokens: keep it as safe as that"
            } else {
                "without secrets"
            }
        ))
    }
}

/// Make a backup the truth of a controller that does not run.
///
/// The whole file is checked before anything changes. The next controller begins a new epoch, so that every watcher
/// starts anew; hosts tell what lives on them before they get anything new, and services that run go on.
#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The file that `portreeve backup` wrote
    file: PathBuf,
    /// The controller's directory; by default /var/lib/portreeve for root, else the user's state folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Replace the store that is there; it stays beside as portreeve.redb.before-restore
    #[arg(long)]
    force: bool,
    /// How to print what was restored
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Restore {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let data = self.data.unwrap_or_else(|| Places::here().data);
        let file = File::open(&self.file)
            .map_err(|cause| Failure::plain(format!("{}: {cause}", self.file.display())))?;
        let former = if self.force {
            Former::SetAside
        } else {
            Former::Refuse
        };
        let restored = portreeve_controller::restore(&data, file, former).map_err(unrestored)?;
        if restored.new_secret {
            tell!(
                "the backup has no secrets and {} has none: the next controller makes one, and takes word of running \
                 replicas from their agents alone until they are placed anew",
                data.display()
            );
        }
        if restored.kept_former {
            let kept = Restored::FORMER;
            tell!("what was there before is {}", data.join(kept).display());
        }
        if self.output == Format::Json {
            return print_json(&restored.head);
        }
        print(&format!(
            "{} holds {} records up to commit {}, as of {}; start the controller: it begins a new epoch\n",
            data.display(),
            restored.records,
            restored.head.commits,
            moment(restored.head.created)
        ))
    }
}

fn is_there(file: &Path) -> Failure {
    let reason = format!("{} is there already; --force replaces it", file.display());
    Failure::plain(reason)
}

/// A backup that came and is none, such as one that was cut off on its way.
fn unmade(cause: BackupError) -> Failure {
    Failure::plain(format!("no backup was made: {cause}"))
}

fn unrestored(cause: BackupError) -> Failure {
    match cause {
        BackupError::Damaged { .. } => Failure::plain(format!("{cause}; nothing was restored")),
        other => refused(other),
    }
}

fn refused(cause: BackupError) -> Failure {
    match cause {
        BackupError::NoStore { .. } => Failure::new(Code::Usage, cause.to_string()),
        other => Failure::plain(other),
    }
}

fn now() -> WallClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.unwrap_or_default().as_millis();
    WallClock::from_unix_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}
