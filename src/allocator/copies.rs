//! Copies of hosts on which a what-if tries things, kept for the next one.

use crate::identity::HostId;

use super::host::Host;

/// The copies of one what-if after the other. A host that an earlier what-if touched is copied into the memory of
/// its former copy, so that who asks about the same hosts again and again allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Ascending by host.
    all: Vec<Kept>,
    /// Which of them this what-if made, in the order in which it did.
    used: Vec<HostId>,
    /// Which what-if it is: copies of earlier ones are only memory.
    turn: u64,
    /// Where the search for memory of another host goes on.
    hand: usize,
}

#[derive(Debug)]
struct Kept {
    host: HostId,
    turn: u64,
    copy: Box<Host>,
}

/// How many copies are kept before the memory of another host's is used. A what-if that touches more hosts than
/// these has a copy of each of them.
const MOST_KEPT: usize = if cfg!(test) { 32 } else { 1024 };

impl Copies {
    /// The copy of a host, if this what-if made one.
    pub(super) fn get(&self, host: HostId) -> Option<&Host> {
        let at = self.place(host).ok()?;
        Some(&*self.all[at].copy).filter(|_| self.all[at].turn == self.turn)
    }

    /// As [`Self::get`].
    pub(super) fn get_mut(&mut self, host: HostId) -> Option<&mut Host> {
        let at = self.place(host).ok()?;
        let Kept { turn, copy, .. } = &mut self.all[at];
        (*turn == self.turn).then_some(&mut **copy)
    }

    /// Every copy of this what-if.
    pub(super) fn iter(&self) -> impl Iterator<Item = (HostId, &Host)> {
        let used = self.used.iter();
        used.filter_map(|host| Some((*host, self.get(*host)?)))
    }

    /// Copies a host of which this what-if has no copy yet.
    pub(super) fn make(&mut self, host: HostId, from: &Host) -> &mut Host {
        let turn = self.turn;
        let at = match self.place(host) {
            Ok(at) => {
                self.all[at].copy.copy_from(from);
                at
            }
            Err(_) => {
                let copy = match self.spare() {
                    Some(mut copy) => {
                        copy.copy_from(from);
                        copy
                    }
                    None => Box::new(from.copy()),
                };
                // Its memory may have stood below.
                let at = self.place(host).unwrap_or_else(|at| at);
                self.all.insert(at, Kept { host, turn, copy });
                at
            }
        };
        self.used.push(host);
        let kept = &mut self.all[at];
        kept.turn = turn;
        &mut kept.copy
    }

    /// Forgets every copy, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.used.clear();
        self.turn += 1;
    }

    /// The memory of a copy that is only memory, once there are enough: of each in turn.
    fn spare(&mut self) -> Option<Box<Host>> {
        let many = self.all.len();
        if many < MOST_KEPT || many == self.used.len() {
            return None;
        }
        let from = self.hand;
        let mut places = (0..many).map(|step| (from + step) % many);
        let at = places.find(|at| self.all[*at].turn != self.turn)?;
        self.hand = at;
        Some(self.all.remove(at).copy)
    }

    fn place(&self, host: HostId) -> Result<usize, usize> {
        self.all.binary_search_by_key(&host, |kept| kept.host)
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::HostSpec;
    use super::*;

    fn host(name: &str) -> Host {
        Host::new(HostSpec::new(name.parse().unwrap()))
    }

    #[test]
    fn a_what_if_sees_its_own_copies_and_none_of_the_one_before() {
        let mut copies = Copies::default();
        copies.make(HostId(7), &host("a"));
        copies.make(HostId(3), &host("b"));
        assert_eq!(copies.iter().count(), 2);
        assert_eq!(copies.get(HostId(3)).unwrap().name.as_str(), "b");
        copies.clear();
        assert!(copies.get(HostId(3)).is_none() && copies.iter().next().is_none());
        copies.make(HostId(3), &host("c"));
        assert_eq!(copies.get(HostId(3)).unwrap().name.as_str(), "c");
        assert!(copies.get_mut(HostId(7)).is_none());
        assert_eq!(copies.all.len(), 2);
    }

    #[test]
    fn what_touches_other_hosts_each_time_keeps_few_copies_and_one_that_touches_many_has_all() {
        let mut copies = Copies::default();
        for number in (0..100).rev() {
            copies.make(HostId(number), &host("a"));
            assert_eq!(copies.iter().map(|(id, _)| id.0).sum::<u32>(), number);
            copies.clear();
        }
        assert_eq!(copies.all.len(), MOST_KEPT);
        for number in 50..150 {
            copies.make(HostId(number), &host("b"));
        }
        let whole = |number| copies.get(HostId(number)).unwrap().name.as_str() == "b";
        assert!((50..150).all(whole) && copies.get(HostId(1)).is_none());
        assert!(copies.all.is_sorted_by_key(|kept| kept.host));
        assert_eq!(copies.all.len(), 100);
    }
}
