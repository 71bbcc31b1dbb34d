//! One watch from its beginning to its end: what is told, what is written, what runs.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use portreeve_api::stream::{Told, Watch as Stream};
use portreeve_api::{Client, ClientError};
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;
use tokio::time::Instant;

use crate::exit::{Code, Failure};
use crate::listing::{Form, Listing, Surface, Writing};
use crate::meant::meant;
use crate::output::{is_read, tell};
use crate::run::Signals;

use super::super::endpoints::usable;
use super::file::{WholeFile, told};
use super::hook::{Hook, Occasion, Run};
use super::known::{Change, Known};

/// What to do with what is told.
#[derive(Debug)]
pub(super) struct Plan {
    /// Whether more than one service may be watched.
    pub(super) several: bool,
    pub(super) writing: Option<Writing>,
    pub(super) surface: Surface,
    pub(super) file: Option<WholeFile>,
    pub(super) hook: Option<Hook>,
    /// For a hint at what a mistyped name was meant to be.
    pub(super) client: Client,
    pub(super) once: bool,
    pub(super) exec_or_end: bool,
}

/// A watch under way.
pub(super) struct Session {
    plan: Plan,
    stream: Stream,
    known: Known,
    /// The last change that the file does not show yet.
    unwritten: Option<Change>,
    /// How much was told since, without a pause.
    gathered: u32,
    /// Whether the file was written, or found to be right, by this watch.
    wrote: bool,
    /// Why it could not be written at the last try.
    unwritable: Option<String>,
    /// When to try again to write it.
    retry_at: Option<Instant>,
    /// What the command was not run for yet: each service once, in order.
    waiting: Vec<Change>,
    run: Option<Run>,
    told_missing: bool,
}

/// What happens next.
enum Step {
    Told(Result<Told, ClientError>),
    CommandEnded(Result<(), String>),
    Signal(u8),
    /// Nobody reads what is printed any more.
    Unread,
    WriteFile,
}

impl Session {
    /// How soon a file that could not be written is tried again.
    const RETRY: Duration = Duration::from_secs(5);
    /// So much that comes without a pause is written together.
    const TOGETHER: u32 = 1000;
    /// The longest value of a variable: the kernel takes 128 KiB, and nobody looks at so many.
    const MAX_VARIABLE: usize = 64 << 10;

    pub(super) const fn new(plan: Plan, stream: Stream, known: Known) -> Self {
        Self {
            plan,
            stream,
            known,
            unwritten: None,
            gathered: 0,
            wrote: false,
            unwritable: None,
            retry_at: None,
            waiting: Vec::new(),
            run: None,
            told_missing: false,
        }
    }

    /// Goes on until it is told to end, or nobody is left to tell.
    pub(super) async fn run(mut self, mut signals: Signals) -> Result<ExitCode, Failure> {
        loop {
            self.start_command()?;
            if self.is_done() {
                return self.once_outcome().map(|()| ExitCode::SUCCESS);
            }
            match self.step(&mut signals).await {
                Step::Told(told) => {
                    if !self.told(told?).await? {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                Step::CommandEnded(outcome) => {
                    self.run = None;
                    if let Err(how) = outcome {
                        self.command_failed(&how)?;
                    }
                }
                Step::WriteFile => self.write_file()?,
                Step::Unread => return Ok(ExitCode::SUCCESS),
                Step::Signal(number) => {
                    if let Some(run) = &mut self.run {
                        run.end().await;
                    }
                    // To be told to end is how a watch ends; Ctrl-C is told to a shell as usual.
                    let ordered = number == Signals::TERM;
                    return Ok(if ordered { 0 } else { 128 + number }.into());
                }
            }
        }
    }

    async fn step(&mut self, signals: &mut Signals) -> Step {
        let owes = self.unwritten.is_some() && self.retry_at.is_none() && self.known.is_whole();
        if owes && self.plan.file.is_some() {
            // What came together is written once.
            let more = tokio::time::timeout(Duration::ZERO, self.stream.next());
            let more = match self.gathered < Self::TOGETHER {
                true => more.await.ok(),
                false => None,
            };
            self.gathered += 1;
            return more.map_or(Step::WriteFile, Step::Told);
        }
        let run = &mut self.run;
        let ended = async {
            match run {
                Some(run) => run.ended().await,
                None => std::future::pending().await,
            }
        };
        let due = async {
            match self.retry_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let prints = self.plan.file.is_none() && self.plan.hook.is_none();
        let unread = async {
            match prints {
                true => reader_left().await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            number = signals.next() => Step::Signal(number),
            outcome = ended => Step::CommandEnded(outcome),
            () = unread => Step::Unread,
            () = due => Step::WriteFile,
            told = self.stream.next() => Step::Told(told),
        }
    }

    /// Takes what was told; says whether somebody still reads what is printed.
    async fn told(&mut self, told: Told) -> Result<bool, Failure> {
        match &told {
            Told::Away { reason } if self.plan.once => {
                return Err(Failure::new(Code::Unreachable, reason.clone()));
            }
            Told::Away { reason } => {
                tell!("portreeve: {reason}; what was told may be old now, trying again");
            }
            Told::Back => tell!("portreeve: the controller answers again"),
            _ => {}
        }
        let changes = self.known.take(told);
        for change in changes {
            if self.plan.file.is_some() {
                self.unwritten = Some(change);
            } else if self.plan.hook.is_some() {
                self.await_command(change);
            } else if !is_read(&self.printed(&change)?)? {
                return Ok(false);
            }
        }
        if self.known.is_whole() && !std::mem::replace(&mut self.told_missing, true) {
            self.begin().await?;
        }
        Ok(true)
    }

    /// Everything was told for the first time.
    async fn begin(&mut self) -> Result<(), Failure> {
        let missing = self.known.missing();
        if let [first, ..] = missing.as_slice() {
            let names = missing.join(", ");
            let is = if missing.len() == 1 { "is" } else { "are" };
            let message = format!("{names} {is} not there, or not visible to you");
            if self.plan.once {
                return Err(Failure::missing(first, message));
            }
            tell!("portreeve: {message}; waiting");
            if let [only] = missing.as_slice()
                && let Some(name) = meant(&self.plan.client, only).await
            {
                tell!("portreeve: did you mean {name}?");
            }
        }
        if self.unwritten.is_none() {
            // The file is to say what is, also where that is nothing.
            let service = missing.into_iter().next().unwrap_or_default();
            let id = String::new();
            self.unwritten = Some(Change { service, id });
        }
        for listing in self.known.listings() {
            if listing.stale {
                tell!("portreeve: {}", listing.staleness());
            }
            // Not ready is news like any other; a port that is not there will not come.
            match usable(listing) {
                Err(refused) if refused.code() == Code::NoSuchService && !self.plan.once => {
                    tell!("portreeve: {refused}");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let idle = self.run.is_none() && self.waiting.is_empty();
        let written = self.plan.file.is_none() || self.unwritten.is_none();
        self.plan.once && self.told_missing && idle && written
    }

    fn once_outcome(&self) -> Result<(), Failure> {
        let listings = self.known.listings();
        let ready = listings.iter().any(|listing| listing.ready > 0);
        match listings.as_slice() {
            [only] => usable(only),
            [] => Err(Failure::new(
                Code::NoneReady,
                "no service that you may see begins so",
            )),
            _ if !ready => Err(Failure::new(Code::NoneReady, "none of them is ready")),
            _ => Ok(()),
        }
    }

    /// The text of one change, for standard output.
    fn printed(&self, change: &Change) -> Result<String, Failure> {
        let known = self.known.listing(&change.service);
        match &self.plan.writing {
            Some(Writing::Form(Form::Json)) => Ok(self.event(change).line),
            Some(writing) => {
                let none = Listing::none(&change.service);
                let known = known.unwrap_or(&none);
                let mut text = match writing {
                    // Whose row it is would not be told otherwise.
                    Writing::Form(Form::Table) if self.plan.several => {
                        writing.several(&[known], self.plan.surface)?
                    }
                    _ => writing.one(known, self.plan.surface)?,
                };
                // Between two changes; once there is only one.
                if matches!(writing, Writing::Form(_)) && !self.plan.once {
                    text.push('\n');
                }
                Ok(text)
            }
            None => Ok(match known {
                Some(listing) => format!(
                    "{}\t{}/{}\t{}\n",
                    listing.service,
                    listing.ready,
                    listing.desired,
                    listing.authorities().join(" ")
                ),
                None => format!("{}\tremoved\t\n", change.service),
            }),
        }
    }

    fn write_file(&mut self) -> Result<(), Failure> {
        self.retry_at = None;
        self.gathered = 0;
        let (Some(change), Some(file)) = (self.unwritten.take(), &self.plan.file) else {
            return Ok(());
        };
        let text = match self.written() {
            Ok(text) => text,
            Err(refused) if !self.wrote => return Err(refused),
            // Another state may be written again; until then the file stays.
            Err(refused) => {
                tell!("portreeve: {refused}; {} stays", file.path().display());
                return Ok(());
            }
        };
        let replaced = match file.replace(text.as_bytes()) {
            Ok(replaced) => replaced,
            Err(cause) => {
                let cause = told(&cause);
                let message = format!("{} is not written: {cause}", file.path().display());
                if self.plan.once {
                    return Err(Failure::plain(message));
                }
                if self.unwritable.as_ref() != Some(&cause) {
                    tell!("portreeve: {message}; trying again");
                    self.unwritable = Some(cause);
                }
                self.unwritten = Some(change);
                self.retry_at = Some(Instant::now() + Self::RETRY);
                return Ok(());
            }
        };
        if self.unwritable.take().is_some() {
            tell!("portreeve: {} is written", file.path().display());
        }
        // At the start always: the watch before may have ended between the file and the command.
        let news = !std::mem::replace(&mut self.wrote, true) || replaced;
        // Without a service there is nothing to tell it.
        if news && self.plan.hook.is_some() && !change.service.is_empty() {
            self.waiting.clear();
            self.waiting.push(change);
        }
        Ok(())
    }

    fn written(&self) -> Result<String, Failure> {
        let lines = Writing::Form(Form::Lines);
        let writing = self.plan.writing.as_ref().unwrap_or(&lines);
        let listings = self.known.listings();
        if self.plan.several {
            return writing.several(&listings, self.plan.surface);
        }
        let none = Listing::none(&self.known.missing().join(""));
        writing.one(listings.first().unwrap_or(&&none), self.plan.surface)
    }

    fn await_command(&mut self, change: Change) {
        let same = |waits: &&mut Change| waits.service == change.service;
        match self.waiting.iter_mut().find(same) {
            Some(waits) => *waits = change,
            None => self.waiting.push(change),
        }
    }

    /// Runs the command for what waits longest, unless it runs.
    fn start_command(&mut self) -> Result<(), Failure> {
        let Some(hook) = &self.plan.hook else {
            return Ok(());
        };
        while self.run.is_none() && !self.waiting.is_empty() {
            let change = self.waiting.remove(0);
            match hook.start(self.event(&change)) {
                Ok(run) => self.run = Some(run),
                Err(why) => self.command_failed(&why)?,
            }
        }
        Ok(())
    }

    fn command_failed(&self, how: &str) -> Result<(), Failure> {
        if self.plan.exec_or_end || self.plan.once {
            return Err(Failure::plain(how));
        }
        tell!("portreeve: {how}");
        Ok(())
    }

    /// The newest state of the service that changed, for programs.
    fn event(&self, change: &Change) -> Occasion {
        let known = self.known.listing(&change.service);
        let (event, data) = match known {
            Some(listing) => ("endpoints", listing.json().to_owned()),
            None => {
                let gone = serde_json::json!({ "service": change.service });
                ("removed", gone.to_string())
            }
        };
        let id = &change.id;
        let number = |count: Option<u64>| Some(count.unwrap_or(0).to_string());
        let all = known.map(|listing| listing.authorities().join(" "));
        let all = all.unwrap_or_default();
        let file = self.plan.file.as_ref();
        Occasion {
            service: change.service.clone(),
            line: format!("{{\"event\":\"{event}\",\"id\":\"{id}\",\"data\":{data}}}\n"),
            variables: vec![
                ("PORTREEVE_EVENT", Some(event.to_owned())),
                ("PORTREEVE_SERVICE", Some(change.service.clone())),
                ("PORTREEVE_READY", number(known.map(|it| it.ready.into()))),
                (
                    "PORTREEVE_DESIRED",
                    number(known.map(|it| it.desired.into())),
                ),
                ("PORTREEVE_REVISION", number(known.map(|it| it.revision))),
                (
                    "PORTREEVE_ENDPOINTS",
                    Some(all).filter(|all| all.len() <= Self::MAX_VARIABLE),
                ),
                (
                    "PORTREEVE_FILE",
                    file.map(|file| file.path().display().to_string()),
                ),
            ],
        }
    }
}

/// Returns when the other end of standard output is closed; not at all where it has none.
///
/// `watch web | head -1` is to end with head, not at the next change.
async fn reader_left() {
    let watched = std::io::stdout().as_fd().try_clone_to_owned().ok();
    // Unchecked: a socket will do as well, nothing is written through this one, and to make it non-blocking would make
    // standard output so. A file cannot be waited on.
    let watched = watched.and_then(|fd| Sender::from_owned_fd_unchecked(fd).ok());
    match watched {
        Some(pipe) if pipe.ready(Interest::ERROR).await.is_ok() => {}
        _ => std::future::pending().await,
    }
}
