//! What machines tell, recounted: restarts within their budget, ready and not ready in turn, nothing after the end.
//!
//! A worker that dies between a decision and its record makes the decision again; whoever takes over may so tell one
//! thing twice. Beyond that nothing is forgiven.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portreeve::identity::{Run, ServiceName};
use portreeve::residency::ReplicaName;
use portreeve::supervision::{Config, Final, Reason, Report, Then, Window};
use portreeve::time::Monotonic;

use super::{Verdict, broken};

/// All incarnations that told something.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    told: BTreeMap<ReplicaName, Track>,
    ends: BTreeMap<ReplicaName, End>,
    /// Ends by the restart rule in a row, by copy, since somebody last asked for something of its service.
    given_up: BTreeMap<(ServiceName, u32), u32>,
    /// Of these, ends of incarnations that had been replaced already, as their hosts were lost.
    excused: BTreeMap<(ServiceName, u32), u32>,
    /// Services of which somebody asked for something.
    known: BTreeSet<ServiceName>,
    /// Those of which somebody did so again, when something of them may have lived.
    asked: BTreeSet<ServiceName>,
}

/// How one incarnation told that it ended.
#[derive(Debug)]
struct End {
    how: Final,
    /// Its worker died, and what was written may be lost: who takes over may not know how it ended.
    is_unsure: bool,
    /// The store that was taken up since is older than it.
    may_begin_anew: bool,
}

/// What one incarnation told.
#[derive(Debug, Default)]
struct Track {
    ready: Option<Run>,
    /// The restart that was granted after each run.
    granted: BTreeMap<Run, Grant>,
    /// `None`: what was counted is lost.
    restarts: Option<u32>,
    /// A worker died since it last told whether it is ready.
    is_unsure: bool,
    /// So many restarts may be counted again, or were not counted, since workers died.
    may_differ: u32,
    /// So many restarts were told while nothing could be written.
    unwritten: u32,
    /// How many workers died: each may have decided a restart that nobody was told of.
    deaths: u32,
}

/// One restart by the rule.
#[derive(Debug)]
struct Grant {
    at: Monotonic,
    /// Nothing could be written then.
    is_unwritten: bool,
    /// A worker died meanwhile: whoever took over does not know of it.
    is_lost: bool,
}

impl Restarts {
    /// Its worker died, or another took over: what was decided last may be decided again. `is_rough`: what was written
    /// may be lost, also how it ended.
    pub(crate) fn worker_died(&mut self, name: &ReplicaName, is_rough: bool) {
        if let Some(track) = self.told.get_mut(name) {
            track.is_unsure = true;
            track.may_differ += 1 + track.unwritten;
            track.deaths += 1;
            for grant in track.granted.values_mut() {
                grant.is_lost |= grant.is_unwritten;
            }
        } else if let Some(end) = self.ends.get_mut(name).filter(|_| is_rough) {
            end.is_unsure = true;
        }
    }

    /// The host lost its power: what was not synced is decided again, or gone.
    pub(crate) fn power_lost(&mut self, living: impl IntoIterator<Item = ReplicaName>) {
        for name in living {
            self.worker_died(&name, false);
        }
    }

    /// Its owner asked for something of the service: what gave up may begin anew.
    pub(crate) fn asked(&mut self, service: &ServiceName) {
        self.given_up.retain(|(of, _), _| of != service);
        self.excused.retain(|(of, _), _| of != service);
        if !self.known.insert(service.clone()) {
            self.asked.insert(service.clone());
        }
    }

    /// A service has these copies by now: one that it is scaled to later begins with nothing counted.
    pub(crate) fn keep(&mut self, service: &ServiceName, is_there: impl Fn(u32) -> bool) {
        let keeps = |(of, index): &(ServiceName, u32)| of != service || is_there(*index);
        self.given_up.retain(|copy, _| keeps(copy));
        self.excused.retain(|copy, _| keeps(copy));
    }

    /// The store is an older one: what was counted since is not in it.
    pub(crate) fn set_back(&mut self) {
        self.given_up.clear();
        self.excused.clear();
    }

    /// It ended, and the store that is taken up is from before that: what its host has forgotten is placed there again.
    pub(crate) fn begins_anew(&mut self, name: &ReplicaName) {
        if let Some(end) = self.ends.get_mut(name) {
            end.may_begin_anew = true;
        }
    }

    /// This one ends by the restart rule, and was replaced, or is to be, for another reason.
    pub(crate) fn excuse(&mut self, name: &ReplicaName) {
        let copy = (name.service.clone(), name.index);
        *self.excused.entry(copy).or_default() += 1;
    }

    /// How the incarnation told that it ended.
    pub(crate) fn end_of(&self, name: &ReplicaName) -> Option<&Final> {
        self.ends.get(name).map(|end| &end.how)
    }

    /// The machine told something; `rules` are its profile's. `is_full`: nothing can be written where it lives.
    pub(crate) fn told(
        &mut self,
        (at, is_full): (Monotonic, bool),
        name: &ReplicaName,
        run: Run,
        report: &Report,
        rules: &Config,
    ) -> Verdict {
        let text = |what: &str| format!("{name} run {run} at {} ms: {what}", at.as_millis());
        if let Some(end) = self.ends.get_mut(name) {
            match report {
                // Told again by whoever took over.
                Report::Final(again) if *again == end.how => return Ok(()),
                // How it ended may be lost, that it did is not.
                Report::Final(again) if end.is_unsure => {
                    end.how = again.clone();
                    return Ok(());
                }
                _ if end.may_begin_anew => {}
                _ => {
                    let text = text(&format!("{report} after {:?}", end.how));
                    return broken("nothing after the end", text);
                }
            }
            self.ends.remove(name);
            let forgetful = Track {
                is_unsure: true,
                deaths: 1,
                ..Track::default()
            };
            self.told.insert(name.clone(), forgetful);
        }
        let track = self.told.entry(name.clone()).or_insert_with(Track::begun);
        if !is_full {
            // Whatever is told was written, with all that was before.
            for grant in track.granted.values_mut() {
                grant.is_unwritten = false;
            }
        }
        let is_unsure = track.is_unsure;
        // To be stuck, or restarted, says nothing of that.
        track.is_unsure &= matches!(report, Report::Stuck | Report::Restarted { .. });
        match report {
            Report::Ready => {
                if track.ready == Some(run) && !is_unsure {
                    return broken("ready and not ready in turn", text("ready twice"));
                }
                track.ready = Some(run);
            }
            Report::NotReady(_) => {
                if track.ready.take().is_none() && !is_unsure {
                    let text = text("not ready, and never was ready");
                    return broken("ready and not ready in turn", text);
                }
            }
            Report::Backoff { delay, .. } => {
                if track.ready.is_some() && !is_unsure {
                    let text = text("it waits and is still ready");
                    return broken("ready and not ready in turn", text);
                }
                track.ready = None;
                if *delay > rules.backoff.max {
                    let text = text(&format!("it waits {delay:?}"));
                    return broken("waits within the longest", text);
                }
                let grant = Grant {
                    at,
                    is_unwritten: is_full,
                    is_lost: false,
                };
                track.granted.insert(run, grant);
                track
                    .within_budget(at, rules)
                    .or_else(|what| broken("no more restarts than granted", text(&what)))?;
            }
            Report::Restarted { count, reason, .. } => {
                if let Some(before) = track.restarts {
                    let due = before + u32::from(*reason != Reason::User);
                    let is_right = count.abs_diff(due) <= track.may_differ;
                    if !is_right {
                        let text = text(&format!("restart {count} after {before}"));
                        return broken("restarts are counted once", text);
                    }
                }
                track.restarts = Some(*count);
                track.may_differ = 0;
                track.unwritten = if is_full { track.unwritten + 1 } else { 0 };
            }
            Report::Stuck => {}
            Report::Final(end) => {
                if track.ready.is_some() && !is_unsure {
                    let text = text(&format!("{end:?} while ready"));
                    return broken("ready and not ready in turn", text);
                }
                if let Final::GaveUp { .. } = end
                    && track.restarts.is_some()
                    && let Some(rule) = &rules.give_up
                    && track.counted(at, &rule.window, true) + track.deaths < rule.max_restarts
                {
                    let text = text("it gave up before its budget was used");
                    return broken("gives up only once the budget is used", text);
                }
                if let (Final::GaveUp { .. }, Some(rule)) = (end, &rules.give_up)
                    && let Then::Requeue { max_requeues, .. } = rule.then
                {
                    let copy = (name.service.clone(), name.index);
                    match self.given_up.entry(copy) {
                        // However that ends which lived at the order, it may be renewed by it.
                        Entry::Vacant(first) if self.asked.contains(&name.service) => {
                            first.insert(0);
                        }
                        Entry::Vacant(first) => {
                            first.insert(1);
                        }
                        Entry::Occupied(mut times) => *times.get_mut() += 1,
                    }
                    let copy = (name.service.clone(), name.index);
                    let times = self.given_up.get(&copy).copied().unwrap_or(0);
                    let excused = self.excused.get(&copy).copied().unwrap_or(0);
                    if times > max_requeues.saturating_add(1).saturating_add(excused) {
                        let text = text(&format!("it gave up {times} times"));
                        return broken("no more requeues than granted", text);
                    }
                }
                self.told.remove(name);
                let end = End {
                    how: end.clone(),
                    is_unsure: false,
                    may_begin_anew: false,
                };
                self.ends.insert(name.clone(), end);
            }
        }
        Ok(())
    }
}

impl Track {
    /// Of an incarnation that was not restarted yet.
    fn begun() -> Self {
        Self {
            restarts: Some(0),
            ..Self::default()
        }
    }

    fn within_budget(&mut self, at: Monotonic, rules: &Config) -> Result<(), String> {
        let Some(rule) = &rules.give_up else {
            // Nothing is counted; nothing needs to be kept.
            self.granted.clear();
            return Ok(());
        };
        let counted = self.counted(at, &rule.window, false);
        if counted > rule.max_restarts {
            return Err(format!(
                "restart {counted} within {:?}, where {} are granted",
                rule.window, rule.max_restarts
            ));
        }
        Ok(())
    }

    /// How many grants the window holds that ends at `at`, maybe with those that nobody knows of any more.
    fn counted(&self, at: Monotonic, window: &Window, with_lost: bool) -> u32 {
        let window = span(window);
        let all = self.granted.values().filter(|it| with_lost || !it.is_lost);
        let inside = all.filter(|it| at.since(it.at) < window);
        u32::try_from(inside.count()).unwrap_or(u32::MAX)
    }
}

const fn span(window: &Window) -> Duration {
    match window {
        Window::Span(span) => *span,
        Window::Lifetime => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use portreeve::identity::Incarnation;
    use portreeve::supervision::ExitStatus;

    use super::super::stage::profile;
    use super::*;

    struct World {
        restarts: Restarts,
        rules: Config,
        name: ReplicaName,
        is_full: bool,
    }

    impl World {
        fn new() -> Self {
            let rest = "[restart]\nbackoff = { max = \"2s\", jitter = 0.0 }\n\
                        give_up = { max_restarts = 2, window = \"60s\" }\n";
            Self {
                restarts: Restarts::default(),
                rules: Config::clone(&profile("web", rest).supervision),
                name: ReplicaName {
                    service: "web.alice".parse().unwrap(),
                    index: 0,
                    incarnation: Incarnation(1),
                },
                is_full: false,
            }
        }

        fn told(&mut self, at: u64, run: u32, report: Report) -> Result<(), &'static str> {
            let at = Monotonic::from_millis(at);
            let at = (at, self.is_full);
            let found = (self.restarts).told(at, &self.name, Run(run), &report, &self.rules);
            found.map_err(|it| it.invariant)
        }
    }

    fn backoff() -> Report {
        Report::Backoff {
            reason: exit(),
            delay: Duration::from_secs(1),
        }
    }

    const fn exit() -> Reason {
        Reason::Exit(ExitStatus::Code(1))
    }

    fn gave_up() -> Report {
        Report::Final(Final::GaveUp {
            reason: exit(),
            count: 2,
        })
    }

    #[test]
    fn one_restart_above_the_budget_is_found_and_one_that_left_the_window_is_not() {
        let mut world = World::new();
        assert_eq!(world.told(1000, 1, backoff()), Ok(()));
        assert_eq!(world.told(2000, 2, backoff()), Ok(()));
        let found = world.told(60_999, 3, backoff());
        assert_eq!(found, Err("no more restarts than granted"));
        let mut world = World::new();
        assert_eq!(world.told(1000, 1, backoff()), Ok(()));
        assert_eq!(world.told(2000, 2, backoff()), Ok(()));
        assert_eq!(world.told(61_000, 3, backoff()), Ok(()));
        // Decided again by a worker that took over: one restart.
        assert_eq!(world.told(61_500, 3, backoff()), Ok(()));
    }

    #[test]
    fn a_restart_that_could_not_be_written_down_counts_until_its_worker_dies() {
        for dies in [false, true] {
            let mut world = World::new();
            assert_eq!(world.told(1000, 1, backoff()), Ok(()));
            world.is_full = true;
            assert_eq!(world.told(2000, 2, backoff()), Ok(()));
            if dies {
                world.restarts.worker_died(&world.name.clone(), true);
            }
            world.is_full = false;
            let found = world.told(3000, 3, backoff());
            assert_eq!(found.is_ok(), dies);
            let found = world.told(4000, 4, backoff());
            assert_eq!(found, Err("no more restarts than granted"));
        }
    }

    #[test]
    fn giving_up_too_early_and_anything_after_the_end_is_found() {
        let mut world = World::new();
        assert_eq!(world.told(1000, 1, backoff()), Ok(()));
        let found = world.told(2000, 2, gave_up());
        assert_eq!(found, Err("gives up only once the budget is used"));
        let mut world = World::new();
        assert_eq!(world.told(1000, 1, backoff()), Ok(()));
        assert_eq!(world.told(2000, 2, backoff()), Ok(()));
        assert_eq!(world.told(3000, 3, gave_up()), Ok(()));
        assert_eq!(world.told(3000, 3, gave_up()), Ok(()));
        let found = world.told(4000, 4, Report::Ready);
        assert_eq!(found, Err("nothing after the end"));
        // A store from before its end has it begin once more, and only once.
        world.restarts.begins_anew(&world.name.clone());
        assert_eq!(world.told(5000, 1, Report::Ready), Ok(()));
        let stopped = Report::Final(Final::Stopped);
        assert_eq!(world.told(6000, 1, Report::NotReady(Reason::User)), Ok(()));
        assert_eq!(world.told(6000, 1, stopped), Ok(()));
        let found = world.told(7000, 1, Report::Ready);
        assert_eq!(found, Err("nothing after the end"));
    }

    #[test]
    fn a_copy_that_is_requeued_too_often_is_found() {
        let mut world = World::new();
        if let Some(rule) = &mut world.rules.give_up {
            rule.max_restarts = 0;
            rule.then = Then::Requeue {
                rest: Duration::from_secs(60),
                max_requeues: 2,
            };
        }
        // What nobody asked for before lives nowhere: a submit renews nothing.
        world.restarts.asked(&world.name.service.clone());
        for incarnation in 1..=3 {
            world.name.incarnation = Incarnation(incarnation);
            assert_eq!(world.told(1000, 1, gave_up()), Ok(()));
        }
        world.name.incarnation = Incarnation(4);
        let again = world.restarts.given_up.clone();
        assert_eq!(
            world.told(1000, 1, gave_up()),
            Err("no more requeues than granted")
        );
        world.restarts.given_up = again.clone();
        let service = world.name.service.clone();
        world.restarts.keep(&service, |index| index == 0);
        assert!(world.told(1000, 1, gave_up()).is_err());
        world.restarts.given_up = again.clone();
        world.restarts.keep(&service, |index| index > 0);
        assert_eq!(world.told(1000, 1, gave_up()), Ok(()));
        world.name.incarnation = Incarnation(5);
        world.restarts.given_up = again;
        world.restarts.asked(&world.name.service.clone());
        assert_eq!(world.told(1000, 1, gave_up()), Ok(()));
    }

    #[test]
    fn reports_out_of_turn_are_found_and_forgiven_to_a_worker_that_took_over() {
        let mut world = World::new();
        assert_eq!(world.told(1000, 1, Report::Ready), Ok(()));
        let found = world.told(2000, 1, Report::Ready);
        assert_eq!(found, Err("ready and not ready in turn"));
        world.restarts.worker_died(&world.name.clone(), false);
        assert_eq!(world.told(3000, 1, Report::Ready), Ok(()));
        let found = world.told(4000, 1, backoff());
        assert_eq!(found, Err("ready and not ready in turn"));
        let mut world = World::new();
        let restarted = |count| Report::Restarted {
            count,
            reason: exit(),
            user_restarts: 0,
        };
        assert_eq!(world.told(1000, 2, restarted(1)), Ok(()));
        let found = world.told(2000, 3, restarted(3));
        assert_eq!(found, Err("restarts are counted once"));
        // What was counted on a full disk dies with its worker; one more than that does not.
        for (lost, is_right) in [(2, true), (3, false)] {
            let mut world = World::new();
            assert_eq!(world.told(1000, 2, restarted(1)), Ok(()));
            world.is_full = true;
            assert_eq!(world.told(2000, 3, restarted(2)), Ok(()));
            world.is_full = false;
            world.restarts.worker_died(&world.name.clone(), false);
            let not_ready = Report::NotReady(exit());
            assert_eq!(world.told(3000, 3, not_ready), Ok(()));
            let found = world.told(3000, 3, restarted(3 - lost));
            assert_eq!(found.is_ok(), is_right);
        }
        let mut long = backoff();
        if let Report::Backoff { delay, .. } = &mut long {
            *delay = Duration::from_secs(3);
        }
        assert_eq!(world.told(3000, 3, long), Err("waits within the longest"));
    }
}
