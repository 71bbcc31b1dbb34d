//! `portreeve hello`: a small HTTP service to try things with, with faults on demand.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::exit::Failure;
use crate::output;
use crate::span::Span;

/// A small HTTP service to try things with, and with faults on demand.
///
/// Every path answers with a greeting, /ready as --ready-after says. Sent SIGUSR1 it hangs: connections are taken and never answered, as a stuck service does.
#[derive(Args, Debug)]
pub(crate) struct Hello {
    /// The port to listen on
    #[arg(long, env = "PORT")]
    port: u16,
    /// The address to listen on
    #[arg(long, default_value = "0.0.0.0", value_name = "ADDRESS")]
    bind: IpAddr,
    /// Listen only after this time
    #[arg(long, default_value = "0s", value_name = "TIME")]
    listen_after: Span,
    /// Answer /ready with 503 before this time
    #[arg(long, default_value = "0s", value_name = "TIME")]
    ready_after: Span,
    /// Hang after this time
    #[arg(long, value_name = "TIME")]
    hang_after: Option<Span>,
    /// Exit after this time
    #[arg(long, value_name = "TIME")]
    exit_after: Option<Span>,
    /// The code of that exit
    #[arg(long, default_value_t = 1, value_name = "CODE")]
    exit_code: u8,
    /// Do not end on SIGTERM
    #[arg(long)]
    ignore_term: bool,
}

impl Hello {
    /// Serves until a signal or `--exit-after` ends it.
    pub(crate) async fn run(self) -> Result<std::process::ExitCode, Failure> {
        let begun = Instant::now();
        let mut hang = signal(SignalKind::user_defined1())?;
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            () = tokio::time::sleep(self.listen_after.0) => {}
            _ = term.recv(), if !self.ignore_term => return Ok(std::process::ExitCode::SUCCESS),
            _ = interrupt.recv() => return Ok(std::process::ExitCode::SUCCESS),
        }
        let address = SocketAddr::new(self.bind, self.port);
        let listener = TcpListener::bind(address)
            .await
            .map_err(|cause| Failure::plain(format!("cannot listen on {address}: {cause}")))?;
        output::print(&format!("hello listens on {}\n", listener.local_addr()?))?;
        let state = Arc::new(State {
            greeting: greeting(address),
            ready_at: begun + self.ready_after.0,
            hangs: AtomicBool::new(false),
        });
        let forever = Duration::from_secs(u64::from(u32::MAX));
        let hang_at = begun + self.hang_after.map_or(forever, |span| span.0);
        let exit_at = begun + self.exit_after.map_or(forever, |span| span.0);
        loop {
            tokio::select! {
                taken = listener.accept() => {
                    // A client that is gone before it was taken is no reason to end.
                    let Ok((stream, _)) = taken else { continue };
                    let state = Arc::clone(&state);
                    tokio::spawn(async move {
                        let answer = service_fn(|request| respond(&state, request));
                        let connection = hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), answer);
                        // A broken connection concerns its client only.
                        let _ = connection.await;
                    });
                }
                _ = hang.recv() => state.hang("told by SIGUSR1"),
                () = tokio::time::sleep_until(hang_at), if !state.hangs() => state.hang("--hang-after"),
                () = tokio::time::sleep_until(exit_at) => return Ok(self.exit_code.into()),
                _ = term.recv(), if !self.ignore_term => return Ok(std::process::ExitCode::SUCCESS),
                _ = interrupt.recv() => return Ok(std::process::ExitCode::SUCCESS),
            }
        }
    }
}

struct State {
    greeting: String,
    ready_at: Instant,
    hangs: AtomicBool,
}

impl State {
    fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }

    fn hang(&self, why: &str) {
        // Hanging is what was asked for, whether anybody can read of it or not.
        _ = output::print(&format!("hello hangs from now on ({why})\n"));
        self.hangs.store(true, Ordering::Relaxed);
    }
}

async fn respond(
    state: &State,
    request: Request<hyper::body::Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if state.hangs() {
        std::future::pending::<()>().await;
    }
    let warming = request.uri().path() == "/ready" && Instant::now() < state.ready_at;
    let body = if warming {
        "not ready yet\n"
    } else {
        &state.greeting
    };
    let mut response = Response::new(Full::from(body.to_owned()));
    if warming {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

/// Says who answers, from the variables that every replica has.
fn greeting(address: SocketAddr) -> String {
    let variable = |name: &str| std::env::var(format!("PORTREEVE_{name}")).ok();
    match (variable("SERVICE"), variable("REPLICA"), variable("RUN")) {
        (Some(service), Some(replica), Some(run)) => {
            format!("hello from {service} replica {replica} run {run}\n")
        }
        _ => format!("hello from {address}\n"),
    }
}
