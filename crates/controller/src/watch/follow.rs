//! What one watcher has, and what it is owed next.
//!
//! Invariant: the revision of each event is at least that of the one before; and when an event of revision R
//! was told, so was every change up to R of every service that is followed. So R is all that a watcher needs
//! to go on later. It rests on the table: its number moves after all snapshots of a batch are swapped. Of a
//! batch that changed several, all events but the last therefore have a revision from before it. A peer that
//! follows several by their changes alone needs more: of each service it must have the state at R or a later one.
//! It is told of newer states than those of a look, and its revision moves only when all of the look is told.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use portreeve::identity::ServiceName;
use portreeve::rights::{Caller, Rights};

use crate::app::App;
use crate::rest::endpoints::body::{bytes as whole, shows_reasons};
use crate::rest::endpoints::found::Found;

use super::asked::Asked;
use super::changes::changes;
use super::event::{Event, Kind};
use super::fingerprint::Fingerprint;
use super::since::Reset;
use super::texts::{Subject, Version};

/// One watcher's place. Its size is that of the set of services that it follows.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) asked: Asked,
    pub(crate) caller: Caller,
    has: BTreeMap<ServiceName, Has>,
    /// The peer came with everything up to this revision of what it could see; until it has everything.
    came_with: Option<u64>,
    reset: Option<Reset>,
    /// The revision of the newest event: the peer has everything up to it.
    position: u64,
    /// The table's number before the newest look at the services: the peer has everything up to it once
    /// nothing is due.
    frontier: u64,
    /// When the rights last changed before that look; `None` before the first.
    rights: Option<u64>,
    /// A service that is followed is in the table and not yet in the view, which tells who may see it.
    awaits_view: bool,
    /// What that look found to tell: the oldest last, and what has gone behind it.
    due: Vec<(u64, ServiceName)>,
    /// Whether the peer was told that nothing is left to tell.
    caught_up: bool,
    /// Whether some of what the peer has is stale.
    has_stale: bool,
}

/// What the peer has of one service.
#[derive(Clone, Copy, Debug)]
enum Has {
    Shown {
        revision: u64,
        print: Fingerprint,
        stale: bool,
    },
    /// It may have it from an earlier stream.
    Claimed,
    /// It was told that there is none.
    Gone,
}

impl Follower {
    pub(crate) fn new(app: &App, asked: Asked, caller: Caller) -> Self {
        let epoch = app.shown.table.epoch();
        let since = asked.since.as_ref();
        let came = since.map(|since| since.on(epoch, reached(app, &asked)));
        let (came_with, reset) = match came.transpose() {
            Ok(came_with) => (came_with, None),
            Err(reset) => (None, Some(reset)),
        };
        Self {
            asked,
            caller,
            has: BTreeMap::new(),
            came_with,
            reset,
            position: came_with.unwrap_or(0),
            frontier: 0,
            rights: None,
            awaits_view: false,
            due: Vec::new(),
            caught_up: false,
            has_stale: false,
        }
    }

    /// The next event, from the newest state; `None` once the peer has everything.
    pub(crate) fn next(&mut self, app: &App) -> Option<Event> {
        loop {
            if let Some(reset) = self.reset.take() {
                let kind = Kind::Reset(reset);
                return Some(Event { revision: 0, kind });
            }
            while let Some((_, service)) = self.due.pop() {
                if let Some(event) = self.tell(app, &service) {
                    return Some(event);
                }
            }
            self.position = self.position.max(self.frontier);
            if !self.look(app) {
                break;
            }
        }
        // From here on what it has is known; what comes into its sight later it does not have.
        self.came_with = None;
        let confirmed = self.confirm(app);
        if self.caught_up && !confirmed {
            return None;
        }
        self.caught_up = true;
        Some(self.bookmark())
    }

    /// The watcher is in these groups and may this now; what that shows or hides is found at the next look.
    pub(crate) fn is_now(&mut self, caller: &Caller) {
        if self.caller == *caller {
            return;
        }
        self.caller = caller.clone();
        self.rights = None;
        if self.came_with.is_some() {
            // What it came with was seen with other eyes, and not all of it is looked at yet.
            self.start_anew(Reset::TooOld);
        }
    }

    fn start_anew(&mut self, reset: Reset) {
        self.reset = Some(reset);
        self.came_with = None;
        self.rights = None;
        self.has.clear();
        self.due.clear();
        self.position = 0;
        self.frontier = 0;
        self.caught_up = false;
    }

    /// Where the peer is: nothing up to here is left to tell.
    const fn bookmark(&self) -> Event {
        Event {
            revision: self.position,
            kind: Kind::Bookmark {
                stale: self.has_stale,
            },
        }
    }

    /// The revision up to which the peer has everything.
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// Moves it as far as an event allows whose telling leaves `due` to tell.
    fn advance(&mut self, revision: u64) {
        let bound = match self.due.last() {
            Some(_) if self.asked.delta => return,
            // Others may have changed with it.
            Some((next, _)) => revision.min(next.saturating_sub(1)),
            None => revision,
        };
        self.position = self.position.max(bound);
    }

    /// Looks for services whose newest state the peer does not have; false if there is none.
    fn look(&mut self, app: &App) -> bool {
        // Before any snapshot: what a snapshot tells is at least as new.
        let frontier = app.shown.table.revision();
        let rights = Some(*app.shown.rights.borrow());
        let all = rights != self.rights || std::mem::take(&mut self.awaits_view);
        let nothing_moved = frontier == self.frontier && !all;
        if nothing_moved && self.asked.only().is_none() {
            return false;
        }
        let since = (!all).then_some(self.frontier);
        let is_first = self.rights.is_none();
        self.frontier = frontier;
        self.rights = rights;
        let mut due: Vec<_> = self
            .candidates(app, since)
            .into_iter()
            .filter_map(|service| Some((self.revision_due(app, &service)?, service)))
            .collect();
        if let Some(came_with) = self.came_with.filter(|_| is_first) {
            // After the look, so that what went before it is found here and what goes after it is in `has`.
            match gone_since(app, &self.asked, &self.caller, came_with) {
                Ok(gone) => {
                    let unseen = gone.into_iter().filter(|it| !self.has.contains_key(it));
                    let unseen: Vec<_> = unseen.collect();
                    due.extend(unseen.iter().map(|service| (0, service.clone())));
                    self.has
                        .extend(unseen.into_iter().map(|it| (it, Has::Claimed)));
                }
                Err(reset) => {
                    self.start_anew(reset);
                    return true;
                }
            }
        }
        due.sort_unstable_by(|a, b| b.cmp(a));
        self.due = due;
        !self.due.is_empty()
    }

    /// The services to look at: of many those that changed since then, where the table still knows.
    fn candidates(&self, app: &App, since: Option<u64>) -> Vec<ServiceName> {
        let mut candidates: Vec<_> = self.asked.names.iter().cloned().collect();
        if self.asked.prefix.is_none() {
            return candidates;
        }
        let table = &app.shown.table;
        if let Some(recent) = since.and_then(|since| table.recent(since)) {
            let services = recent.services.iter().map(|(_, service)| &**service);
            candidates.extend(services.filter(|it| self.asked.follows(it)).cloned());
        } else {
            let services = table.services();
            let services = services.iter().map(|handle| handle.service());
            candidates.extend(services.filter(|it| self.asked.follows(it)).cloned());
            candidates.extend(self.has.keys().cloned());
        }
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// The revision of what the peer is owed of this service, if it is owed something now.
    fn revision_due(&mut self, app: &App, service: &ServiceName) -> Option<u64> {
        let has = self.has.get(service).copied();
        let Some(found) = self.find(app, service) else {
            // When it went is not known here. Told first, it holds no other event's revision back.
            return self.owes_removal(service).then_some(0);
        };
        let revision = self.asked.view.listing.revision(&found.snapshot);
        if self.is_ahead(revision) {
            return None;
        }
        match has {
            Some(Has::Shown { revision: has, .. }) if has == revision => None,
            // Unless it could not see this then.
            None if self
                .knew(app, &found)
                .is_some_and(|came_with| revision <= came_with) =>
            {
                let stale = found.stale;
                self.note(service, &found, stale);
                None
            }
            _ => {
                if has.is_none() && self.came_with.is_some() {
                    // It may go before it is told.
                    self.has.insert(service.clone(), Has::Claimed);
                }
                Some(revision)
            }
        }
    }

    /// Up to which revision the peer has this service; `None` if it may not have seen it then.
    ///
    /// Since when an account is in a group is not known, nor what it might before the site bound other rights: what it
    /// sees through them is told to it anew.
    fn knew(&self, app: &App, found: &Found) -> Option<u64> {
        let came_with = self.came_with?;
        let Caller {
            user, uid, rights, ..
        } = self.caller.clone();
        let rights = if app.bound_at.load(Ordering::Acquire) < came_with {
            rights
        } else {
            Rights::USER
        };
        let outsider = Caller::new(user, uid, Vec::new(), rights);
        let saw = outsider.may_see(found.service.holding()) && found.rights <= came_with;
        saw.then_some(came_with)
    }

    /// Whether the change belongs to a batch that the table has not told of whole: its other services may
    /// not be there yet. The table's number moves after them, and wakes whoever follows several.
    fn is_ahead(&self, revision: u64) -> bool {
        revision > self.frontier && self.asked.only().is_none() && !self.asked.delta
    }

    /// The event that brings the peer to the newest state of one service, if it does not have that.
    fn tell(&mut self, app: &App, service: &ServiceName) -> Option<Event> {
        let Some(found) = self.find(app, service) else {
            return self.removal(service);
        };
        let revision = self.asked.view.listing.revision(&found.snapshot);
        if self.is_ahead(revision) {
            return None;
        }
        let before = self.has.get(service).copied();
        let stale = found.stale;
        let print = self.note(service, &found, stale);
        let previous = match before {
            Some(Has::Shown {
                revision: had,
                print: had_print,
                ..
            }) => {
                if had_print == print {
                    // The rest of the service changed, which this view does not show.
                    return None;
                }
                Some(had)
            }
            Some(Has::Gone) => None,
            Some(Has::Claimed) | None => self.knew(app, &found),
        };
        self.advance(match self.asked.only() {
            Some(_) => revision,
            None => revision.min(self.frontier),
        });
        Some(Event {
            revision: self.position,
            kind: self.kind(app, &found, previous, stale),
        })
    }

    fn kind(&self, app: &App, found: &Found, previous: Option<u64>, stale: bool) -> Kind {
        let view = &self.asked.view;
        let reasons = shows_reasons(found, &self.caller, view);
        let subject = Subject {
            service: found.service.service.clone(),
            view: view.clone(),
            scope: self.caller.view_scope(),
            reasons,
        };
        let version = |since| Version {
            revision: view.listing.revision(&found.snapshot),
            stale,
            since,
        };
        let since = previous.filter(|_| self.asked.delta);
        if let Some((since, changes)) =
            since.and_then(|since| Some((since, changes(found, view, since, stale, reasons)?)))
        {
            let text = app
                .texts
                .text(subject, version(Some(since)), || changes.text());
            return Kind::Changes(text, previous);
        }
        let write = || {
            let written = whole(app, found, &self.caller, view);
            written.map_or_else(|_| b"{}".to_vec(), Vec::from)
        };
        Kind::Endpoints(app.texts.text(subject, version(None), write), previous)
    }

    /// Notes that the peer has this.
    fn note(&mut self, service: &ServiceName, found: &Found, stale: bool) -> Fingerprint {
        let print = Fingerprint::of(&self.asked.view, &found.snapshot);
        let shown = Has::Shown {
            revision: self.asked.view.listing.revision(&found.snapshot),
            print,
            stale,
        };
        self.has_stale |= stale;
        self.has.insert(service.clone(), shown);
        print
    }

    fn removal(&mut self, service: &ServiceName) -> Option<Event> {
        if !self.owes_removal(service) {
            return None;
        }
        let named = self.asked.names.contains(service);
        let before = if named {
            self.has.insert(service.clone(), Has::Gone)
        } else {
            self.has.remove(service)
        };
        let previous = match before {
            Some(Has::Shown { revision, .. }) => Some(revision),
            Some(Has::Claimed) => self.came_with,
            Some(Has::Gone) | None => None,
        };
        self.advance(self.frontier);
        Some(Event {
            revision: self.position,
            kind: Kind::Removed(service.clone(), previous),
        })
    }

    /// Whether the peer has, or may have, a service that is not there for it. One that comes back is told of
    /// every name it asks for that is not there, whether it ever was: so the answer tells nothing.
    fn owes_removal(&self, service: &ServiceName) -> bool {
        match self.has.get(service) {
            Some(Has::Shown { .. } | Has::Claimed) => true,
            Some(Has::Gone) => false,
            None => self.came_with.is_some() && self.asked.names.contains(service),
        }
    }

    fn find(&mut self, app: &App, service: &ServiceName) -> Option<Found> {
        let Ok(found) = Found::of(app, &self.caller, service) else {
            let in_table = app.shown.table.service(service).is_some();
            self.awaits_view |= in_table && !app.shown.view.borrow().services.contains_key(service);
            return None;
        };
        (!found.snapshot.is_removed()).then_some(found)
    }

    /// Whether it has to look again when the view is another one.
    pub(crate) const fn awaits_view(&self) -> bool {
        self.awaits_view
    }

    /// Whether the last of what the peer has as stale is now confirmed.
    fn confirm(&mut self, app: &App) -> bool {
        // Mostly nothing is: then this costs nothing, however many services are followed.
        if !self.has_stale {
            return false;
        }
        self.has_stale = false;
        for (service, has) in &mut self.has {
            if let Has::Shown { stale, .. } = has
                && *stale
            {
                *stale = Found::of(app, &self.caller, service).is_ok_and(|found| found.stale);
                self.has_stale |= *stale;
            }
        }
        !self.has_stale
    }
}

/// The newest revision that the asker may have seen.
///
/// A stream of one service tells a change once its cell is swapped, and the table's own number moves after all cells of
/// the batch: whoever lost such a stream in between and is back at once would seem to come from the future.
fn reached(app: &App, asked: &Asked) -> u64 {
    let table = &app.shown.table;
    let cells = asked.names.iter().filter_map(|name| table.service(name));
    let numbers = cells.map(|cell| cell.snapshot().mod_revision());
    numbers.fold(table.revision(), u64::max)
}

/// Which services under the asker's prefix were removed since, that it may have had: all that it may know of.
///
/// What others could see of a service is gone with the service. So when one of somebody else's went the asker
/// starts anew, whatever its name was: a prefix must not find out names. Only for an admin, and for the asker's own,
/// there is nothing to hide.
fn gone_since(
    app: &App,
    asked: &Asked,
    caller: &Caller,
    since: u64,
) -> Result<Vec<ServiceName>, Reset> {
    if asked.prefix.is_none() {
        // Of each name it asks for it is told.
        return Ok(Vec::new());
    }
    let bound_at = app.bound_at.load(Ordering::Acquire);
    let bound_since = bound_at > 0 && bound_at >= since && !caller.sees_all();
    if bound_since || *app.shown.rights.borrow() > since {
        // What it could see then is not known any more.
        return Err(Reset::TooOld);
    }
    let removed = app.shown.table.removed_since(since).ok_or(Reset::TooOld)?;
    let own = caller.namespace().ok();
    let is_known = |it: &ServiceName| caller.sees_all() || own.as_ref() == Some(it.namespace());
    if !removed.iter().all(|service| is_known(service)) {
        return Err(Reset::TooOld);
    }
    let followed = removed.into_iter().filter(|service| asked.follows(service));
    Ok(followed
        .map(|service| ServiceName::clone(&service))
        .collect())
}

#[cfg(test)]
#[path = "follow_test.rs"]
mod tests;
