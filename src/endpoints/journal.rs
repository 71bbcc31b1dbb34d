//! What changed lately, for readers that lag a little: bounded, and read without a lock.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use crate::endpoints::sync::Swap;

/// Numbered notes in ascending order, of which the oldest are forgotten.
///
/// One writer. A reader never waits for it: notes stand in pages whose places are filled once, and the
/// list of pages is replaced when one is full.
#[derive(Debug)]
pub(crate) struct Journal<T> {
    pages: Swap<Pages<T>>,
    most_pages: usize,
}

#[derive(Debug)]
struct Pages<T> {
    /// Oldest first; never empty.
    pages: Vec<Arc<Page<T>>>,
    /// The place of the first note of the oldest page.
    first: u64,
    /// Everything noted after this revision is here.
    complete_after: u64,
}

#[derive(Debug)]
struct Page<T> {
    notes: [OnceLock<(u64, T)>; PAGE],
}

const PAGE: usize = 64;

impl<T: Clone> Journal<T> {
    /// Keeps at least `notes` of what is noted after `revision`.
    pub(crate) fn new(notes: usize, revision: u64) -> Self {
        Self {
            pages: Swap::new(Pages {
                pages: vec![Arc::new(Page::empty())],
                first: 0,
                complete_after: revision,
            }),
            most_pages: notes.div_ceil(PAGE) + 1,
        }
    }

    /// Notes `what` at `revision`, which is not smaller than any before. The writer alone.
    pub(crate) fn note(&self, revision: u64, what: T) {
        let full = self.pages.read(|pages| match pages.newest().free() {
            Some(place) => {
                // Only the writer fills places, and this one is free.
                let _ = place.set((revision, what.clone()));
                false
            }
            None => true,
        });
        if full {
            let next = self.pages.read(|pages| pages.turned(self.most_pages));
            // Only the writer fills places, and a new page has some.
            if let Some(place) = next.newest().free() {
                let _ = place.set((revision, what));
            }
            self.pages.replace(Arc::new(next));
        }
    }

    /// Forgets what was noted up to `revision`, by whole pages. The writer alone.
    pub(super) fn forget(&self, revision: u64) {
        let next = self.pages.read(|pages| pages.without(revision));
        if let Some(next) = next {
            self.pages.replace(Arc::new(next));
        }
    }

    /// What was noted after `since`, oldest first; `None` if some of it is forgotten.
    ///
    /// Cost: linear in what is told.
    pub(super) fn since(&self, since: u64) -> Option<Vec<(u64, T)>> {
        self.pages.read(|pages| {
            if since < pages.complete_after {
                return None;
            }
            let newest_first = pages
                .pages
                .iter()
                .rev()
                .flat_map(|page| page.notes.iter().rev());
            let noted = newest_first.filter_map(OnceLock::get);
            let mut told: Vec<_> = noted
                .take_while(|(revision, _)| *revision > since)
                .cloned()
                .collect();
            told.reverse();
            Some(told)
        })
    }

    /// Where the next note will stand: the places of notes rise by one, from 0, and are never used again.
    pub(crate) fn end(&self) -> u64 {
        self.pages.read(Pages::end)
    }

    /// Where the first note after `since` stands, or will stand; `None` if some of them are forgotten.
    pub(crate) fn place_after(&self, since: u64) -> Option<u64> {
        self.pages.read(|pages| {
            if since < pages.complete_after {
                return None;
            }
            let told = |page: &Arc<Page<T>>| page.last().is_some_and(|last| last <= since);
            let before = pages.pages.partition_point(told);
            let inside = match pages.pages.get(before) {
                Some(page) => page.count_until(since),
                // Everything is told, and the newest page need not be full.
                None => return Some(pages.end()),
            };
            Some(pages.first + (before * PAGE + inside) as u64)
        })
    }

    /// Shows `look` each note from `place` on and before `end`, with its revision, until it breaks. Gives the place of
    /// the note at which it broke, else `end`; `None` if the note at `place` is forgotten.
    ///
    /// Cost: linear in what is shown; allocates nothing.
    pub(crate) fn look_from(
        &self,
        place: u64,
        end: u64,
        mut look: impl FnMut(u64, &T) -> ControlFlow<()>,
    ) -> Option<u64> {
        self.pages.read(|pages| {
            let ahead = usize::try_from(place.checked_sub(pages.first)?).ok()?;
            let later = pages.pages.iter().skip(ahead / PAGE);
            let notes = later.flat_map(|page| &page.notes).skip(ahead % PAGE);
            for (at, note) in (place..end).zip(notes) {
                let Some((revision, what)) = note.get() else {
                    return Some(at);
                };
                if look(*revision, what).is_break() {
                    return Some(at);
                }
            }
            Some(end.max(place))
        })
    }
}

impl<T> Pages<T> {
    fn newest(&self) -> &Page<T> {
        self.pages
            .last()
            .expect("a journal has a page at all times")
    }

    fn end(&self) -> u64 {
        let full = (self.pages.len() - 1) * PAGE;
        self.first + (full + self.newest().len()) as u64
    }

    /// With a new page, and without the oldest if they are more than `most`.
    fn turned(&self, most: usize) -> Self {
        let surplus = (self.pages.len() + 1).saturating_sub(most);
        let kept = self.pages.iter().skip(surplus).cloned();
        let forgotten = self.pages[..surplus].last().and_then(|page| page.last());
        Self {
            first: self.first + (surplus * PAGE) as u64,
            complete_after: forgotten.unwrap_or(self.complete_after),
            pages: kept.chain([Arc::new(Page::empty())]).collect(),
        }
    }

    fn without(&self, revision: u64) -> Option<Self> {
        let old = |page: &Arc<Page<T>>| page.last().is_some_and(|last| last <= revision);
        let surplus = self.pages.iter().take_while(|page| old(page)).count();
        // The newest page stays, if only to be filled.
        let surplus = surplus.min(self.pages.len() - 1);
        let forgotten = self.pages[..surplus].last().and_then(|page| page.last())?;
        Some(Self {
            first: self.first + (surplus * PAGE) as u64,
            complete_after: forgotten,
            pages: self.pages[surplus..].to_vec(),
        })
    }
}

impl<T> Page<T> {
    fn empty() -> Self {
        Self {
            notes: [const { OnceLock::new() }; PAGE],
        }
    }

    fn len(&self) -> usize {
        self.notes.partition_point(|note| note.get().is_some())
    }

    fn free(&self) -> Option<&OnceLock<(u64, T)>> {
        self.notes.get(self.len())
    }

    /// How many of its notes are of no later revision.
    fn count_until(&self, revision: u64) -> usize {
        self.notes
            .partition_point(|note| note.get().is_some_and(|(noted, _)| *noted <= revision))
    }

    fn last(&self) -> Option<u64> {
        let last = self.notes.get(self.len().checked_sub(1)?)?;
        last.get().map(|(revision, _)| *revision)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn noted(journal: &Journal<u64>, since: u64) -> Option<Vec<u64>> {
        let told = journal.since(since)?;
        assert!(told.iter().all(|(revision, what)| revision == what));
        Some(told.into_iter().map(|(revision, _)| revision).collect())
    }

    #[test]
    fn it_tells_what_came_after_and_nothing_twice() {
        let journal = Journal::new(100, 10);
        for revision in 11..=90 {
            journal.note(revision, revision);
        }
        assert_eq!(noted(&journal, 90), Some(Vec::new()));
        assert_eq!(noted(&journal, 1_000), Some(Vec::new()));
        assert_eq!(noted(&journal, 87), Some(vec![88, 89, 90]));
        assert_eq!(noted(&journal, 10), Some((11..=90).collect()));
    }

    #[test]
    fn what_was_before_its_beginning_is_not_claimed() {
        let journal = Journal::<u64>::new(100, 10);
        assert_eq!(noted(&journal, 9), None);
        assert_eq!(noted(&journal, 10), Some(Vec::new()));
    }

    #[test]
    fn it_keeps_what_it_promised_and_forgets_the_rest() {
        const NOTES: usize = 200;
        let journal = Journal::new(NOTES, 0);
        for revision in 1..=10_000 {
            journal.note(revision, revision);
            let since = revision.saturating_sub(NOTES as u64);
            assert_eq!(
                noted(&journal, since),
                Some((since + 1..=revision).collect())
            );
        }
        assert_eq!(noted(&journal, 5_000), None);
        let pages = journal.pages.read(|pages| pages.pages.len());
        assert!(pages <= NOTES.div_ceil(PAGE) + 1, "{pages} pages");
    }

    #[test]
    fn of_one_revision_it_forgets_all_or_says_so() {
        let journal = Journal::new(PAGE, 0);
        for _ in 0..2 * PAGE + 1 {
            journal.note(7, 7);
        }
        assert_eq!(noted(&journal, 6), None);
        assert_eq!(noted(&journal, 7), Some(Vec::new()));
        journal.note(8, 8);
        assert_eq!(noted(&journal, 7), Some(vec![8]));
    }

    #[test]
    fn a_place_is_found_by_revision_and_read_on_from() {
        let journal = Journal::new(2 * PAGE, 0);
        // Three of each revision.
        for place in 0..1_000_u64 {
            assert_eq!(journal.end(), place);
            journal.note(1 + place / 3, place);
        }
        let end = journal.end();
        let from = journal.place_after(320).unwrap();
        assert_eq!(from, 960);
        let mut seen = Vec::new();
        let stopped = journal.look_from(from, end, |revision, place| {
            assert_eq!(revision, 1 + place / 3);
            seen.push(*place);
            if seen.len() == 20 {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        assert_eq!(stopped, Some(979));
        assert_eq!(seen, (960..980).collect::<Vec<_>>());
        let all = |_: u64, _: &u64| ControlFlow::Continue(());
        assert_eq!(journal.look_from(979, end, all), Some(end));
        assert_eq!(journal.look_from(979, 990, all), Some(990));
        assert_eq!(journal.look_from(end, end, all), Some(end));
        assert_eq!(journal.place_after(10_000), Some(end));
        // Long ago.
        assert_eq!(journal.place_after(100), None);
        assert_eq!(journal.look_from(300, end, all), None);
    }

    #[test]
    fn what_is_long_ago_is_forgotten_by_the_page() {
        let journal = Journal::new(1_000, 0);
        for revision in 1..=200 {
            journal.note(revision, revision);
        }
        journal.forget(0);
        assert_eq!(noted(&journal, 0), Some((1..=200).collect()));
        journal.forget(130);
        assert_eq!(noted(&journal, 0), None);
        assert_eq!(noted(&journal, 128), Some((129..=200).collect()));
        // The page that is being filled stays.
        journal.forget(1_000);
        assert_eq!(noted(&journal, 199), Some(vec![200]));
        journal.note(201, 201);
        assert_eq!(noted(&journal, 200), Some(vec![201]));
    }
}
