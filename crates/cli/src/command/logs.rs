//! `logs`: what a replica writes, read through the controller and its host's agent.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use http::Method;
use portreeve_api::body::LOG_OFFSET_HEADER;
use portreeve_api::{Client, paths};

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::ReplicaArg;

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
        let (mut at, mut body) = self.piece(&client, None, asked).await?;
        if body.is_empty() && at == 0 {
            self.hint_at_the_other_stream();
        }
        loop {
            let mut out = std::io::stdout().lock();
            if let Err(cause) = out.write_all(&body).and_then(|()| out.flush()) {
                let gone = cause.kind() == std::io::ErrorKind::BrokenPipe;
                return if gone { Ok(()) } else { Err(cause.into()) };
            }
            drop(out);
            at += body.len() as u64;
            // A short piece ends where the file ends now.
            if !self.follow && body.len() < asked as usize {
                return Ok(());
            }
            asked = PIECE;
            // It may begin elsewhere than asked: the file was begun anew.
            (at, body) = self.piece(&client, Some(at), asked).await?;
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
        eprintln!(
            "{}/{index} has written nothing to standard {this}; {other}",
            self.name.service
        );
    }

    async fn piece(
        &self,
        client: &Client,
        offset: Option<u64>,
        max: u32,
    ) -> Result<(u64, bytes::Bytes), Failure> {
        let index = self.name.index.unwrap_or(0);
        let stream = if self.stderr { "stderr" } else { "stdout" };
        let mut path = paths::replica_part(&self.name.service, index, "logs");
        path.push_str(&format!("?stream={stream}&max={max}"));
        if let Some(offset) = offset {
            // More is waited for a while there, so that following costs little where little is written.
            path.push_str(&format!("&offset={offset}&wait=30s"));
        }
        let reply = client
            .send(Method::GET, &path, None, "text/plain", PATIENCE)
            .await?;
        let begins = reply.headers.get(LOG_OFFSET_HEADER);
        let begins = begins.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok((begins.or(offset).unwrap_or(0), reply.body))
    }
}
