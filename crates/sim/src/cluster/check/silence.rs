//! Nothing changes, so nothing is said: of a cluster at rest the controller hears signs of life only, writes nothing and shows nothing new.

use portreeve::time::Monotonic;

use super::super::wire::Heard;
use super::{Verdict, broken};

/// Since when nothing may be said, if it is so.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    since: Option<Quiet>,
    /// The first word that was said nevertheless.
    said: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Quiet {
    at: Monotonic,
    commits: u64,
    revision: u64,
}

impl Silence {
    /// From now on the cluster is at rest.
    pub(crate) fn begin(&mut self, at: Monotonic, commits: u64, revision: u64) {
        self.since = Some(Quiet {
            at,
            commits,
            revision,
        });
        self.said = None;
    }

    /// Somebody does something to it: it need not be silent any more.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether nothing may be said now.
    pub(crate) const fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// The controller hears something.
    pub(crate) fn asked(&mut self, at: Monotonic, heard: &Heard) {
        if self.since.is_none() || self.said.is_some() {
            return;
        }
        let what = match heard {
            Heard::Lease | Heard::Wanted => return,
            Heard::Report { .. } => "a report".to_owned(),
            Heard::Shutdown => "a shutdown".to_owned(),
            Heard::Status(word) => format!("a word of {}, number {}", word.name, word.seq),
        };
        self.said = Some(format!("{what} at {} ms", at.as_millis()));
    }

    /// What the controller did meanwhile.
    pub(crate) fn check(&self, commits: u64, revision: u64) -> Verdict {
        let Some(quiet) = self.since else {
            return Ok(());
        };
        if let Some(said) = &self.said {
            let text = format!("{said}, at rest since {} ms", quiet.at.as_millis());
            return broken("silence without change", text);
        }
        if (commits, revision) != (quiet.commits, quiet.revision) {
            let text = format!(
                "{} batches and {} revisions at rest since {} ms",
                commits - quiet.commits,
                revision - quiet.revision,
                quiet.at.as_millis()
            );
            return broken("silence without change", text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use portreeve::identity::{Incarnation, Run};
    use portreeve::residency::ReplicaName;

    use super::super::super::wire::Word;
    use super::*;

    #[test]
    fn signs_of_life_are_silence_and_anything_else_is_not() {
        let at = Monotonic::from_millis(5);
        let name = ReplicaName {
            service: "web.alice".parse().unwrap(),
            index: 0,
            incarnation: Incarnation(1),
        };
        let status = Heard::Status(Word {
            name,
            run: Run(1),
            seq: 1,
            is_ready: true,
            has_ended: false,
        });
        let lease = Heard::Lease;
        let mut silence = Silence::default();
        silence.asked(at, &status);
        silence.begin(at, 3, 8);
        silence.asked(at, &lease);
        assert_eq!(silence.check(3, 8), Ok(()));
        let found = silence.check(4, 8).unwrap_err();
        assert_eq!(found.invariant, "silence without change");
        assert!(silence.check(3, 9).is_err());
        silence.asked(at, &status);
        assert!(silence.check(3, 8).is_err());
        silence.end();
        assert_eq!(silence.check(9, 9), Ok(()));
    }
}
