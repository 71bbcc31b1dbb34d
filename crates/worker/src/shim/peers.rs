//! The workers that listen to a shim: the one that started it, and those that come after.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use portreeve_api::local::SocketPath;
use rustix::event::{PollFd, PollFlags};

use super::ShimError;
use super::protocol::{Launch, RunFolder, ShimCommand, ShimState};

/// Reads the first line of the first worker.
pub(super) fn read_launch(first: &mut UnixStream) -> Result<Launch, ShimError> {
    let no_launch = |reason: String| ShimError::NoLaunch { reason };
    let mut line = Vec::new();
    let mut piece = [0; 8192];
    loop {
        match first.read(&mut piece) {
            Ok(0) => return Err(no_launch("the connection ended".into())),
            Ok(length) => line.extend_from_slice(&piece[..length]),
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(no_launch(cause.to_string())),
        }
        // The worker sends nothing more before it is answered.
        if line.ends_with(b"\n") {
            return serde_json::from_slice(&line).map_err(|cause| no_launch(cause.to_string()));
        }
        if line.len() > Launch::MAX_LINE {
            return Err(no_launch("the line has no end".into()));
        }
    }
}

/// Something a worker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// One more listens, and knows nothing yet.
    Joined,
    /// One wants something.
    Command(ShimCommand),
    /// None listens any more.
    AllGone,
}

/// The connections, the oldest first.
pub(super) struct Peers {
    listener: UnixListener,
    connected: Vec<Peer>,
}

struct Peer {
    stream: UnixStream,
    line: Vec<u8>,
}

impl Peers {
    /// A replaced worker and its successor overlap; more than a few are a mistake and push out the oldest.
    const MOST: usize = 4;

    pub(super) fn new(files: &RunFolder, first: UnixStream) -> Result<Self, ShimError> {
        let path = SocketPath::of(&files.socket())?;
        let listener = UnixListener::bind(path.as_path())?;
        listener.set_nonblocking(true)?;
        let mut peers = Self {
            listener,
            connected: Vec::new(),
        };
        peers.add(first)?;
        Ok(peers)
    }

    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let streams = self.connected.iter().map(|peer| &peer.stream);
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN))
            .chain(streams.map(|stream| PollFd::new(stream, PollFlags::IN)))
    }

    /// Tells everyone; whether anyone heard it. One that does not read is dropped: it can come back and is told all.
    pub(super) fn tell(&mut self, state: &ShimState) -> bool {
        let Ok(mut line) = serde_json::to_vec(state) else {
            return false;
        };
        line.push(b'\n');
        self.connected
            .retain_mut(|peer| matches!(peer.stream.write(&line), Ok(n) if n == line.len()));
        !self.connected.is_empty()
    }

    /// Everything that came, without waiting.
    pub(super) fn receive(&mut self) -> Vec<Incoming> {
        let mut incoming = Vec::new();
        let before = self.connected.len();
        while let Ok((stream, _)) = self.listener.accept() {
            if self.add(stream).is_ok() {
                incoming.push(Incoming::Joined);
            }
        }
        self.connected
            .retain_mut(|peer| peer.receive(&mut incoming));
        if before > 0 && self.connected.is_empty() {
            incoming.push(Incoming::AllGone);
        }
        incoming
    }

    fn add(&mut self, stream: UnixStream) -> std::io::Result<()> {
        stream.set_nonblocking(true)?;
        if self.connected.len() == Self::MOST {
            self.connected.remove(0);
        }
        self.connected.push(Peer {
            stream,
            line: Vec::new(),
        });
        Ok(())
    }
}

impl Peer {
    /// Whether it stays.
    fn receive(&mut self, incoming: &mut Vec<Incoming>) -> bool {
        let mut piece = [0; ShimCommand::MAX_LINE];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => self.line.extend_from_slice(&piece[..length]),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(cause) => return cause.kind() == ErrorKind::WouldBlock,
            }
            while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(command) => incoming.push(Incoming::Command(command)),
                    Err(_) => return false,
                }
            }
            if self.line.len() > ShimCommand::MAX_LINE {
                return false;
            }
        }
    }
}

/// Reads the bytes as the first worker's first line. What is accepted is written and read again.
#[cfg(fuzzing)]
pub(crate) fn read_launch_of(bytes: &[u8]) {
    let Ok(launch) = read_launch(&mut having_come(bytes)) else {
        return;
    };
    let mut text = serde_json::to_vec(&launch).expect("plain data is written as JSON");
    text.push(b'\n');
    let Ok(again) = read_launch(&mut having_come(&text)) else {
        panic!("what was written is not read");
    };
    assert_eq!(
        (again.argv, again.env, again.run),
        (launch.argv, launch.env, launch.run)
    );
}

/// Reads the bytes as what a worker says; how many commands there were.
#[cfg(fuzzing)]
pub(crate) fn read_commands_of(bytes: &[u8]) -> usize {
    let stream = having_come(bytes);
    stream.set_nonblocking(true).expect("a socket can be so");
    let mut peer = Peer {
        stream,
        line: Vec::new(),
    };
    let mut incoming = Vec::new();
    let stays = peer.receive(&mut incoming);
    assert!(!stays, "the other end is closed");
    assert!(peer.line.len() <= 2 * ShimCommand::MAX_LINE);
    incoming.len()
}

/// A connection on which these bytes came, and then its end.
#[cfg(fuzzing)]
fn having_come(bytes: &[u8]) -> UnixStream {
    let (mut theirs, ours) = UnixStream::pair().expect("two sockets");
    theirs
        .write_all(bytes)
        .expect("the socket has room for what a fuzzer sends");
    ours
}
