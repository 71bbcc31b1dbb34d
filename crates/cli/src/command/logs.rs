//! `logs`: what a replica writes, read through the controller and its host's agent.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use http::Method;
use portreeve_api::body::{LOG_INCARNATION_HEADER, LOG_OFFSET_HEADER};
use portreeve_api::{Client, paths};

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::ReplicaArg;
use crate::output::tell;

/// Read what a replica writes to standard output, or to standard error.
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// The service or one replica: NAME[/N]; without N replica 0
    name: ReplicaArg,
    /// Standard error instead of standard output
    #[arg(long)]
    stderr: bool,
    /// Go on as more is written
    #[arg(short, long)]
    follow: bool,
    /// How many bytes from the end to begin with
    #[arg(long, default_value_t = 65_536, value_name = "BYTES")]
    tail: u32,
}

/// One piece at most.
const PIECE: u32 = 65_536;
/// A piece comes from the agent within this time.
const PATIENCE: Duration = Duration::from_secs(40);

impl Logs {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let client = connect.client()?;
        let mut asked = self.tail;
        let mut piece = self.piece(&client, None, asked).await?;
        if piece.bytes.is_empty() && piece.at == 0 {
            self.hint_at_the_other_stream();
        }
        loop {
            let mut out = std::io::stdout().lock();
            if let Err(cause) = out.write_all(&piece.bytes).and_then(|()| out.flush()) {
                let gone = cause.kind() == std::io::ErrorKind::BrokenPipe;
                return if gone { Ok(()) } else { Err(cause.into()) };
            }
            drop(out);
            // A short piece ends where the file ends now.
            if !self.follow && piece.bytes.len() < asked as usize {
                return Ok(());
            }
            asked = PIECE;
            let next = self.piece(&client, Some(&piece), asked).await?;
            self.tell_leap(&piece, &next);
            piece = next;
        }
    }

    /// A piece may begin elsewhere than asked: the file was begun anew, its beginning is not kept any more,
    /// or another incarnation writes now.
    fn tell_leap(&self, before: &Piece, next: &Piece) {
        let index = self.name.index.unwrap_or(0);
        let name = format!("{}/{index}", self.name.service);
        if before.incarnation.is_some() && next.incarnation != before.incarnation {
            let incarnation = next.incarnation.unwrap_or(0);
            tell!("{name} goes on as incarnation {incarnation}");
        } else if next.at > before.end() {
            let lost = next.at - before.end();
            tell!("{lost} bytes of {name} are not kept any more");
        }
    }

    /// Nothing at all is what one sees who looks into the wrong stream.
    fn hint_at_the_other_stream(&self) {
        let index = self.name.index.unwrap_or(0);
        let (this, other) = if self.stderr {
            ("error", "without --stderr you see its standard output")
        } else {
            ("output", "--stderr shows its standard error")
        };
        tell!(
            "{}/{index} has written nothing to standard {this}; {other}",
            self.name.service
        );
    }

    /// What comes behind `before`, or the last `max` bytes.
    async fn piece(
        &self,
        client: &Client,
        before: Option<&Piece>,
        max: u32,
    ) -> Result<Piece, Failure> {
        let index = self.name.index.unwrap_or(0);
        let stream = if self.stderr { "stderr" } else { "stdout" };
        let mut path = paths::replica_part(&self.name.service, index, "logs");
        path.push_str(&format!("?stream={stream}&max={max}"));
        if let Some(before) = before {
            path.push_str(&format!("&offset={}", before.end()));
            if let Some(incarnation) = before.incarnation {
                path.push_str(&format!("&incarnation={incarnation}"));
            }
        }
        if before.is_some() && self.follow {
            // More is waited for a while there, so that following costs little where little is written.
            path.push_str("&wait=30s");
        }
        let reply = client
            .send(Method::GET, &path, None, "text/plain", PATIENCE)
            .await?;
        let header = |name: &str| reply.headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let incarnation = header(LOG_INCARNATION_HEADER);
        Ok(Piece {
            incarnation,
            at: header(LOG_OFFSET_HEADER)
                .or(before.map(Piece::end))
                .unwrap_or(0),
            bytes: reply.body,
        })
    }
}

/// A piece of an output.
struct Piece {
    incarnation: Option<u64>,
    /// Where it begins.
    at: u64,
    bytes: bytes::Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}
