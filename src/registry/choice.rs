//! Which host one replica gets, of all that take it.
//!
//! The rule is [`Registry::rank`], the least wins. Of a large cluster few hosts are asked: where one of the emptiest has none
//! of the service yet, nothing that comes after it could be better.

use std::sync::Arc;

use crate::identity::{HostId, HostName, ReplicaId, ServiceId};
use crate::port_pool::{PortGrant, PortRequest};
use crate::profile::Profile;

use super::machine::Registry;
use super::pending::{Depth, Seeker};
use super::placement::allows;
use super::records::Host;
use super::spread::Crowd;
use super::survey::Survey;
use super::usages::{Claim, Usages};

/// One that seeks a place.
pub(super) struct Seeks {
    pub(super) id: ReplicaId,
    pub(super) profile: Arc<Profile>,
    pub(super) request: PortRequest,
    /// Where it was, and with which numbers.
    pub(super) former: Option<(HostId, PortGrant)>,
    /// Whether it would be anywhere rather than there.
    pub(super) avoids: bool,
    /// How many of its service there shall be.
    pub(super) desired: u32,
}

impl Registry {
    /// The best host for it and its numbers there, else why there is none.
    pub(super) fn choose(
        &mut self,
        seeks: &Seeks,
        claim: &Claim,
        usages: &Usages,
        room: &mut usize,
    ) -> Result<(HostId, PortGrant), Survey> {
        match self.among_the_emptiest(seeks, claim, usages) {
            Some(best) => Ok(best),
            None => self.among_all(seeks, claim, usages, room),
        }
    }

    /// The host that [`Registry::among_all`] would choose, where few have to be asked to be sure of it: the former one, else
    /// that of the emptiest which has none of the service yet. `None`: all have to be looked at.
    fn among_the_emptiest(
        &mut self,
        seeks: &Seeks,
        claim: &Claim,
        usages: &Usages,
    ) -> Option<(HostId, PortGrant)> {
        /// A large cluster has as many of which most take it.
        const ASKED: usize = 256;
        let service = seeks.id.service;
        let former = seeks.former.as_ref().map(|(host, _)| *host);
        let takes = |host: HostId| {
            let crowd = self.spread.crowd();
            let (profile, record) = (&seeks.profile, self.truth.hosts.find(&host));
            let is_candidate = |it: &Host| {
                it.removed.is_none()
                    && allows(&profile.placement, it)
                    && self.is_candidate(it, service, profile, crowd)
            };
            record.is_some_and(is_candidate) && !usages.is_reached_on(claim, host) && {
                let alone = std::iter::once(host).collect();
                let now = self.now.mono;
                let takes = self.pools.feasible(now, service, &seeks.request, &alone);
                takes.contains(host)
            }
        };
        let stays = former.filter(|host| !seeks.avoids && takes(*host));
        let best = stays.or_else(|| {
            let others = self.spread.emptiest().take(ASKED);
            let mut others = others.filter(|host| Some(*host) != former);
            let crowd = self.spread.crowd();
            others.find(|host| crowd.of_service(service, *host) == 0 && takes(*host))
        })?;
        #[cfg(test)]
        self.assert_best(seeks, claim, usages, best);
        let grant = self.reserve(seeks, best)?;
        Some((best, grant))
    }

    /// The best of all hosts, else why there is none. Cost: a look at each host.
    fn among_all(
        &mut self,
        seeks: &Seeks,
        claim: &Claim,
        usages: &Usages,
        room: &mut usize,
    ) -> Result<(HostId, PortGrant), Survey> {
        let service = seeks.id.service;
        let mut candidates = self.candidates(service, &seeks.profile, self.spread.crowd());
        let limited = usages.reached_on(claim, |host| self.host_name(host));
        candidates.retain(|host| !limited.contains_key(host));
        let at = seeks.former.as_ref().map(|(host, _)| *host);
        let wish = at.map(|at| (at, seeks.avoids));
        let among = candidates.iter().copied().collect();
        // Most who wait fit nowhere: who does is known before anything is put in order.
        let now = self.now.mono;
        let mut feasible = self.pools.feasible(now, service, &seeks.request, &among);
        while let Some((_, best)) = feasible
            .iter()
            .map(|host| (self.rank(self.spread.crowd(), service, host, wish), host))
            .min()
        {
            if let Some(grant) = self.reserve(seeks, best) {
                return Ok((best, grant));
            }
            feasible.remove(best);
        }
        let seeker = Seeker {
            service,
            profile: &seeks.profile,
            request: &seeks.request,
            candidates: &candidates,
            limited: &limited,
            desired: seeks.desired,
        };
        let survey = self.survey(&seeker, Depth::pending(*room));
        *room = room.saturating_sub(usize::try_from(survey.asked).unwrap_or(usize::MAX));
        Err(survey)
    }

    /// Numbers on this host, if it has them after all.
    fn reserve(&mut self, seeks: &Seeks, host: HostId) -> Option<PortGrant> {
        let (request, former) = (&seeks.request, seeks.former.as_ref());
        self.pools
            .place(self.now.mono, seeks.id, request, former, host)
    }

    /// In which order hosts that fit are taken: the former one first, or last where it is to be avoided; then spread
    /// of the service, fewest held, and the name.
    pub(super) fn rank(
        &self,
        crowd: &Crowd,
        service: ServiceId,
        host: HostId,
        former: Option<(HostId, bool)>,
    ) -> (u8, u32, u32, HostName) {
        let wish = match former {
            Some((at, false)) if at == host => 0,
            Some((at, true)) if at == host => 2,
            _ => 1,
        };
        let name = self.host_name(host);
        let of_service = crowd.of_service(service, host);
        (wish, of_service, crowd.numbers(host), name)
    }

    /// Holds what few hosts gave against a look at all.
    #[cfg(test)]
    fn assert_best(&self, seeks: &Seeks, claim: &Claim, usages: &Usages, best: HostId) {
        let (service, crowd) = (seeks.id.service, self.crowd());
        let candidates = self.candidates(service, &seeks.profile, &crowd).into_iter();
        let among = candidates.filter(|host| !usages.is_reached_on(claim, *host));
        let among = among.collect();
        let now = self.now.mono;
        let feasible = (self.pools).feasible(now, service, &seeks.request, &among);
        let wish = seeks.former.as_ref().map(|(at, _)| (*at, seeks.avoids));
        let ranked = feasible
            .iter()
            .map(|host| (self.rank(&crowd, service, host, wish), host));
        assert_eq!(ranked.min().map(|(_, host)| host), Some(best));
    }
}
