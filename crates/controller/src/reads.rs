//! Log pieces on their way from an agent to the reader who asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use portreeve::identity::{HostName, ServiceName};
use portreeve_api::body::LogRead;
use tokio::sync::oneshot;

use crate::desk::{Desk, Desks};

/// Readers that wait for a piece.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    host: HostName,
    reader: oneshot::Sender<Piece>,
}

/// Which bytes of which file.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) service: ServiceName,
    pub(crate) index: u32,
    pub(crate) stream: &'static str,
    pub(crate) offset: Option<u64>,
    pub(crate) incarnation: Option<u32>,
    pub(crate) max: u32,
}

/// A piece of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Of which incarnation, where the agent knows.
    pub(crate) incarnation: Option<u32>,
    pub(crate) bytes: Bytes,
}

/// Too many readers wait already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Reads {
    /// The most readers at once.
    const MAX: usize = 256;

    /// Asks the agent of `host`. The piece comes through [`Read::piece`].
    pub(crate) fn ask<'a>(
        &'a self,
        desks: &Desks,
        host: &HostName,
        wanted: Wanted,
    ) -> Result<Read<'a>, TooMany> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (reader, piece) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.len() >= Self::MAX {
            return Err(TooMany);
        }
        let host = host.clone();
        let desk = desks.of(&host);
        waiting.insert(number, Waiting { host, reader });
        drop(waiting);
        // From here on dropping it takes it back.
        let read = Read {
            reads: self,
            desk: Arc::clone(&desk),
            number,
            piece,
        };
        let asked = desk.ask(LogRead {
            read: number,
            service: wanted.service,
            index: wanted.index,
            stream: wanted.stream.to_owned(),
            offset: wanted.offset,
            incarnation: wanted.incarnation,
            max: wanted.max,
        });
        asked.then_some(read).ok_or(TooMany)
    }

    /// Hands a piece over; false if nobody waits for this read of this host any more.
    pub(crate) fn answer(&self, host: &HostName, number: u64, piece: Piece) -> bool {
        let mut all = self.waiting.lock();
        match all.remove(&number) {
            Some(waiting) if waiting.host == *host => waiting.reader.send(piece).is_ok(),
            Some(other) => {
                all.insert(number, other);
                false
            }
            None => false,
        }
    }
}

/// One reader's place. Dropped, it leaves nothing waiting.
#[derive(Debug)]
pub(crate) struct Read<'a> {
    reads: &'a Reads,
    desk: Arc<Desk>,
    number: u64,
    piece: oneshot::Receiver<Piece>,
}

impl Read<'_> {
    /// The piece; `None` if it was given up.
    pub(crate) async fn piece(&mut self) -> Option<Piece> {
        (&mut self.piece).await.ok()
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        self.reads.waiting.lock().remove(&self.number);
        self.desk.forget(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            incarnation: None,
            service: "web.alice".parse().unwrap(),
            index: 0,
            stream: "stdout",
            offset: None,
            max: 10,
        }
    }

    #[tokio::test]
    async fn a_piece_reaches_its_reader_only_from_the_host_that_was_asked() {
        let (reads, desks) = (Reads::default(), Desks::default());
        let n1: HostName = "n1".parse().unwrap();
        let mut read = reads.ask(&desks, &n1, wanted()).unwrap();
        let asked = desks.of(&n1).take(Some(0)).unwrap().errands;
        let piece = Piece {
            incarnation: None,
            offset: 7,
            bytes: "hello".into(),
        };
        assert!(!reads.answer(&"n2".parse().unwrap(), asked[0].read, piece.clone()));
        assert!(reads.answer(&n1, asked[0].read, piece.clone()));
        assert_eq!(read.piece().await, Some(piece.clone()));
        assert!(!reads.answer(&n1, asked[0].read, piece));
    }

    #[test]
    fn a_reader_that_leaves_leaves_nothing_behind() {
        let (reads, desks) = (Reads::default(), Desks::default());
        let n1: HostName = "n1".parse().unwrap();
        for _ in 0..2 * Reads::MAX {
            drop(reads.ask(&desks, &n1, wanted()).unwrap());
        }
        assert!(reads.waiting.lock().is_empty());
        assert!(desks.of(&n1).take_all().errands.is_empty());
        let held: Vec<_> = (0..portreeve::commit::Desk::<LogRead>::MOST_ERRANDS)
            .map(|_| reads.ask(&desks, &n1, wanted()).unwrap())
            .collect();
        assert_eq!(reads.ask(&desks, &n1, wanted()).unwrap_err(), TooMany);
        assert_eq!(reads.waiting.lock().len(), held.len());
    }
}
