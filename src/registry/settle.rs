//! Ends: what a final report, a stranger's port or a reboot make of a replica. Truth, decided from what hosts told.
//!
//! Every decision looks at what is, not at what just happened, so one that could not be stored is made again.

use std::time::Duration;

use crate::identity::{HostId, Incarnation, ServiceId};
use crate::port::Port;
use crate::port_pool::Want as Wanted;
use crate::profile::Profile;
use crate::residency::ReplicaName;
use crate::supervision::{ExitCause, Final, GiveUp, RestartPolicy, State, Status, Then, Window};
use crate::time::Spelled;

use super::host_shutdown::HOST_SHUTDOWN;
use super::hosts::Leftover;
use super::machine::Registry;
use super::records::{EndKind, Phase, Placement, StopOrder, StopWhy, WaitCause};
use super::truth::ReplicaKey;

/// How many new placements after strangers' ports a replica gets within [`CONFLICT_WINDOW`].
const CONFLICTS_ALLOWED: usize = 5;

/// How long such a placement counts.
const CONFLICT_WINDOW: Duration = Duration::from_secs(600);

/// The longest rest after a give-up.
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// What ended on a host.
enum End {
    Final(Final),
    Rebooted,
    /// It may still run, on a host that is given up.
    HostLost,
}

/// What follows an end.
enum Next {
    End(EndKind, String),
    Renew(WaitCause, Option<Duration>, String),
    Remove(String),
}

impl Next {
    /// What is told of the end.
    fn text(&self) -> &str {
        match self {
            Self::End(_, text) | Self::Renew(_, _, text) | Self::Remove(text) => text,
        }
    }
}

impl Registry {
    /// Frees the ports of every replica of the service that ended on its host, and decides what follows.
    pub(super) fn settle(&mut self, service: ServiceId) {
        self.stop_for_shutdown(service);
        let ended: Vec<_> = self
            .truth
            .replicas_of(service)
            .filter_map(|(index, replica)| match &replica.phase {
                Phase::Placed(placement) => match replica.status.as_ref().map(|it| &it.state) {
                    Some(State::Final(end)) => Some((index, End::Final(end.clone()))),
                    _ if self.was_rebooted(placement) => Some((index, End::Rebooted)),
                    _ if self.lost(placement.host).is_some() => Some((index, End::HostLost)),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        for (index, end) in ended {
            self.conclude((service, index), &end);
        }
    }

    /// Whether the host is in another boot than the placement: every run of it is gone.
    pub(super) fn was_rebooted(&self, placement: &Placement) -> bool {
        let host = self.truth.hosts.find(&placement.host);
        host.is_some_and(|host| host.facts.boot_id != placement.boot_id)
    }

    fn conclude(&mut self, key: ReplicaKey, end: &End) {
        let Some(replica) = self.truth.replicas.find(&key) else {
            return;
        };
        let Phase::Placed(placement) = replica.phase.clone() else {
            return;
        };
        let incarnation = replica.incarnation;
        let next = match (&placement.stop, end) {
            (Some(order), End::HostLost) => self.after_stop_on_lost(key, order, placement.host),
            (Some(order), _) => self.after_stop(key, order, placement.host),
            (None, End::HostLost) => self.after_loss(key, placement.host),
            (None, End::Final(Final::Stopped))
                if placement.attached.is_none() && self.shuts_down(placement.host) =>
            {
                self.after_shutdown(key)
            }
            (None, End::Rebooted) => self.after_reboot(key, placement.host),
            (None, End::Final(end)) => self.after_final(key, incarnation, &placement, end),
        };
        let next = match next {
            Next::Renew(cause, _, text) if placement.attached.is_some() => {
                Next::End(without_us(&cause), text)
            }
            next => next,
        };
        self.leave_host(key, &placement, end, next.text());
        match next {
            Next::End(kind, reason) => self.end(key, kind, reason),
            Next::Renew(cause, rest, text) => {
                self.tell_replica(key, "requeued", text);
                self.renew(key, cause, rest);
            }
            Next::Remove(text) => {
                self.tell_replica(key, "scaled-down", text);
                self.remove_replica(key);
            }
        }
        self.count_attached(key.0);
        self.prune_profiles(key.0);
    }

    /// Frees the ports and has the host forget what is left. On a lost host they stay held.
    fn leave_host(&mut self, key: ReplicaKey, placement: &Placement, end: &End, how: &str) {
        let is_known_there = matches!(end, End::Final(_));
        let found = self
            .truth
            .services
            .find(&key.0)
            .zip(self.truth.replicas.find(&key));
        let Some((service, replica)) = found else {
            return;
        };
        let desired = self.placed(service, key.1, replica, placement);
        if is_known_there && let Some(life) = self.lives.get_mut(&placement.host) {
            let name = ReplicaName {
                service: service.name.clone(),
                index: key.1,
                incarnation: replica.incarnation,
            };
            let leftover = Leftover {
                ended: replica.status.as_ref().map(Status::number),
                at: self.now.mono,
                desired,
            };
            life.leftovers.insert(name, leftover);
        }
        self.keep_tenure(key);
        let is_fenced = self.lost(placement.host).is_some_and(|lost| lost.fenced);
        if matches!(end, End::HostLost) && !is_fenced {
            self.strand(key, placement);
        } else {
            self.free_ports(key, how);
        }
        self.outbox.order(placement.host);
        self.shown.hosts_truth.insert(placement.host);
        self.shown.truth.insert(key.0);
    }

    fn after_reboot(&self, key: ReplicaKey, host: HostId) -> Next {
        let profile = self
            .truth
            .services
            .find(&key.0)
            .map(|service| service.profile());
        let text = format!("host {} rebooted", self.host_name(host));
        if profile.is_some_and(|profile| profile.rerunnable) {
            Next::Renew(WaitCause::Rebooted, None, text)
        } else {
            Next::End(EndKind::HostRebooted, text)
        }
    }

    fn after_loss(&self, key: ReplicaKey, host: HostId) -> Next {
        let service = self.truth.services.find(&key.0);
        let text = self.loss_of(host);
        if service.is_some_and(|service| service.profile().rerunnable) {
            Next::Renew(WaitCause::HostLost(text.clone()), None, text)
        } else {
            Next::End(EndKind::HostLost, text)
        }
    }

    /// The stop cannot be confirmed, and need not be waited for: the host is told to once it is back.
    fn after_stop_on_lost(&self, key: ReplicaKey, order: &StopOrder, host: HostId) -> Next {
        let lost = self.loss_of(host);
        match self.after_stop(key, order, host) {
            Next::End(how, text) => Next::End(how, format!("{text}; {lost}")),
            Next::Remove(text) => Next::Remove(format!("{text}; {lost}")),
            Next::Renew(cause, rest, text) => Next::Renew(cause, rest, format!("{text}; {lost}")),
        }
    }

    fn loss_of(&self, host: HostId) -> String {
        let name = self.host_name(host);
        match self.lost(host) {
            Some(lost) => lost.of(&name),
            None => format!("host {name} lost"),
        }
    }

    fn after_stop(&self, key: ReplicaKey, order: &StopOrder, host: HostId) -> Next {
        let by = &order.by;
        match order.why {
            StopWhy::Stopped => Next::End(EndKind::Stopped, format!("stopped by {by}")),
            StopWhy::Killed => Next::End(EndKind::Killed, format!("killed by {by}")),
            StopWhy::ScaledDown => Next::Remove(format!("scaled down by {by}")),
            StopWhy::Renewed => Next::Renew(WaitCause::Asked, None, format!("renewed by {by}")),
            StopWhy::Drained => {
                let text = format!("host {} is drained by {by}", self.host_name(host));
                self.rerun_or_end(key, text, EndKind::HostDrained)
            }
            StopWhy::HostShutdown => self.after_shutdown(key),
        }
    }

    fn after_shutdown(&self, key: ReplicaKey) -> Next {
        self.rerun_or_end(key, HOST_SHUTDOWN.to_owned(), EndKind::HostShutdown)
    }

    /// It left its host: a new incarnation follows, unless its profile says that it is not to be run again.
    fn rerun_or_end(&self, key: ReplicaKey, text: String, end: EndKind) -> Next {
        let service = self.truth.services.find(&key.0);
        if service.is_some_and(|service| service.profile().rerunnable) {
            Next::Renew(WaitCause::Moved(text.clone()), None, text)
        } else {
            Next::End(end, text)
        }
    }

    fn after_final(
        &mut self,
        key: ReplicaKey,
        incarnation: Incarnation,
        placement: &Placement,
        end: &Final,
    ) -> Next {
        let found = self
            .truth
            .services
            .find(&key.0)
            .zip(self.truth.replicas.find(&key));
        let Some((service, replica)) = found else {
            return Next::Remove("forgotten".to_owned());
        };
        let profile = service.profile_of(replica.generation);
        match end {
            Final::Succeeded => {
                let codes = &profile.supervision.success_exit;
                let exit = match (codes.len(), codes.first()) {
                    (1, Some(ExitCause::Code(code))) => format!("exit {code}"),
                    _ => "a success exit".to_owned(),
                };
                match profile.supervision.restart {
                    RestartPolicy::Never => Next::End(EndKind::Done, format!("completed: {exit}")),
                    RestartPolicy::OnFailure => Next::End(
                        EndKind::Completed,
                        format!("completed: {exit} under on-failure"),
                    ),
                    RestartPolicy::Always => Next::End(
                        EndKind::Completed,
                        format!("completed: {exit} under always"),
                    ),
                }
            }
            Final::Failed(_) => Next::End(EndKind::Failed, end.to_string()),
            Final::Stopped => {
                let host = self.host_name(placement.host);
                Next::End(EndKind::Stopped, format!("stopped on host {host}"))
            }
            Final::Left(why) => {
                let text = format!("{why} on host {}", self.host_name(placement.host));
                if profile.rerunnable {
                    Next::Renew(WaitCause::Left(*why), None, text)
                } else {
                    Next::End(EndKind::LeftHost, text)
                }
            }
            Final::GaveUp { .. } => {
                let then = profile.supervision.give_up.as_ref().map(|it| &it.then);
                let requeued = replica.requeues;
                match then {
                    Some(Then::Requeue { rest, max_requeues }) if requeued < *max_requeues => {
                        let doubled = rest.saturating_mul(1 << requeued.min(20));
                        let rest = doubled.min(LONGEST_REST);
                        let text = format!("{end}; rests {}", Spelled(rest));
                        Next::Renew(WaitCause::GaveUp(end.to_string()), Some(rest), text)
                    }
                    Some(Then::Requeue { .. }) => {
                        let times = match requeued {
                            1 => "once".to_owned(),
                            many => format!("{many} times"),
                        };
                        let text = format!(
                            "{}; it was placed again {times} before",
                            given_up(end, profile)
                        );
                        Next::End(EndKind::GaveUp, text)
                    }
                    _ => Next::End(EndKind::GaveUp, given_up(end, profile)),
                }
            }
            Final::PortConflict { port, .. } => {
                let fixed = profile
                    .ports
                    .iter()
                    .any(|it| matches!(it.want, Wanted::Fixed(number) if number == *port));
                self.after_conflict(key, incarnation, placement, *port, fixed, end)
            }
        }
    }

    /// A stranger's port is nobody's fault: a new placement, not charged, but bounded.
    fn after_conflict(
        &mut self,
        key: ReplicaKey,
        incarnation: Incarnation,
        placement: &Placement,
        port: Port,
        is_fixed: bool,
        end: &Final,
    ) -> Next {
        let now = self.now.mono;
        self.pools.meet_stranger(placement.host, end, now);
        let text = format!("{end} on host {}", self.host_name(placement.host));
        let cause = WaitCause::Conflict(text.clone());
        if is_fixed {
            // It waits for the number itself, wherever that is free.
            return Next::Renew(cause, None, text);
        }
        let met = self.waits.conflicts.entry(key).or_default();
        met.retain(|(_, at)| now.since(*at) < CONFLICT_WINDOW);
        // An end that is decided again after a refused batch is still one end.
        if met.last().is_none_or(|(of, _)| *of != incarnation) {
            met.push((incarnation, now));
        }
        let rest = match met.first() {
            Some((_, first)) if met.len() > CONFLICTS_ALLOWED => {
                Some(CONFLICT_WINDOW.saturating_sub(now.since(*first)))
            }
            _ => None,
        };
        let text = match rest {
            Some(rest) => format!(
                "{text}; {} such ends in 10 minutes: rests {} before port {port} is asked for anew",
                met.len(),
                Spelled(rest)
            ),
            None => text,
        };
        Next::Renew(cause, rest, text)
    }

    /// Takes rests that are over off everything that waits.
    pub(super) fn end_rests(&mut self) {
        let now = self.now.mono;
        self.end_cooling(now);
        self.waits.end_rests(now);
    }
}

/// How a replica ends that only its job could begin anew.
const fn without_us(cause: &WaitCause) -> EndKind {
    match cause {
        WaitCause::Asked => EndKind::Stopped,
        WaitCause::Conflict(_) => EndKind::PortConflict,
        WaitCause::GaveUp(_) => EndKind::GaveUp,
        WaitCause::Rebooted => EndKind::HostRebooted,
        WaitCause::HostLost(_) => EndKind::HostLost,
        WaitCause::Moved(_) => EndKind::HostDrained,
        WaitCause::Left(_) => EndKind::LeftHost,
    }
}

/// The end with the rule that made it one: how many restarts are allowed within which window.
fn given_up(end: &Final, profile: &Profile) -> String {
    match &profile.supervision.give_up {
        Some(GiveUp {
            max_restarts,
            window: Window::Span(window),
            ..
        }) => format!("{end} (at most {max_restarts} within {})", Spelled(*window)),
        Some(GiveUp { max_restarts, .. }) => format!("{end} (at most {max_restarts} ever)"),
        None => end.to_string(),
    }
}

impl EndKind {
    /// The word people read.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Done | Self::Completed => "completed",
            Self::Failed => "failed",
            Self::GaveUp => "gave-up",
            Self::Stopped => "stopped",
            Self::Killed => "killed",
            Self::HostRebooted => "host-rebooted",
            Self::HostLost => "host-lost",
            Self::LeftHost => "left-host",
            Self::PortConflict => "port-conflict",
            Self::HostDrained => "host-drained",
            Self::HostShutdown => "host-shutdown",
        }
    }
}
