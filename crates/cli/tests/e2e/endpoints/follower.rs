//! A client of the streams that follows the page's rules, and a proxy that breaks its connections.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::wire::{Event, Events, Place};

/// What a stream told so far, over all its connections.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// By service: its endpoints by replica; none after `removed`.
    pub(crate) sets: BTreeMap<String, BTreeMap<u64, Value>>,
    /// The id of the last event that had one.
    pub(crate) last: Option<String>,
    /// How often it was told to drop everything.
    pub(crate) resets: usize,
    /// How many events it heard.
    pub(crate) events: usize,
    /// By service, the revision of its last set.
    revisions: BTreeMap<String, u64>,
}

impl Followed {
    /// Takes one event; says what is wrong with it.
    pub(crate) fn take(&mut self, event: &Event) -> Result<(), String> {
        self.events += 1;
        let before = self.last.clone();
        if !event.id.is_empty() {
            self.last = Some(event.id.clone());
        }
        let service = event.data["service"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        match event.name.as_str() {
            "endpoints" => {
                self.moves_on(&service, event)?;
                let set = self.sets.entry(service).or_default();
                set.clear();
                upsert(set, &event.data["endpoints"]);
            }
            "changes" => {
                let known = self.revisions.get(&service).copied();
                if event.data["previous"].as_u64() != known {
                    return Err(format!(
                        "a change of {known:?} that is not known: {event:?}"
                    ));
                }
                self.moves_on(&service, event)?;
                let set = self.sets.entry(service).or_default();
                upsert(set, &event.data["upsert"]);
                for gone in event.data["remove"].as_array().into_iter().flatten() {
                    let replica = gone["replica"].as_u64().or_else(|| gone.as_u64());
                    let replica = replica.ok_or_else(|| format!("removes what? {event:?}"))?;
                    set.remove(&replica);
                }
            }
            "removed" => {
                self.sets.remove(&service);
                self.revisions.remove(&service);
            }
            "reset" => {
                self.resets += 1;
                eprintln!("{event:?} to one who came with {before:?}");
                self.sets.clear();
                self.revisions.clear();
            }
            "bookmark" | "bye" => {}
            other => return Err(format!("an event of a kind that no page knows: {other:?}")),
        }
        Ok(())
    }

    fn moves_on(&mut self, service: &str, event: &Event) -> Result<(), String> {
        let revision = event.data["revision"].as_u64();
        let revision = revision.ok_or_else(|| format!("no revision: {event:?}"))?;
        match self.revisions.insert(service.to_owned(), revision) {
            // A set may come again after a reconnect; an older one may not.
            Some(before) if before > revision => Err(format!("back from {before}: {event:?}")),
            _ => Ok(()),
        }
    }

    /// The numbers of a service's first port, by replica.
    pub(crate) fn ports(&self, service: &str) -> Vec<u64> {
        let named = |(name, set): (&String, &BTreeMap<u64, Value>)| {
            let is_it = name == service || name.starts_with(&format!("{service}."));
            is_it.then(|| {
                set.values()
                    .filter_map(|one| one["ports"][0]["port"].as_u64())
                    .collect()
            })
        };
        self.sets.iter().find_map(named).unwrap_or_default()
    }
}

fn upsert(set: &mut BTreeMap<u64, Value>, all: &Value) {
    for one in all.as_array().into_iter().flatten() {
        if let Some(replica) = one["replica"].as_u64() {
            set.insert(replica, one.clone());
        }
    }
}

/// Follows `path` over as many connections as it takes, each after the last event of the one before, until what it
/// knows satisfies `enough`; gives that, or what was wrong.
pub(crate) fn follow(
    place: &Place,
    path: &str,
    patience: Duration,
    enough: impl Fn(&Followed) -> bool,
) -> Result<Followed, String> {
    let mut followed = Followed::default();
    let begun = std::time::Instant::now();
    while begun.elapsed() < patience {
        let opened = Events::open(place, path, followed.last.as_deref(), patience);
        let Ok(mut events) = opened else {
            crate::world::pause();
            continue;
        };
        while let Ok(Some(event)) = events.next() {
            followed.take(&event)?;
            if enough(&followed) {
                return Ok(followed);
            }
            if begun.elapsed() > patience {
                break;
            }
        }
    }
    Err(format!("it never came to that: {followed:#?}"))
}

/// Carries connections to a server and breaks each after some bytes of its answers, until it has done so often enough.
pub(crate) struct Proxy {
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    /// Listens at `near` until the test ends; the lengths come from `seed`.
    pub(crate) fn start(near: &Path, far: &Path, most: usize, mut seed: u64) -> io::Result<Self> {
        let listener = UnixListener::bind(near)?;
        let far = far.to_owned();
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let whole = counted.load(Ordering::Relaxed) >= most;
                let bytes = if whole {
                    usize::MAX
                } else {
                    150 + (seed >> 52) as usize
                };
                let Ok(far) = UnixStream::connect(&far) else {
                    continue;
                };
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    if carry(near, far, bytes) {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Ok(Self { cuts })
    }

    /// How many connections it broke.
    pub(crate) fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }
}

/// Carries until an end or so many bytes came back; whether it broke the connection.
fn carry(mut near: UnixStream, mut far: UnixStream, bytes: usize) -> bool {
    let (Ok(mut asked), Ok(mut onwards)) = (near.try_clone(), far.try_clone()) else {
        return false;
    };
    std::thread::spawn(move || {
        let _ = io::copy(&mut asked, &mut onwards);
        let _ = onwards.shutdown(Shutdown::Both);
    });
    let mut left = bytes;
    let mut buffer = [0; 4096];
    while let Ok(read) = far.read(&mut buffer) {
        if read == 0 {
            break;
        }
        let part = read.min(left);
        if near.write_all(&buffer[..part]).is_err() {
            break;
        }
        left -= part;
        if left == 0 {
            break;
        }
    }
    for end in [&near, &far] {
        let _ = end.shutdown(Shutdown::Both);
    }
    left == 0
}
