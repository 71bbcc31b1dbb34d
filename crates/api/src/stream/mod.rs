//! Watching services: what changes, told once each, over as many connections as it takes.
//!
//! The controller tells states, not steps: a watcher that was away or slow gets the newest set of each service and may
//! miss those between. A [`Watch`] reconnects by itself and goes on behind the last event it had, so that nothing that
//! still holds is missed.

mod events;

use std::collections::VecDeque;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::body::Endpoint;
use crate::client::{Client, ClientError};
use crate::flow::Flow;

use events::{Item, Reader};

#[cfg(fuzzing)]
pub(crate) use events::read_pieces;

/// The data of an `endpoints` event: the whole set of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSet {
    /// The full name.
    pub service: String,
    /// The set's number.
    pub revision: u64,
    /// The number of the set that this watcher had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// How many replicas there shall be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<u32>,
    /// How many are listed.
    pub ready: u32,
    /// Whether the hosts have not confirmed it since the controller started.
    #[serde(default)]
    pub stale: bool,
    /// The endpoints, by index.
    pub endpoints: Vec<Endpoint>,
}

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// The set of one service as it is now; what was known of it no longer holds.
    Set {
        /// The event's `epoch.revision`.
        id: String,
        /// The set.
        set: Box<ServiceSet>,
        /// The same as the controller wrote it: JSON, an object, with what a later controller may know beside.
        text: String,
    },
    /// A service is gone, or no longer visible.
    Removed {
        /// The event's `epoch.revision`.
        id: String,
        /// Which.
        service: String,
    },
    /// Everything up to this revision was told. Comes behind the first sets, and again and again.
    CaughtUp {
        /// The event's `epoch.revision`.
        id: String,
        /// The number.
        revision: u64,
        /// Whether of some hosts only that is known which they told before the controller started.
        stale: bool,
    },
    /// Nothing that was told holds any more: the sets that do follow, and then [`Told::CaughtUp`].
    Reset,
    /// Nothing is known of the controller any more; it is tried again without end. Told once, until [`Told::Back`].
    Away {
        /// Why.
        reason: String,
    },
    /// It answers again.
    Back,
}

/// Watches services of one controller, over as many connections as it takes.
///
/// Holds one connection, one event of at most [`Client::MAX_BODY`] bytes and no state of the services.
pub struct Watch {
    client: Client,
    path: String,
    silence: Duration,
    /// The id to go on behind.
    last: Option<String>,
    flow: Option<Flow>,
    reader: Reader,
    /// When something last came.
    heard: Instant,
    /// Whether something came over this connection, or ever.
    answered: bool,
    ever: bool,
    /// Connections in a row over which nothing came.
    failures: u32,
    next_try: Instant,
    /// How long to wait before the next connect, where the controller says that it ends this one.
    retry: Duration,
    bye: bool,
    away: bool,
    pending: VecDeque<Told>,
}

impl Watch {
    /// The controller says something every 15 s, give or take a fifth; three such spans and a little more without a
    /// sign, and the connection is dead.
    pub const SILENCE: Duration = Duration::from_secs(60);
    /// Within this span a controller gives a sign, whatever happens.
    pub const SIGNS: Duration = Duration::from_secs(18);
    /// The longest pause between two connects.
    pub const MAX_PAUSE: Duration = Duration::from_secs(10);
    /// The pause after the first failure.
    const FIRST_PAUSE: Duration = Duration::from_millis(250);
    /// How long the answer to a connect may take to begin.
    const ANSWER: Duration = Duration::from_secs(15);
    /// The media type that is asked for.
    const MEDIA_TYPE: &'static str = "text/event-stream";

    /// Watches what is at `path`, see [`crate::paths::watch`]. Nothing is sent before [`Watch::next`].
    #[must_use]
    pub fn new(client: Client, path: String) -> Self {
        let now = Instant::now();
        Self {
            client,
            path,
            silence: Self::SILENCE,
            last: None,
            flow: None,
            reader: Reader::default(),
            heard: now,
            answered: false,
            ever: false,
            failures: 0,
            next_try: now,
            retry: Duration::ZERO,
            bye: false,
            away: false,
            pending: VecDeque::new(),
        }
    }

    /// The same, but a connection is dead after so long a silence.
    #[must_use]
    pub const fn silent_at_most(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// The next news. Waits without end: what bounds it is the caller's wish.
    ///
    /// Dropping the call loses no news; a connect that is under way is begun anew.
    ///
    /// # Errors
    ///
    /// A refusal that another try would not change (not allowed, no such path), or at the very first what is not the
    /// portreeve protocol. A controller that is away or overloaded is no error but [`Told::Away`].
    pub async fn next(&mut self) -> Result<Told, ClientError> {
        loop {
            if let Some(told) = self.pending.pop_front() {
                return Ok(told);
            }
            if let Some(item) = self.reader.next() {
                self.take(item);
            } else if self.flow.is_some() {
                self.read().await;
            } else {
                tokio::time::sleep_until(self.next_try).await;
                self.open().await?;
            }
        }
    }

    async fn open(&mut self) -> Result<(), ClientError> {
        let mut headers = HeaderMap::new();
        let last = self.last.as_deref().map(HeaderValue::from_str);
        if let Some(Ok(last)) = last {
            headers.insert("last-event-id", last);
        }
        let opened = self
            .client
            .open(&self.path, headers, Self::MEDIA_TYPE, Self::ANSWER);
        match opened.await {
            Ok(flow) => {
                self.flow = Some(flow);
                self.answered = false;
                self.retry = Duration::ZERO;
                self.bye = false;
                self.heard = Instant::now();
            }
            Err(refused) if self.is_final(&refused) => return Err(refused),
            Err(other) => self.failed(other.to_string()),
        }
        Ok(())
    }

    fn is_final(&self, error: &ClientError) -> bool {
        match error {
            // Too many at once, or a request that timed out, may go another time.
            ClientError::Refused(problem) => {
                (400..500).contains(&problem.status) && ![408, 429].contains(&problem.status)
            }
            ClientError::Garbled { .. } => !self.ever,
            _ => false,
        }
    }

    /// Reads one piece, or finds the connection's end.
    async fn read(&mut self) {
        let Some(flow) = &mut self.flow else { return };
        let piece = tokio::time::timeout_at(self.heard + self.silence, flow.piece()).await;
        match piece {
            Ok(Ok(Some(bytes))) => {
                self.heard = Instant::now();
                if self.reader.feed(&bytes).is_err() {
                    let target = self.client.target();
                    let most = Reader::MAX >> 20;
                    self.failed(format!("{target} tells an event of more than {most} MiB"));
                }
            }
            // Cut after it had said something: that is told only if the next connect fails too.
            Ok(_) if self.answered => self.cut(),
            Ok(Ok(None)) => {
                let target = self.client.target().clone();
                self.failed(format!("{target} ends its answer before it began"));
            }
            Ok(Err(cause)) => self.failed(cause.to_string()),
            Err(_) => {
                let target = self.client.target();
                let silence = self.silence.as_secs_f32();
                self.failed(format!("no sign from {target} for {silence} s"));
            }
        }
    }

    fn cut(&mut self) {
        self.flow = None;
        self.reader = Reader::default();
        let pause = if std::mem::take(&mut self.bye) {
            self.retry
        } else {
            // All watchers of a controller that restarts should not come at once.
            jittered(Self::FIRST_PAUSE.saturating_mul(1 << self.failures.min(8)))
        };
        self.next_try = Instant::now() + pause.min(Self::MAX_PAUSE);
    }

    fn failed(&mut self, reason: String) {
        self.failures = self.failures.saturating_add(1);
        self.cut();
        if !self.away {
            self.away = true;
            self.pending.push_back(Told::Away { reason });
        }
    }

    fn take(&mut self, item: Item) {
        let (name, id, data) = match item {
            Item::Event { name, id, data } => (name, id, data),
            Item::Comment => return self.hear(),
            Item::Retry(pause) => {
                self.retry = pause;
                return self.hear();
            }
        };
        match self.event(&name, id, data) {
            Ok(told) => {
                self.hear();
                self.pending.extend(told);
            }
            Err(cause) => {
                let target = self.client.target();
                self.failed(format!("{target} tells no {name} event: {cause}"));
                // Asked again behind the same id it would say the same.
                self.last = None;
            }
        }
    }

    fn event(
        &mut self,
        name: &str,
        id: Option<String>,
        data: String,
    ) -> Result<Option<Told>, serde_json::Error> {
        let told = match name {
            "endpoints" => Told::Set {
                id: id.clone().unwrap_or_default(),
                set: serde_json::from_str(&data)?,
                text: data,
            },
            "removed" => Told::Removed {
                id: id.clone().unwrap_or_default(),
                service: serde_json::from_str::<Named>(&data)?.service,
            },
            "bookmark" => {
                let Numbered { revision, stale } = serde_json::from_str(&data)?;
                Told::CaughtUp {
                    id: id.clone().unwrap_or_default(),
                    revision,
                    stale,
                }
            }
            "reset" => {
                // Behind this id nothing would come; the sets that follow were not told yet.
                self.last = None;
                return Ok(Some(Told::Reset));
            }
            // It keeps its watchers from coming back all at once; a cut connection is tried anew sooner.
            "bye" => {
                self.bye = true;
                return Ok(None);
            }
            // A later controller may have more words.
            _ => return Ok(None),
        };
        if id.is_some() {
            self.last = id;
        }
        Ok(Some(told))
    }

    fn hear(&mut self) {
        self.answered = true;
        self.ever = true;
        self.failures = 0;
        if std::mem::take(&mut self.away) {
            self.pending.push_back(Told::Back);
        }
    }
}

#[derive(Deserialize)]
struct Named {
    service: String,
}

#[derive(Deserialize)]
struct Numbered {
    revision: u64,
    #[serde(default)]
    stale: bool,
}

/// Up to a half less.
fn jittered(pause: Duration) -> Duration {
    let part = getrandom::u32().map_or(0.0, |draw| f64::from(draw) / f64::from(u32::MAX));
    pause.mul_f64(1.0 - part / 2.0)
}

#[cfg(test)]
#[path = "watch_test.rs"]
mod tests;
