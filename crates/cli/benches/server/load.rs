//! A load client: one thread, several kept connections, each with one question under way.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Kept connections to one server that all ask the same.
pub(crate) struct Load {
    connections: Vec<TcpStream>,
    question: Vec<u8>,
    buffer: Vec<u8>,
}

impl Load {
    /// Connects so often and asks once on each, so that the server is warm and every connection has its question.
    pub(crate) fn start(address: SocketAddr, path: &str, connections: usize) -> io::Result<Self> {
        let question = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
        let mut load = Self {
            connections: Vec::new(),
            question,
            buffer: vec![0; 1 << 16],
        };
        for _ in 0..connections {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(crate::served::PATIENCE))?;
            stream.write_all(&load.question)?;
            load.connections.push(stream);
        }
        Ok(load)
    }

    /// Reads so many answers, in the order of the connections, and asks again after each.
    pub(crate) fn ask(&mut self, answers: usize) -> io::Result<()> {
        let count = self.connections.len();
        for nth in 0..answers {
            let connection = &mut self.connections[nth % count];
            read_answer(connection, &mut self.buffer)?;
            connection.write_all(&self.question)?;
        }
        // The next round begins with the same connection, whatever the number was.
        self.connections.rotate_left(answers % count);
        Ok(())
    }
}

/// Reads exactly one answer, which must be 200 and say its length.
fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        let Some(end) = find(&buffer[..filled], b"\r\n\r\n") else {
            continue;
        };
        let length = length_of(&buffer[..end])?;
        let whole = end + 4 + length;
        if whole > buffer.len() {
            return Err(io::Error::other(
                "an answer longer than the client's buffer",
            ));
        }
        while filled < whole {
            let read = stream.read(&mut buffer[filled..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
        }
        return Ok(());
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn length_of(head: &[u8]) -> io::Result<usize> {
    let head = std::str::from_utf8(head).map_err(io::Error::other)?;
    let mut lines = head.split("\r\n");
    if lines
        .next()
        .is_none_or(|first| !first.starts_with("HTTP/1.1 200"))
    {
        return Err(io::Error::other(head.to_owned()));
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok()).flatten()
    });
    length.ok_or_else(|| io::Error::other("an answer that does not say its length"))
}
