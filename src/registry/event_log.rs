//! Logs of what happened, each bounded: equal cycles are folded, the last failures outlive everything else.
//!
//! Invariant: a log's numbers rise and name one event each, also where one is undone; of a log that was trimmed, the
//! [`FAILURES_KEPT`] newest failures are there. Work per event does not grow with the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::time::WallClock;

use super::EventView;
use super::ledger::Ledger;

/// How many events of one service, or of one host, are kept; the oldest go first.
pub const EVENTS_KEPT: u64 = 1000;

/// How many of the newest failures are kept whatever else happened since, and however long ago they are.
pub(super) const FAILURES_KEPT: usize = 10;

/// The most events that make one cycle: a start, what it told, and its end.
const LONGEST_CYCLE: usize = 8;

/// The kinds of events that tell of a failure.
const FAILURES: [&str; 8] = [
    "failed",
    "gave-up",
    "host-lost",
    "host-rebooted",
    "lost",
    "port-conflict",
    "rebooted",
    "stuck",
];

/// Which event of which log.
pub(super) type EventKey<K> = (K, u64);

/// Whether an event belongs to a decision, and goes with it if that is undone, or was told and stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Truth,
    News,
}

/// What is known of logs beside their events: derived, never stored.
#[derive(Clone, Debug)]
pub(super) struct EventLogs<K>(BTreeMap<K, Log>);

/// One log.
#[derive(Clone, Debug, Default)]
struct Log {
    next: u64,
    len: u64,
    failures: BTreeSet<u64>,
    /// The newest events of each replica, and of the whole: what a cycle may be found in.
    tails: BTreeMap<Option<u32>, VecDeque<u64>>,
}

impl<K> Default for EventLogs<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> EventLogs<K> {
    /// Adds an event to the log of `of`, folds what became a cycle, and forgets what is too much.
    pub(super) fn append(
        &mut self,
        events: &mut Ledger<EventKey<K>, EventView>,
        of: K,
        event: EventView,
        standing: Standing,
    ) {
        let log = self.0.entry(of).or_default();
        let (number, replica) = (log.next, event.replica);
        log.add(number, &event);
        match standing {
            Standing::Truth => events.insert((of, number), event),
            Standing::News => events.note_whole((of, number), event),
        }
        log.fold(events, of, replica);
        log.trim(events, of);
    }

    /// Derives what is known of a log anew from its events. Numbers go on where they were.
    pub(super) fn index(&mut self, events: &Ledger<EventKey<K>, EventView>, of: K) {
        let next = self.0.get(&of).map_or(0, |log| log.next);
        let mut log = Log::default();
        for ((_, number), event) in events.range((of, 0)..=(of, u64::MAX)) {
            log.add(*number, event);
        }
        log.next = log.next.max(next);
        self.0.insert(of, log);
    }

    /// Derives what is known of every log.
    pub(super) fn index_all(&mut self, events: &Ledger<EventKey<K>, EventView>) {
        for ((of, number), event) in events.iter() {
            self.0.entry(*of).or_default().add(*number, event);
        }
    }

    /// The log is gone with whom it was of.
    pub(super) fn forget(&mut self, of: K) {
        self.0.remove(&of);
    }

    /// Forgets the logs of what is not known any more.
    pub(super) fn keep(
        &mut self,
        events: &mut Ledger<EventKey<K>, EventView>,
        is_known: impl Fn(&K) -> bool,
    ) {
        let gone: Vec<K> = self.0.keys().filter(|of| !is_known(of)).copied().collect();
        for of in gone {
            let numbers = events.range((of, 0)..=(of, u64::MAX));
            let numbers: Vec<u64> = numbers.map(|((_, number), _)| *number).collect();
            for number in numbers {
                events.note_gone(&(of, number));
            }
            self.forget(of);
        }
    }

    /// Forgets what is older than `before`, the newest failures apart. Cost: what is forgotten, and a few per log.
    pub(super) fn expire(
        &mut self,
        events: &mut Ledger<EventKey<K>, EventView>,
        before: WallClock,
    ) {
        for (of, log) in &mut self.0 {
            let kept = log.newest_failures();
            let mut old = Vec::new();
            for ((_, number), event) in events.range((*of, 0)..=(*of, u64::MAX)) {
                if event.at < before {
                    old.push(*number);
                } else if event.times == 1 {
                    // What follows came later; only a folded one may be in front of what is older.
                    break;
                }
            }
            for number in old.into_iter().filter(|number| !kept.contains(number)) {
                if events.is_settled(&(*of, number)) {
                    events.note_gone(&(*of, number));
                    log.leave(number);
                }
            }
        }
    }
}

impl Log {
    fn add(&mut self, number: u64, event: &EventView) {
        self.next = self.next.max(number + 1);
        self.len += 1;
        if FAILURES.contains(&event.kind.as_str()) {
            self.failures.insert(number);
        }
        let tail = self.tails.entry(event.replica).or_default();
        tail.push_back(number);
        if tail.len() > 2 * LONGEST_CYCLE + 1 {
            tail.pop_front();
        }
    }

    /// The event has left the ledger. A tail that still names it finds nothing there and ends before it.
    fn leave(&mut self, number: u64) {
        self.len = self.len.saturating_sub(1);
        self.failures.remove(&number);
    }

    fn newest_failures(&self) -> BTreeSet<u64> {
        let newest = self.failures.iter().rev().take(FAILURES_KEPT);
        newest.copied().collect()
    }

    /// Where the newest events of the replica repeat those before them, makes one of each two.
    ///
    /// News, whatever they were told as: so only among what cannot be undone any more. What still can be is folded
    /// with the next event.
    fn fold<K: Ord + Copy>(
        &mut self,
        events: &mut Ledger<EventKey<K>, EventView>,
        of: K,
        replica: Option<u32>,
    ) {
        let Some(tail) = self.tails.get_mut(&replica) else {
            return;
        };
        tail.retain(|number| events.find(&(of, *number)).is_some());
        let settled = tail
            .iter()
            .take_while(|number| events.is_settled(&(of, **number)))
            .count();
        let event = |place: usize| events.find(&(of, tail[place]));
        let repeats = |length: usize| {
            let first = settled - 2 * length;
            (first..first + length).all(|place| {
                let pair = event(place).zip(event(place + length));
                pair.is_some_and(|(earlier, later)| are_alike(earlier, later))
            })
        };
        let mut lengths = 1..=(settled / 2).min(LONGEST_CYCLE);
        let Some(length) = lengths.find(|length| repeats(*length)) else {
            return;
        };
        let later = settled - length;
        let folded: Vec<(u64, u64)> = (later..settled)
            .map(|place| (tail[place - length], tail[place]))
            .collect();
        tail.drain(later..settled);
        for (earlier, later) in folded {
            let Some(again) = events.find(&(of, later)).cloned() else {
                continue;
            };
            events.note(&(of, earlier), |event| {
                event.first.get_or_insert(event.at);
                event.times = event.times.saturating_add(again.times);
                event.at = again.at;
                // The count in it is the newest.
                event.text.clone_from(&again.text);
            });
            events.note_gone(&(of, later));
            self.len = self.len.saturating_sub(1);
            self.failures.remove(&later);
        }
    }

    /// Forgets the oldest beyond [`EVENTS_KEPT`].
    fn trim<K: Ord + Copy>(&mut self, events: &mut Ledger<EventKey<K>, EventView>, of: K) {
        while self.len > EVENTS_KEPT {
            let kept = self.newest_failures();
            let oldest = events
                .range((of, 0)..=(of, u64::MAX))
                .map(|((_, number), _)| *number)
                .find(|number| !kept.contains(number));
            let Some(oldest) = oldest else {
                return;
            };
            events.note_gone(&(of, oldest));
            self.leave(oldest);
        }
    }
}

/// Whether two events tell the same, but for when and how often.
fn are_alike(a: &EventView, b: &EventView) -> bool {
    (a.replica, a.incarnation, &a.kind, &a.host) == (b.replica, b.incarnation, &b.kind, &b.host)
        && uncounted(&a.text) == uncounted(&b.text)
}

/// `restart 7 after exit 1` without the number, which rises from restart to restart.
fn uncounted(text: &str) -> &str {
    text.strip_prefix("restart ").map_or(text, |rest| {
        rest.trim_start_matches(|letter: char| letter.is_ascii_digit())
    })
}
