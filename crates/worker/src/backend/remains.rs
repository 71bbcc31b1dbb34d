//! What a run left when its shim died: nobody is its parent any more.
//!
//! Its processes are known by the variables they inherited, by the main process that the shim wrote down,
//! by the session that one still lives in, and by descent. A service may clear or overwrite its
//! environment, as `env -i` and databases that write a title do, and a child may leave the session; each
//! sign finds what another misses.

use std::collections::BTreeSet;
use std::io;

use portreeve_api::local::ProcessIdentity;

use crate::process::{self, Stat};

/// The processes of one run, found anew at each look until none is left.
pub(super) struct Remains<'a> {
    /// What its processes inherit.
    pub(super) mark: &'a [(String, String)],
    /// The main process, and the shim that made it.
    pub(super) main: Option<(ProcessIdentity, u32)>,
    /// Found at earlier looks: a child whose parent was killed meanwhile shows nothing of it any more.
    pub(super) found: Vec<Stat>,
}

impl Remains<'_> {
    /// Every process of the run that lives.
    ///
    /// # Errors
    ///
    /// The system's: there may be more.
    pub(super) fn living(&mut self) -> io::Result<&[Stat]> {
        let marked = process::with_variables(self.mark)?;
        let all = process::living()?;
        let same =
            |one: &Stat, other: &Stat| (one.pid, one.start_ticks) == (other.pid, other.start_ticks);
        let main = self.main.as_ref().and_then(|(main, shim)| {
            let identity = |one: &&Stat| (one.pid, one.start_ticks) == (main.pid, main.start_ticks);
            let main = all.iter().find(identity)?;
            Some((main, *shim))
        });
        let is_member = |one: &Stat| {
            marked.iter().chain(&self.found).any(|other| same(one, other))
                // As long as the main process lives in it, the session's number cannot be another's. One that
                // neither the shim nor the main process made is not the run's alone.
                || main.is_some_and(|(main, shim)| {
                    same(one, main)
                        || one.session == main.session && [shim, main.pid].contains(&main.session)
                })
        };
        let mut members: BTreeSet<u32> = all
            .iter()
            .filter(|one| is_member(one))
            .map(|one| one.pid)
            .collect();
        loop {
            let below = all.iter().filter(|one| members.contains(&one.parent));
            let more: BTreeSet<u32> = below.map(|one| one.pid).collect();
            if more.is_subset(&members) {
                break;
            }
            members.extend(more);
        }
        self.found = all
            .into_iter()
            .filter(|one| members.contains(&one.pid))
            .collect();
        Ok(&self.found)
    }
}
