//! The controller's one route that a worker uses, on a loopback port.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use portreeve::supervision::Status;
use portreeve_api::Target;

/// Takes every status that is told.
pub(crate) struct Controller {
    target: Target,
    answer: Arc<AtomicU16>,
    told: mpsc::Receiver<Told>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) line: String,
    pub(crate) token: Option<String>,
    pub(crate) status: Status,
}

impl Controller {
    /// Far more than anything here takes, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap().to_string());
        let answer = Arc::new(AtomicU16::new(204));
        let (sender, told) = mpsc::channel();
        let code = answer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Some(told) = serve(stream.unwrap(), code.load(Ordering::SeqCst)) else {
                    continue;
                };
                if sender.send(told).is_err() {
                    return;
                }
            }
        });
        Self {
            target,
            answer,
            told,
        }
    }

    pub(crate) fn target(&self) -> Target {
        self.target.clone()
    }

    /// Answers with this status code from now on.
    pub(crate) fn answer(&self, code: u16) {
        self.answer.store(code, Ordering::SeqCst);
    }

    /// The next request.
    pub(crate) fn next(&self) -> Told {
        self.told.recv_timeout(Self::PATIENCE).unwrap()
    }

    /// The first status from now on that is as wanted.
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let begin = Instant::now();
        let mut last = None;
        while let Some(left) = Self::PATIENCE.checked_sub(begin.elapsed()) {
            match self.told.recv_timeout(left) {
                Ok(told) if wanted(&told.status) => return told.status,
                Ok(told) => last = Some(told.status),
                Err(_) => break,
            }
        }
        panic!("never told: {what}; last: {last:#?}");
    }

    /// What is told within this time, if anything is.
    pub(crate) fn next_within(&self, span: Duration) -> Option<Told> {
        self.told.recv_timeout(span).ok()
    }
}

fn serve(stream: TcpStream, code: u16) -> Option<Told> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (mut length, mut token) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => token = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let problem = r#"{"type":"urn:portreeve:problem:x","title":"X","status":CODE,"detail":"said so","code":"x"}"#;
    let body_out = if code == 204 {
        String::new()
    } else {
        problem.replace("CODE", &code.to_string())
    };
    let answer = format!(
        "HTTP/1.1 {code} Whatever\r\ncontent-length: {}\r\n\r\n{body_out}",
        body_out.len()
    );
    reader.get_mut().write_all(answer.as_bytes()).ok()?;
    Some(Told {
        line: line.trim().to_owned(),
        token,
        status: serde_json::from_slice(&body).unwrap(),
    })
}
