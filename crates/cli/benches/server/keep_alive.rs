//! Row 18: a snapshot of ten replicas over kept connections, beside nginx serving the same bytes from a file.
//!
//! One processor for the servers, one for the client. Both servers stay up; the client asks one after the other, in
//! rounds. nginx has Debian's settings (one worker, `sendfile`, `tcp_nopush`) without its access log.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::interleaved::{Ratio, Samples};
use crate::load::Load;
use crate::served::{PATIENCE, Process, Served, absent, await_answer, free_address};
use crate::verdict::{Bound, Part, Row};
use crate::wire::{Place, Wire};

const PATH: &str = "/api/v1/services/web/endpoints";
const REPLICAS: usize = 10;
const CONNECTIONS: usize = 16;
const ROUNDS: usize = 15;
/// How long a round of one side lasts, about.
const ROUND: Duration = Duration::from_millis(200);
/// Which processor is whose.
const SERVERS: &str = "0";
const CLIENT: &str = "1";

/// The row, where nginx and two processors are.
pub(crate) fn row() -> Option<Row> {
    absent(18, measure())
}

fn measure() -> io::Result<Row> {
    let folder = tempfile::tempdir()?;
    let served = Served::start(REPLICAS, &["taskset", "-c", SERVERS])?;
    let Place::Tcp(ours) = served.place else {
        return Err(io::Error::other("the controller is asked over TCP here"));
    };
    let bytes = Wire::open(&served.place, PATIENCE)?.get(PATH, &[])?.body;
    let (theirs, nginx) = nginx(folder.path(), &bytes)?;
    stay_on(CLIENT)?;
    let mut loads = [
        Load::start(ours, PATH, CONNECTIONS)?,
        Load::start(theirs, PATH, CONNECTIONS)?,
    ];
    let servers = [&served.controller, &nginx];
    let mut times = [Vec::new(), Vec::new()];
    let mut busy = [Vec::new(), Vec::new()];
    let mut answers = [0; 2];
    for (load, answers) in loads.iter_mut().zip(&mut answers) {
        *answers = in_a_round(load)?;
    }
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let (begun, was_busy) = (Instant::now(), servers[side].busy()?);
            loads[side].ask(answers[side])?;
            let count = answers[side] as f64;
            times[side].push(begun.elapsed().as_secs_f64() * 1e9 / count);
            busy[side].push((servers[side].busy()? - was_busy) / count);
        }
    }
    // Requests a second of ours to theirs is their time to ours.
    let part = |case: String, [ours, theirs]: [Vec<f64>; 2], bound| {
        let ratio = Ratio::of(&Samples::new(theirs), &Samples::new(ours));
        Part::ratio(case, &ratio, ("nginx", "portreeve"), bound)
    };
    let size = bytes.len();
    let case = format!("{CONNECTIONS} connections, {size} B");
    Ok(Row {
        number: 18,
        what: "GET endpoints of 10 replicas, kept connections, 1 CPU each side, against nginx",
        target: ">= 0.6x its requests/s",
        parts: vec![
            part(case, times, Bound::AtLeast(0.6)),
            // What it would be if nothing but the server took time: other work on the machine counts less here.
            part("by the servers' own time".to_owned(), busy, Bound::Told),
        ],
    })
}

/// How many answers a round takes; finding that also warms the server.
fn in_a_round(load: &mut Load) -> io::Result<usize> {
    let mut answers = 64;
    loop {
        let begun = Instant::now();
        load.ask(answers)?;
        if begun.elapsed() >= ROUND {
            return Ok(answers);
        }
        answers *= 2;
    }
}

/// nginx with the bytes at the same path.
fn nginx(folder: &Path, bytes: &[u8]) -> io::Result<(SocketAddr, Process)> {
    let address = free_address()?;
    let place = folder.display();
    std::fs::write(folder.join("endpoints"), bytes)?;
    let user = if folder.starts_with("/root") {
        ""
    } else {
        "user root;"
    };
    let text = format!(
        "{user} daemon off; master_process off; worker_processes 1; pid {place}/pid; error_log {place}/error.log;\n\
         events {{ worker_connections 768; }}\n\
         http {{ sendfile on; tcp_nopush on; access_log off; keepalive_requests 1000000000; keepalive_timeout 600;\n\
         client_body_temp_path {place}/b; proxy_temp_path {place}/p; fastcgi_temp_path {place}/f;\n\
         uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
         server {{ listen {address}; location = {PATH} {{ default_type application/json; alias {place}/endpoints; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text)?;
    let mut command = Command::new("taskset");
    command.args(["-c", SERVERS, "nginx", "-c"]).arg(&file);
    let log = std::fs::File::create(folder.join("log"))?;
    let process = Process::start(command.stderr(log))?;
    await_answer(&Place::Tcp(address), PATH)?;
    Ok((address, process))
}

/// Keeps this thread on one processor.
fn stay_on(processor: &str) -> io::Result<()> {
    let own = std::fs::read_link("/proc/thread-self")?;
    let own = own.file_name().unwrap_or_default().to_owned();
    let mut command = Command::new("taskset");
    command.args(["-cp", processor]).arg(own);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}
