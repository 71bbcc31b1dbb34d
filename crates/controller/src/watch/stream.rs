//! One stream, from its head to its last byte.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};
use parking_lot::Mutex;
use portreeve::registry::Token;
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::app::App;
use crate::clock;
use crate::impatient::Impatient;
use crate::limits::Limits;
use crate::listen::Wire;
use crate::rest::answer::terms;
use crate::rest::identity::{Asker, Credential};
use crate::stop::Stop;

use super::asked::{Asked, Format};
use super::bells::Bells;
use super::event::{End, Event, Kind, millis};
use super::follow::Follower;
use super::spread::spread;
use super::wire::write;

/// An answer that leaves HTTP: its head is written, and then its events for as long as somebody reads them.
#[derive(Debug)]
pub(crate) struct Departed {
    head: Vec<u8>,
    stream: Stream,
}

/// A stream on its way through the layers that an answer passes.
#[derive(Clone, Debug)]
struct Leaving(Arc<Mutex<Option<Stream>>>);

#[derive(Debug)]
struct Stream {
    app: Arc<App>,
    follower: Follower,
    /// What its asker is known by: it ends with that.
    credential: Box<Credential>,
}

/// What the kernel keeps for a watcher that does not read: what it gets next is then not much older than
/// what is true. The kernel doubles it.
const KEPT_UNREAD: usize = 64 << 10;
/// After a stream broke off, its peer comes back within this time.
const RETRY: std::ops::Range<Duration> = Duration::from_secs(1)..Duration::from_secs(5);
/// After a stream was ended, within this one: then all of them come.
const RETRY_AFTER_BYE: std::ops::Range<Duration> = Duration::from_secs(1)..Duration::from_secs(10);
/// A peer that is told of the end takes it within this time, or is cut.
const BYE_WITHIN: Duration = Duration::from_secs(1);
/// A watcher has nothing to say; one that sends more than this is no watcher.
const MOST_UNASKED: usize = 64 << 10;

/// The answer that becomes a stream.
pub(crate) fn answer(app: &Arc<App>, asked: Asked, asker: Asker) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    let media_type = HeaderValue::from_static(asked.format.media_type());
    headers.insert(header::CONTENT_TYPE, media_type);
    terms(headers);
    // A proxy that gathers would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    let (caller, credential) = asker.watching();
    let stream = Stream {
        follower: Follower::new(app, asked, caller),
        credential: Box::new(credential),
        app: Arc::clone(app),
    };
    let leaving = Leaving(Arc::new(Mutex::new(Some(stream))));
    response.extensions_mut().insert(leaving);
    response
}

/// Keeps an answer from becoming a stream: of a `HEAD`, its head is all.
pub(crate) fn stay(response: &mut Response) {
    response.extensions_mut().remove::<Leaving>();
}

impl Departed {
    /// Takes the stream out of an answer that is one.
    pub(crate) fn of(response: &mut Response) -> Option<Self> {
        let leaving: Leaving = response.extensions_mut().remove()?;
        let stream = leaving.0.lock().take()?;
        let mut head = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        let now = i64::try_from(clock::wall().as_unix_millis()).unwrap_or_default();
        if let Ok(now) = jiff::Timestamp::from_millisecond(now)
            && let Ok(date) =
                jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now)
        {
            head.extend_from_slice(format!("date: {date}\r\n").as_bytes());
        }
        // The router says the length of the empty body that stands for the stream; a client would believe it.
        let headers = response.headers().iter();
        for (name, value) in headers.filter(|(name, _)| *name != header::CONTENT_LENGTH) {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        // Its end is the connection's: no frames, and no length that nobody knows.
        head.extend_from_slice(b"connection: close\r\n\r\n");
        if stream.follower.asked.format == Format::Events {
            let retry = millis(spread(RETRY));
            head.extend_from_slice(format!("retry: {retry}\n\n").as_bytes());
        }
        Some(Self { head, stream })
    }

    /// Tells the peer what it does not have, until it leaves, the stream is old, or the controller stops.
    pub(crate) async fn run(self, wire: Box<dyn Wire>, limits: &Limits, stop: Stop) {
        // Refused, the kernel keeps more, which is only less kind to its memory.
        let _ = set_socket_send_buffer_size(&wire, KEPT_UNREAD);
        let mut wire = Impatient::new(wire, limits.stream_taken_within);
        let Self { head, mut stream } = self;
        let served = stream.serve(&mut wire, head, limits, stop).await;
        if let Err(cause) = served {
            tracing::debug!(%cause, "a watcher left");
        }
        let ended = tokio::time::timeout(BYE_WITHIN, wire.shutdown());
        let _ = ended.await;
    }
}

impl Stream {
    async fn serve(
        &mut self,
        wire: &mut Impatient<Box<dyn Wire>>,
        head: Vec<u8>,
        limits: &Limits,
        mut stop: Stop,
    ) -> io::Result<()> {
        let ends_at = Instant::now() + spread(limits.stream_age.clone());
        let over_at = self.over_at().unwrap_or(ends_at).min(ends_at);
        let mut access = self.app.shown.access.subscribe();
        // What changed since it was asked who opens it.
        access.mark_changed();
        let mut bells = Bells::of(&self.app, &self.follower.asked);
        // With the first event, in one write.
        let mut head = Some(head);
        let mut unasked = 0;
        let mut heartbeat_at = next_heartbeat(limits);
        loop {
            let due = heartbeat_at.min(ends_at).min(over_at);
            bells.listen(&self.app, &self.follower.asked);
            while let Some(event) = self.follower.next(&self.app) {
                if !self.write(wire, &event, head.take(), &mut stop).await? {
                    return self.bye(wire, End::Stopping).await;
                }
                // Where there is always something to tell, the rest has its turn all the same.
                if stop.is_said() || due <= Instant::now() {
                    break;
                }
            }
            tokio::select! {
                biased;
                () = stop.said() => return self.bye(wire, End::Stopping).await,
                () = tokio::time::sleep_until(due) => {
                    if due == ends_at {
                        return self.bye(wire, End::Age).await;
                    }
                    heartbeat_at = next_heartbeat(limits);
                    if !self.still_stands().await {
                        return self.bye(wire, End::Token).await;
                    }
                    let revision = self.follower.position();
                    let heartbeat = Event { revision, kind: Kind::Heartbeat };
                    if !self.write(wire, &heartbeat, head.take(), &mut stop).await? {
                        return self.bye(wire, End::Stopping).await;
                    }
                }
                read = drain(wire) => {
                    unasked += read?;
                    if unasked > MOST_UNASKED {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
                _ = access.changed() => {
                    if !self.still_stands().await {
                        return self.bye(wire, End::Token).await;
                    }
                }
                () = bells.ring(self.follower.awaits_view()) => {}
            }
        }
    }

    /// Whether whoever opened the stream may still read, and as who: the groups and rights of an account change, tokens
    /// are revoked, and a replica's ends with its incarnation. Asked with each heartbeat, and when access changes.
    async fn still_stands(&mut self) -> bool {
        match self.credential.caller(&self.app).await {
            Ok(now) => {
                self.follower.is_now(&now);
                true
            }
            Err(_) => false,
        }
    }

    /// When the token is over that opened it, if it is one that will be.
    fn over_at(&self) -> Option<Instant> {
        let expires = self.credential.expires(&self.app)?.after(Token::LEEWAY);
        let left = expires.since(clock::wall()) + Duration::from_millis(1);
        Instant::now().checked_add(left)
    }

    /// Writes an event, for as long as its peer takes some of it now and then; false if the stop came first
    /// and the event is written all the same.
    async fn write(
        &self,
        wire: &mut Impatient<Box<dyn Wire>>,
        event: &Event,
        head: Option<Vec<u8>>,
        stop: &mut Stop,
    ) -> io::Result<bool> {
        let text = event.text(self.follower.asked.format, self.app.shown.table.epoch());
        let [before, shared, after] = text.pieces();
        let head = head.unwrap_or_default();
        let mut writing = std::pin::pin!(write(wire, [&head, before, shared, after]));
        tokio::select! {
            biased;
            written = &mut writing => written.map(|()| true),
            () = stop.said() => match tokio::time::timeout(BYE_WITHIN, writing).await {
                Ok(written) => written.map(|()| false),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
        }
    }

    async fn bye(&self, wire: &mut Impatient<Box<dyn Wire>>, end: End) -> io::Result<()> {
        let revision = self.follower.position();
        let kind = Kind::Bye(end, spread(RETRY_AFTER_BYE));
        let event = Event { revision, kind };
        let text = event.text(self.follower.asked.format, self.app.shown.table.epoch());
        let [before, shared, after] = text.pieces();
        let told = tokio::time::timeout(BYE_WITHIN, write(wire, [&[], before, shared, after]));
        told.await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn next_heartbeat(limits: &Limits) -> Instant {
    let fifth = limits.heartbeat / 5;
    Instant::now() + spread(limits.heartbeat - fifth..limits.heartbeat + fifth)
}

/// Reads what a watcher sends, which nobody asked for; its end is an error.
async fn drain<R: AsyncRead + Unpin>(wire: &mut R) -> io::Result<usize> {
    let mut unread = [0; 256];
    match wire.read(&mut unread).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => Ok(read),
    }
}
