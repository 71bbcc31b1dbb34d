//! A worker that is played by this very test program: it says who it is, answers on its socket, and writes
//! down each of its starts.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use portreeve::identity::Run;
use portreeve::registry::Want;
use portreeve::supervision::{Final, State, Status};
use portreeve_api::local::{
    ProcessIdentity, ReplicaFolder, SocketPath, WorkerAnswer, WorkerCommand,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const FOLDER: &str = "PORTREEVE_TEST_FOLDER";

/// Writes the program that an agent starts as its worker: it becomes the test [`a_played_worker`].
pub(crate) fn program(place: &Path) -> std::path::PathBuf {
    let path = place.join("worker.sh");
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n{FOLDER}=\"$3\" exec {} --exact worker::a_played_worker --nocapture\n",
        this.display()
    );
    let mut file = OpenOptions::new();
    let file = file.write(true).create(true).truncate(true).mode(0o755);
    file.open(&path)
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    path
}

/// Every start of a worker below `state`, as `folder pid`, oldest first.
pub(crate) fn starts(state: &Path) -> Vec<String> {
    let text = fs::read_to_string(state.join("starts")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn status(seq: u64, state: State) -> Status {
    Status {
        run: Run(1),
        seq,
        ready: state == State::Up,
        state,
        ..Status::silent()
    }
}

/// Passes at once unless an agent of a test has started it as its worker.
#[test]
fn a_played_worker() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let replica = ReplicaFolder::at(&folder);
    let state = replica.path().parent().unwrap().parent().unwrap();
    let me = ProcessIdentity::of_self().unwrap();
    let name = replica
        .path()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let mut starts = OpenOptions::new();
    let mut starts = starts
        .append(true)
        .create(true)
        .open(state.join("starts"))
        .unwrap();
    writeln!(starts, "{name} {}", me.pid).unwrap();
    if state.join("workers-die").exists() {
        return;
    }
    let path = SocketPath::of(&replica.worker_socket()).unwrap();
    _ = fs::remove_file(replica.worker_socket());
    let listener = UnixListener::bind(path.as_path()).unwrap();
    listener.set_nonblocking(true).unwrap();
    fs::write(replica.worker(), serde_json::to_vec(&me).unwrap()).unwrap();
    let mut newest = status(1, State::Up);
    store(&replica, &newest);
    // Nobody is left behind by a test that failed: its folder goes, and so does this process.
    while replica.path().exists() {
        let a_while = Timespec {
            tv_sec: 0,
            tv_nsec: 200_000_000,
        };
        poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&a_while)).unwrap();
        match listener.accept() {
            Ok((stream, _)) => {
                if !serve(&replica, stream, &mut newest) {
                    return;
                }
            }
            Err(cause) => assert_eq!(cause.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// Answers one command; whether to go on.
fn serve(replica: &ReplicaFolder, mut stream: UnixStream, newest: &mut Status) -> bool {
    stream.set_nonblocking(false).unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    let mut told = OpenOptions::new();
    let mut told = told
        .append(true)
        .create(true)
        .open(replica.path().join("told"))
        .unwrap();
    told.write_all(line.as_bytes()).unwrap();
    let command: WorkerCommand = serde_json::from_str(&line).unwrap();
    let stop = matches!(
        command,
        WorkerCommand::Want {
            want: Want::Stop,
            ..
        }
    );
    if stop && !matches!(newest.state, State::Final(_)) {
        *newest = status(newest.seq + 1, State::Final(Final::Stopped));
        store(replica, newest);
    }
    if let WorkerCommand::Leave { why } = command
        && !matches!(newest.state, State::Final(_))
    {
        *newest = status(newest.seq + 1, State::Final(Final::Left(why)));
        store(replica, newest);
    }
    let answer = WorkerAnswer {
        status: Some(newest.clone()),
        refused: None,
        counters: portreeve_api::local::WorkerCounters::default(),
    };
    let mut text = serde_json::to_vec(&answer).unwrap();
    text.push(b'\n');
    stream.write_all(&text).unwrap();
    !matches!(
        command,
        WorkerCommand::Want {
            want: Want::Forget,
            ..
        }
    )
}

fn store(replica: &ReplicaFolder, status: &Status) {
    fs::write(replica.status(), serde_json::to_vec(status).unwrap()).unwrap();
}
