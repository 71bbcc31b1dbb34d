use super::*;
use crate::identity::Incarnation;

type Rules = Uplink<u32, char>;
type Out = Outgoing<u32, char>;

const GRACE: Duration = Duration::from_secs(90);

fn at(ms: u64) -> Now {
    Now {
        mono: Monotonic::from_millis(ms),
        wall: WallClock::from_unix_millis(1_000_000 + ms),
    }
}

fn name(index: u32) -> ReplicaName {
    ReplicaName {
        service: "web.alice".parse().unwrap(),
        index,
        incarnation: Incarnation(0),
    }
}

fn renewal(instance: &str) -> Renewal<'_> {
    Renewal {
        instance,
        period: None,
        grace: Some(GRACE),
        now: None,
    }
}

fn set(instance: &str, revision: u64) -> SetHead<'_> {
    SetHead {
        instance,
        revision,
        report_first: false,
    }
}

/// An agent, and what it wanted last.
struct Rig {
    rules: Rules,
    out: Vec<Out>,
    now: Now,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self {
            rules: Rules::new(1),
            out: Vec::new(),
            now: at(0),
        };
        rig.wake();
        rig
    }

    /// One that has joined `instance`; its poll has the number 3.
    fn joined(instance: &str) -> Self {
        let mut rig = Self::new();
        rig.join(instance);
        rig
    }

    fn join(&mut self, instance: &str) {
        assert_eq!(self.take(), [Outgoing::Gather]);
        self.rules
            .gathered(self.now, BTreeMap::new(), &mut self.out);
        self.taken();
        self.leased(instance);
    }

    /// At the next deadline.
    fn wake(&mut self) {
        let deadline = self.rules.next_deadline().expect("something is due");
        self.now = at(deadline.as_millis().max(self.now.mono.as_millis()));
        self.rules.on_deadline(self.now, &mut self.out);
    }

    fn take(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.out)
    }

    /// The number of the newest question to the controller that tells.
    fn asked(&self) -> u64 {
        let asked = self.out.iter().rev().find_map(|out| match out {
            Outgoing::Report { no, .. }
            | Outgoing::Lease { no, .. }
            | Outgoing::Shutdown { no } => Some(*no),
            _ => None,
        });
        asked.expect("something is told")
    }

    fn polled(&self) -> u64 {
        let asked = self.out.iter().rev().find_map(|out| match out {
            Outgoing::Wanted { no, .. } => Some(*no),
            _ => None,
        });
        asked.expect("the wanted set is asked for")
    }

    fn taken(&mut self) {
        let no = self.asked();
        self.out.clear();
        self.rules.taken(self.now, no, None, &mut self.out);
    }

    fn leased(&mut self, instance: &str) {
        let no = self.asked();
        self.out.clear();
        let renewal = renewal(instance);
        self.rules
            .taken(self.now, no, Some(&renewal), &mut self.out);
    }

    fn unanswered(&mut self) {
        let no = self.asked();
        self.out.clear();
        self.rules.unanswered(self.now, no, &mut self.out);
    }

    fn refused(&mut self) {
        let no = self.asked();
        self.out.clear();
        self.rules.refused(self.now, no, &mut self.out);
    }
}

#[test]
fn a_host_joins_with_everything_then_keeps_its_lease_in_silence() {
    let mut rig = Rig::new();
    assert_eq!(rig.take(), [Outgoing::Gather]);
    let all = BTreeMap::from([(name(0), 'a')]);
    rig.rules.gathered(rig.now, all.clone(), &mut rig.out);
    assert_eq!(
        rig.out,
        [Outgoing::Report {
            no: 1,
            seq: 1,
            observed: 1,
            replicas: all,
            full: true
        }]
    );
    assert_eq!(rig.rules.instance(), None);
    rig.taken();
    assert_eq!(
        rig.out,
        [
            Outgoing::Acknowledged(vec![name(0)]),
            Outgoing::Lease {
                no: 2,
                skew_ms: None
            }
        ]
    );
    rig.leased("first");
    assert_eq!(
        rig.take(),
        [
            Outgoing::Contact {
                at: rig.now.mono,
                grace: Some(GRACE)
            },
            Outgoing::News(News::Told),
            Outgoing::News(News::Joined),
            Outgoing::Wanted { no: 3, since: None },
        ]
    );
    assert_eq!(rig.rules.instance(), Some("first"));
    for no in 4..8 {
        let before = rig.now.mono;
        rig.wake();
        assert_eq!(rig.now.mono.since(before), lease::PERIOD);
        assert_eq!(rig.out, [Outgoing::Lease { no, skew_ms: None }]);
        assert_eq!(rig.rules.next_deadline(), None);
        rig.leased("first");
        assert_eq!(rig.take().len(), 1, "no more than the contact");
    }
}

#[test]
fn a_change_is_told_once_and_what_comes_meanwhile_with_the_next_report() {
    let mut rig = Rig::joined("first");
    rig.take();
    rig.rules.observed(rig.now, 2, &mut rig.out);
    rig.rules.ended(rig.now, name(0), 'a', &mut rig.out);
    rig.rules.observed(rig.now, 3, &mut rig.out);
    let report = |no, seq, observed, replicas: &[(ReplicaName, char)]| Outgoing::Report {
        no,
        seq,
        observed,
        replicas: replicas.iter().cloned().collect(),
        full: false,
    };
    assert_eq!(rig.out, [report(4, 2, 2, &[])]);
    rig.taken();
    assert_eq!(rig.out, [report(5, 3, 3, &[(name(0), 'a')])]);
    rig.rules.observed(rig.now, 2, &mut rig.out);
    rig.rules.observed(rig.now, 3, &mut rig.out);
    rig.taken();
    assert_eq!(rig.take(), [Outgoing::Acknowledged(vec![name(0)])]);
    // An answer that comes twice says nothing new.
    rig.rules.taken(rig.now, 5, None, &mut rig.out);
    rig.rules.unanswered(rig.now, 4, &mut rig.out);
    assert_eq!(rig.take(), []);
}

#[test]
fn what_was_told_in_vain_is_told_again_once_a_lease_is_answered() {
    let mut rig = Rig::joined("first");
    rig.take();
    rig.rules.ended(rig.now, name(0), 'a', &mut rig.out);
    rig.unanswered();
    assert_eq!(rig.take(), [Outgoing::News(News::Lost)]);
    rig.rules.ended(rig.now, name(1), 'b', &mut rig.out);
    assert_eq!(rig.take(), [], "nobody listens");
    rig.wake();
    rig.unanswered();
    assert_eq!(rig.take(), []);
    rig.wake();
    assert!(matches!(rig.out[..], [Outgoing::Lease { .. }]));
    rig.leased("first");
    assert!(
        rig.out
            .contains(&Outgoing::News(News::Found(Duration::from_millis(
                400 + 800
            ))))
    );
    let both = BTreeMap::from([(name(0), 'a'), (name(1), 'b')]);
    assert!(matches!(rig.out.last(), Some(Outgoing::Report { replicas, .. }) if *replicas == both));
}

// A controller whose disk is full takes no end, but answers each lease: every host with an end to tell asked it five
// times a second.
#[test]
fn a_change_that_is_refused_is_told_again_after_twice_the_wait_each_time_and_the_lease_is_kept() {
    let mut rig = Rig::joined("first");
    rig.take();
    rig.rules.ended(rig.now, name(0), 'a', &mut rig.out);
    let (mut told, mut leases, mut warnings) = (Vec::new(), 0, 0);
    for _ in 0..12 {
        let warning = Outgoing::News(News::ChangeRefused);
        warnings += rig.out.iter().filter(|out| **out == warning).count();
        match rig.out.last() {
            Some(Outgoing::Report { .. }) => {
                told.push(rig.now.mono.as_millis());
                rig.refused();
            }
            _ => {
                leases += 1;
                rig.leased("first");
            }
        }
        rig.wake();
    }
    let waits: Vec<_> = told.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(waits[..6], [400, 800, 1600, 3200, 5000, 5000]);
    assert_eq!((leases, warnings), (12 - told.len(), 1));
    // Once it is taken, the next one is told at once.
    while !matches!(rig.out.last(), Some(Outgoing::Report { .. })) {
        rig.leased("first");
        rig.wake();
    }
    rig.taken();
    rig.take();
    rig.rules.observed(rig.now, 2, &mut rig.out);
    assert!(matches!(rig.out[..], [Outgoing::Report { .. }]));
}

#[test]
fn the_numbers_of_reports_rise_through_new_joins_and_from_one_agent_of_a_boot_to_the_next() {
    let seq = |out: &[Out]| {
        let mut told = out.iter().rev();
        told.find_map(|out| match out {
            Outgoing::Report { seq, .. } => Some(*seq),
            _ => None,
        })
    };
    let mut seqs = Vec::new();
    let mut rig = Rig::new();
    for _ in 0..3 {
        // Given up, it may still arrive.
        rig.rules.gathered(rig.now, BTreeMap::new(), &mut rig.out);
        seqs.extend(seq(&rig.out));
        rig.unanswered();
        rig.wake();
    }
    rig.take();
    rig.rules.gathered(rig.now, BTreeMap::new(), &mut rig.out);
    seqs.extend(seq(&rig.out));
    rig.taken();
    rig.leased("first");
    // Several within a millisecond.
    for observed in 2..5 {
        rig.rules.observed(rig.now, observed, &mut rig.out);
        seqs.extend(seq(&rig.out));
        rig.taken();
    }
    assert_eq!(seqs.len(), 7);
    // Another agent of the same boot knows nothing of the one before.
    let now = at(rig.now.mono.as_millis() + 100);
    let (mut next, mut out) = (Rules::new(1), Vec::new());
    next.on_deadline(now, &mut out);
    next.gathered(now, BTreeMap::new(), &mut out);
    seqs.extend(seq(&out));
    assert_eq!(seqs.len(), 8);
    assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
}

#[test]
fn waits_double_until_they_are_as_long_as_between_two_leases() {
    let mut rig = Rig::new();
    let mut waits = Vec::new();
    for _ in 0..6 {
        assert!(rig.take().contains(&Outgoing::Gather));
        rig.rules.gathered(rig.now, BTreeMap::new(), &mut rig.out);
        rig.unanswered();
        let before = rig.now.mono;
        rig.wake();
        waits.push(rig.now.mono.since(before).as_millis());
    }
    assert_eq!(waits, [400, 800, 1600, 3200, 5000, 5000]);
}

#[test]
fn a_new_controller_and_one_that_refuses_the_lease_are_told_everything() {
    let mut rig = Rig::joined("first");
    rig.take();
    rig.rules.ended(rig.now, name(0), 'a', &mut rig.out);
    rig.taken();
    rig.wake();
    rig.leased("second");
    assert_eq!(
        rig.out[1..],
        [Outgoing::News(News::NewController), Outgoing::Gather]
    );
    rig.out.drain(..2);
    rig.join("second");
    assert_eq!(rig.rules.instance(), Some("second"));

    rig.take();
    rig.wake();
    rig.refused();
    assert_eq!(
        rig.take(),
        [
            Outgoing::News(News::LeaseRefused),
            Outgoing::News(News::Lost)
        ]
    );
    rig.wake();
    rig.join("second");
}

#[test]
fn the_wanted_set_is_acted_on_once_and_asked_for_again_at_once() {
    let mut rig = Rig::joined("first");
    let wanted = |rig: &mut Rig, set: Option<SetHead<'_>>, more| {
        let no = rig.polled();
        rig.out.clear();
        rig.rules
            .wanted(rig.now, no, set.as_ref(), more, &mut rig.out)
    };
    assert_eq!(
        wanted(&mut rig, Some(set("first", 7)), false),
        Fitness::News
    );
    let since = Some(7);
    assert_eq!(rig.out, [Outgoing::Wanted { no: 4, since }]);
    assert_eq!(wanted(&mut rig, None, false), Fitness::Known);
    assert_eq!(rig.out, [Outgoing::Wanted { no: 5, since }]);
    // A reader waits for a piece of a log.
    assert_eq!(
        wanted(&mut rig, Some(set("first", 7)), true),
        Fitness::Known
    );
    assert_eq!(rig.out, [Outgoing::Wanted { no: 6, since }]);
    // Nothing at all: no busy loop comes of it.
    assert_eq!(
        wanted(&mut rig, Some(set("first", 7)), false),
        Fitness::Known
    );
    assert_eq!(rig.out, []);
    let before = rig.now.mono;
    rig.wake();
    assert_eq!(rig.now.mono.since(before), Duration::from_millis(200));
    assert_eq!(rig.out, [Outgoing::Wanted { no: 7, since }]);
    // An answer to an earlier question, as a network may bring it.
    let stale = rig
        .rules
        .wanted(rig.now, 6, Some(&set("first", 6)), false, &mut rig.out);
    assert_eq!(stale, Fitness::Stale);
    // Nobody answers.
    rig.out.clear();
    rig.rules.unanswered(rig.now, 7, &mut rig.out);
    assert_eq!(rig.out, []);
    rig.wake();
    assert_eq!(rig.now.mono.since(before), Duration::from_millis(1200));
    assert_eq!(rig.out, [Outgoing::Wanted { no: 8, since }]);
}

#[test]
fn a_set_that_cannot_be_acted_on_asks_for_a_full_report_and_then_with_a_pause() {
    let mut rig = Rig::joined("first");
    for (head, wait) in [
        (set("second", 1), 0),
        (
            SetHead {
                report_first: true,
                ..set("first", 1)
            },
            1000,
        ),
        (set("second", 1), 1000),
    ] {
        let no = rig.polled();
        rig.out.clear();
        let before = rig.now.mono;
        let fitness = rig
            .rules
            .wanted(rig.now, no, Some(&head), false, &mut rig.out);
        assert_eq!(fitness, Fitness::Unfit);
        assert_eq!(rig.out.remove(0), Outgoing::News(News::ReportFirst));
        if wait > 0 {
            assert_eq!(rig.take(), []);
            rig.wake();
        }
        assert_eq!(rig.now.mono.since(before), Duration::from_millis(wait));
        rig.join("first");
    }
    // One that can be acted on makes it good.
    let no = rig.polled();
    rig.rules
        .wanted(rig.now, no, Some(&set("first", 2)), false, &mut rig.out);
    let no = rig.polled();
    rig.out.clear();
    rig.rules.refused(rig.now, no, &mut rig.out);
    assert_eq!(
        rig.take(),
        [Outgoing::News(News::ReportFirst), Outgoing::Gather]
    );
}

#[test]
fn a_set_of_the_joined_controller_is_acted_on_while_another_is_told_everything() {
    let mut rig = Rig::joined("first");
    let poll = rig.polled();
    rig.wake();
    rig.leased("second");
    rig.take();
    let fitness = rig
        .rules
        .wanted(rig.now, poll, Some(&set("first", 1)), false, &mut rig.out);
    assert_eq!(fitness, Fitness::News);
    // Asked anew, the first one's answer is none.
    rig.out.clear();
    rig.out.push(Outgoing::Gather);
    rig.join("second");
    assert!(matches!(
        rig.out.last(),
        Some(Outgoing::Wanted { since: None, .. })
    ));
}

#[test]
fn a_shutdown_is_told_at_once_and_again_at_every_join() {
    let mut rig = Rig::joined("first");
    rig.take();
    assert!(!rig.rules.is_closing());
    rig.rules.close(rig.now, &mut rig.out);
    rig.rules.close(rig.now, &mut rig.out);
    assert!(rig.rules.is_closing());
    assert_eq!(rig.out, [Outgoing::Shutdown { no: 4 }]);
    rig.unanswered();
    assert_eq!(
        rig.take(),
        [
            Outgoing::News(News::Lost),
            Outgoing::News(News::ShutdownUntold)
        ]
    );
    // A full report alone reads as a host that is there for good.
    rig.wake();
    rig.rules.gathered(rig.now, BTreeMap::new(), &mut rig.out);
    rig.taken();
    assert!(matches!(rig.out[..], [Outgoing::Shutdown { .. }]));
    // One that does not know the word is joined all the same.
    rig.refused();
    assert!(matches!(
        rig.out[..],
        [
            Outgoing::News(News::ShutdownRefused),
            Outgoing::Lease { .. }
        ]
    ));
    rig.leased("first");
    rig.wake();
    assert!(matches!(rig.out.last(), Some(Outgoing::Lease { .. })));
}

#[test]
fn the_skew_of_the_display_clock_is_told_with_the_next_lease_and_warned_of_once() {
    let mut rig = Rig::joined("first");
    let mut warnings = 0;
    for _ in 0..3 {
        rig.wake();
        let no = rig.asked();
        rig.out.clear();
        let wall = rig.now.wall.before(Duration::from_secs(10));
        let renewal = Renewal {
            now: Some(wall),
            ..renewal("first")
        };
        rig.rules.taken(rig.now, no, Some(&renewal), &mut rig.out);
        let warning = Outgoing::News(News::Skewed(10_000));
        warnings += rig.out.iter().filter(|out| **out == warning).count();
    }
    assert_eq!(warnings, 1);
    rig.wake();
    assert!(matches!(
        rig.out.last(),
        Some(Outgoing::Lease {
            skew_ms: Some(10_000),
            ..
        })
    ));
}

#[test]
fn the_controller_says_how_often_and_only_within_bounds() {
    let mut rig = Rig::joined("first");
    for (asked, kept) in [(1, 100), (500, 500), (60_000, 5_000)] {
        rig.wake();
        let no = rig.asked();
        rig.out.clear();
        let renewal = Renewal {
            period: Some(Duration::from_millis(asked)),
            ..renewal("first")
        };
        rig.rules.taken(rig.now, no, Some(&renewal), &mut rig.out);
        let next = rig.rules.next_deadline().unwrap();
        assert_eq!(next.since(rig.now.mono), Duration::from_millis(kept));
    }
}
