//! Silence of hosts: nobody is given up within the grace, and what is given up is listed no more.

use std::time::Duration;

use portreeve::registry::Silence;
use portreeve::time::Monotonic;

use super::super::act::HostNo;
use super::{Verdict, broken};

/// When hosts were heard of.
#[derive(Debug)]
pub(crate) struct Contacts {
    grace: Option<Duration>,
    /// The controller begins, or goes on after a long halt: its own absence is no silence of hosts.
    began: Monotonic,
    /// Since when it stands still.
    halted: Option<Monotonic>,
    suspect_after: Duration,
    hosts: Vec<Contact>,
}

/// Hosts are looked at in ticks of so long.
const TICK: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Default)]
struct Contact {
    heard: Option<Monotonic>,
    /// The boot and the number of the newest report: one that was overtaken is no sign of life.
    report: Option<(String, u64)>,
    /// So many orders that it be taken for lost are on their way, and may be carried out at any time.
    ordered: u32,
    /// One was carried out since readers saw it last.
    declared: bool,
    lost: bool,
}

impl Contacts {
    pub(crate) fn new(hosts: usize, silence: Option<Silence>) -> Self {
        Self {
            grace: silence.map(|it| it.host_grace()),
            began: Monotonic::default(),
            halted: None,
            suspect_after: silence.unwrap_or_default().suspect_after(),
            hosts: vec![Contact::default(); hosts],
        }
    }

    /// A controller begins.
    pub(crate) fn begin(&mut self, now: Monotonic) {
        self.began = now;
        self.halted = None;
        for contact in &mut self.hosts {
            contact.report = None;
        }
    }

    /// It stands still from now on.
    pub(crate) fn halt(&mut self, now: Monotonic) {
        self.halted.get_or_insert(now);
    }

    /// It goes on. After a halt that is noticed for sure, every grace begins anew: it looks at each host once in
    /// `suspect_after`, and takes a look that comes late by half of that for a halt.
    pub(crate) fn go_on(&mut self, now: Monotonic) {
        let halted = self.halted.take();
        let noticed = self.suspect_after * 3 / 2 + TICK;
        if halted.is_some_and(|since| now.since(since) >= noticed) {
            self.began = now;
        }
    }

    /// The controller that begins finds it given up already.
    pub(crate) fn found_lost(&mut self, host: HostNo) {
        self.hosts[host].lost = true;
    }

    /// The controller heard a sign of life of the host.
    pub(crate) fn heard(&mut self, host: HostNo, now: Monotonic) {
        self.hosts[host].heard = Some(now);
    }

    /// The controller took in a report of the host, of this boot and number. Whether it was a sign of life.
    pub(crate) fn reported(&mut self, host: HostNo, number: Option<&(String, u64)>) -> bool {
        let before = &mut self.hosts[host].report;
        let is_overtaken = before
            .as_ref()
            .zip(number)
            .is_some_and(|((of, newest), (boot, it))| of == boot && it <= newest);
        if !is_overtaken {
            *before = number.cloned();
        }
        !is_overtaken
    }

    /// Somebody orders that the host be taken for lost.
    pub(crate) fn ordered(&mut self, host: HostNo) {
        self.hosts[host].ordered += 1;
    }

    /// What became of that: `may_be_done` if it was not refused.
    pub(crate) fn answered(&mut self, host: HostNo, may_be_done: bool) {
        let contact = &mut self.hosts[host];
        contact.ordered = contact.ordered.saturating_sub(1);
        contact.declared |= may_be_done;
    }

    /// Whether readers saw it lost at the last look.
    pub(crate) fn is_lost(&self, host: HostNo) -> bool {
        self.hosts[host].lost
    }

    /// How readers see the host now.
    pub(crate) fn check(
        &mut self,
        host: HostNo,
        name: &str,
        is_lost: bool,
        now: Monotonic,
    ) -> Verdict {
        let contact = &mut self.hosts[host];
        let was_lost = std::mem::replace(&mut contact.lost, is_lost);
        let declared = std::mem::take(&mut contact.declared) || contact.ordered > 0;
        if was_lost || !is_lost {
            return Ok(());
        }
        let Some(grace) = self.grace.filter(|_| !declared) else {
            return Ok(());
        };
        let heard = contact.heard.unwrap_or_default().max(self.began);
        if now.since(heard) < grace {
            let text = format!(
                "{name} is lost at {} ms, heard of at {} ms; the grace is {grace:?}",
                now.as_millis(),
                heard.as_millis()
            );
            return broken("nobody is lost within the grace", text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    #[test]
    fn a_host_that_is_given_up_too_early_is_found() {
        let mut contacts = Contacts::new(1, Some(Silence::default()));
        contacts.heard(0, at(10_000));
        assert_eq!(contacts.check(0, "n1", false, at(20_000)), Ok(()));
        assert_eq!(contacts.clone_check(at(100_000)), Ok(()));
        assert!(contacts.clone_check(at(99_999)).is_err());
        // A start of the controller is no silence of the host.
        contacts.begin(at(50_000));
        assert!(contacts.clone_check(at(100_000)).is_err());
        assert_eq!(contacts.clone_check(at(140_000)), Ok(()));
        // A halt of it is none either, where it is long.
        for (went_on, due) in [(180_249, 140_000), (180_250, 270_250)] {
            let mut halted = Contacts::new(1, Some(Silence::default()));
            halted.heard(0, at(50_000));
            halted.halt(at(150_000));
            halted.go_on(at(went_on));
            assert!(halted.clone_check(at(due - 1)).is_err());
            assert_eq!(halted.clone_check(at(due)), Ok(()));
        }
        let mut stored = Contacts::new(1, Some(Silence::default()));
        stored.found_lost(0);
        assert_eq!(stored.clone_check(at(1)), Ok(()));
        // One that was overtaken is no sign of life, unless the controller is another one.
        let number = |seq| Some(("boot".to_owned(), seq));
        assert!(stored.reported(0, number(2).as_ref()) && !stored.reported(0, number(1).as_ref()));
        stored.begin(at(2));
        assert!(stored.reported(0, number(1).as_ref()));
        // It is back while an order is on its way, and that is done then.
        contacts.ordered(0);
        assert_eq!(contacts.check(0, "n1", true, at(60_000)), Ok(()));
        assert_eq!(contacts.check(0, "n1", false, at(60_000)), Ok(()));
        contacts.answered(0, true);
        assert_eq!(contacts.clone_check(at(60_000)), Ok(()));
        assert_eq!(contacts.check(0, "n1", false, at(60_000)), Ok(()));
        assert!(contacts.clone_check(at(60_000)).is_err());
    }

    impl Contacts {
        fn clone_check(&self, now: Monotonic) -> Verdict {
            let mut twin = Self {
                hosts: self.hosts.clone(),
                ..*self
            };
            twin.check(0, "n1", true, now)
        }
    }
}
