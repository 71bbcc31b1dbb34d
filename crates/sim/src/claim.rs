//! What a scenario says that is so at a time, or all the time between two: `5m web listed 3`.

use std::fmt;

use portreeve::identity::{HostName, ServiceName};
use portreeve::registry::{HostView, PortCounts, ReplicaView, ServiceView, View};
use portreeve::time::Monotonic;

use crate::expectation::times;
use crate::timeline::Seconds;

/// One line: `TIME WHO WHAT` or `TIME..TIME WHO WHAT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    text: String,
    pub(crate) from: Monotonic,
    pub(crate) to: Monotonic,
    what: What,
}

/// Who is called so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Every service that is there.
    All,
    Service(ServiceName),
    Host(HostName),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Count(Named, Counted, Amount),
    Settled(Named),
    ServiceIs(ServiceName, String),
    ReplicaIs(ServiceName, u32, String),
    ReplicaOn {
        service: ServiceName,
        index: u32,
        host: HostName,
        is: Is,
    },
    HostIs(HostName, String),
    Hosts(String, Amount),
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Wanted,
    Listed,
    Placed,
    Waiting,
    Ended,
    Restarts,
    Free,
    Held,
    Releasing,
    Cooling,
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    There,
    Elsewhere,
}

/// How many it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Exactly(u64),
    AtLeast(u64),
    AtMost(u64),
}

const OF_A_SERVICE: [(&str, Counted); 6] = [
    ("wanted", Counted::Wanted),
    ("listed", Counted::Listed),
    ("placed", Counted::Placed),
    ("waiting", Counted::Waiting),
    ("ended", Counted::Ended),
    ("restarts", Counted::Restarts),
];

const OF_A_HOST: [(&str, Counted); 5] = [
    ("free", Counted::Free),
    ("held", Counted::Held),
    ("releasing", Counted::Releasing),
    ("cooling", Counted::Cooling),
    ("foreign", Counted::Foreign),
];

const LINE: &str =
    "write \"TIME WHO WHAT\", such as \"5m web listed 3\" or \"1m..5m web/0 is ready\"";
const OF_A_REPLICA: &str =
    "write \"SERVICE/0 is ready\", \"SERVICE/0 on HOST\" or \"SERVICE/0 not on HOST\"";
const AMOUNT: &str = "write 3, >= 3 or <= 3";

impl Claim {
    /// Reads a line; `named` says who is called so.
    pub(crate) fn parse(text: &str, named: impl Fn(&str) -> Option<Named>) -> Result<Self, String> {
        let refuse = |why: &str, hint: &str| format!("{text:?} {why}; {hint}");
        let mut words = text.split_whitespace();
        let (Some(time), Some(who)) = (words.next(), words.next()) else {
            return Err(refuse("says nothing of anybody", LINE));
        };
        let (from, to) = times(time)?;
        let rest: Vec<_> = words.collect();
        let unknown = || format!("{who:?} is no service, replica or host here");
        let amount = |words: &[&str]| amount(words).ok_or_else(|| refuse("says no number", AMOUNT));
        let what = match (who, rest.as_slice()) {
            ("hosts", [state @ .., number]) if !state.is_empty() => {
                let (state, amount) = match state {
                    [state @ .., sign @ (">=" | "<=")] => (state, amount(&[sign, number])?),
                    state => (state, amount(&[number])?),
                };
                What::Hosts(state.join(" "), amount)
            }
            (who, rest) => match (replica(who, &named), rest) {
                (Some((service, index)), ["is", state @ ..]) if !state.is_empty() => {
                    What::ReplicaIs(service, index, state.join(" "))
                }
                (Some((service, index)), [not @ .., "on", host]) if matches!(not, [] | ["not"]) => {
                    let Some(Named::Host(host)) = named(host) else {
                        return Err(format!("{host:?} is no host here"));
                    };
                    let is = if not.is_empty() {
                        Is::There
                    } else {
                        Is::Elsewhere
                    };
                    What::ReplicaOn {
                        service,
                        index,
                        host,
                        is,
                    }
                }
                (Some(_), _) => return Err(refuse("says nothing of a replica", OF_A_REPLICA)),
                (None, rest) => match (named(who).ok_or_else(unknown)?, rest) {
                    (who @ (Named::All | Named::Service(_)), ["settled"]) => What::Settled(who),
                    (Named::Service(service), ["is", state @ ..]) if !state.is_empty() => {
                        What::ServiceIs(service, state.join(" "))
                    }
                    (Named::Host(host), ["is", state @ ..]) if !state.is_empty() => {
                        What::HostIs(host, state.join(" "))
                    }
                    (who, [counted, number @ ..]) => {
                        let known: &[_] = match who {
                            Named::Host(_) => &OF_A_HOST,
                            Named::All | Named::Service(_) => &OF_A_SERVICE,
                        };
                        let counted = known.iter().find(|(word, _)| word == counted);
                        let (_, counted) = counted.ok_or_else(|| {
                            let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
                            refuse("counts nothing", &format!("count {}", words.join(", ")))
                        })?;
                        What::Count(who, *counted, amount(number)?)
                    }
                    (_, []) => return Err(refuse("says nothing of it", LINE)),
                },
            },
        };
        Ok(Self {
            text: text.to_owned(),
            from,
            to,
            what,
        })
    }

    /// How it is instead, if it is not so in this view; `None` as a view: nobody knows.
    ///
    /// Cost: a look at each replica of the service, or at each host for `hosts`.
    pub(crate) fn is_refuted_by(&self, view: Option<&View>) -> Option<String> {
        let Some(view) = view else {
            return Some("the controller is not there".to_owned());
        };
        match &self.what {
            What::Count(Named::Host(host), counted, wanted) => {
                let Some(host) = view.hosts.get(host) else {
                    return Some("the controller does not know it".to_owned());
                };
                wanted.unlike(of_a_host(&host.counts, *counted))
            }
            What::Count(who, counted, wanted) => {
                let counts = services(view, who).map(|service| of_a_service(service, *counted));
                wanted.unlike(counts.sum())
            }
            What::Settled(who) => services(view, who).find_map(unsettled),
            What::ServiceIs(name, state) => {
                let is = view.services.get(name).map(|service| &service.state);
                unlike(is.map_or("not there", String::as_str), state)
            }
            What::ReplicaIs(service, index, state) => {
                let replica = replica_of(view, service, *index);
                unlike(replica.map_or("not there", |it| it.state.as_str()), state)
            }
            What::ReplicaOn {
                service,
                index,
                host,
                is,
            } => {
                let replica = replica_of(view, service, *index);
                let on = replica.and_then(|replica| replica.host.as_ref());
                let fits = (on == Some(host)) == (*is == Is::There);
                (!fits).then(|| match on {
                    Some(on) => format!("it is on {on}"),
                    None => "it is nowhere".to_owned(),
                })
            }
            What::HostIs(host, state) => {
                let host = view.hosts.get(host);
                unlike(host.map_or("not there", |it| it.state.as_str()), state)
            }
            What::Hosts(state, wanted) => {
                let hosts = view.hosts.values();
                let so = hosts.filter(|host: &&std::sync::Arc<HostView>| host.state == *state);
                wanted.unlike(so.count() as u64)
            }
        }
    }

    /// What is told of it when it is not so.
    pub(crate) fn unmet(&self, at: Monotonic, instead: &str) -> String {
        format!(
            "holds: {}\n instead at {}: {instead}",
            self.text,
            Seconds(at)
        )
    }
}

impl Amount {
    fn unlike(self, count: u64) -> Option<String> {
        let fits = match self {
            Self::Exactly(wanted) => count == wanted,
            Self::AtLeast(wanted) => count >= wanted,
            Self::AtMost(wanted) => count <= wanted,
        };
        (!fits).then(|| count.to_string())
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn amount(words: &[&str]) -> Option<Amount> {
    match words {
        [number] => number.parse().ok().map(Amount::Exactly),
        [">=", number] => number.parse().ok().map(Amount::AtLeast),
        ["<=", number] => number.parse().ok().map(Amount::AtMost),
        _ => None,
    }
}

/// `web/0`.
fn replica(who: &str, named: impl Fn(&str) -> Option<Named>) -> Option<(ServiceName, u32)> {
    let (service, index) = who.split_once('/')?;
    match named(service)? {
        Named::Service(service) => Some((service, index.parse().ok()?)),
        Named::All | Named::Host(_) => None,
    }
}

fn replica_of<'v>(view: &'v View, service: &ServiceName, index: u32) -> Option<&'v ReplicaView> {
    view.services.get(service)?.replicas.of(index)
}

fn services<'v>(view: &'v View, who: &'v Named) -> impl Iterator<Item = &'v ServiceView> {
    let (all, one) = match who {
        Named::All => (Some(view.services.values()), None),
        Named::Service(name) => (None, view.services.get(name)),
        Named::Host(_) => (None, None),
    };
    all.into_iter().flatten().chain(one).map(AsRef::as_ref)
}

fn of_a_service(service: &ServiceView, counted: Counted) -> u64 {
    let count = |is: fn(&ReplicaView) -> bool| {
        let replicas = service.replicas.iter();
        replicas.filter(|replica| is(replica)).count() as u64
    };
    match counted {
        Counted::Wanted => u64::from(service.desired),
        Counted::Listed => u64::from(service.ready),
        Counted::Placed => count(|replica| replica.host.is_some()),
        Counted::Waiting => count(|replica| replica.job_state == "PEND"),
        Counted::Ended => count(|replica| matches!(replica.job_state.as_str(), "DONE" | "EXIT")),
        _ => {
            let replicas = service.replicas.iter();
            replicas.map(|one| u64::from(one.restarts_total)).sum()
        }
    }
}

fn of_a_host(counts: &PortCounts, counted: Counted) -> u64 {
    u64::from(match counted {
        Counted::Free => counts.free_tcp,
        Counted::Held => counts.held,
        Counted::Releasing => counts.releasing,
        Counted::Cooling => counts.cooling,
        _ => counts.foreign,
    })
}

/// How a service is not yet as it was asked for.
fn unsettled(service: &ServiceView) -> Option<String> {
    let name = &service.service;
    let wanted = match service.state.as_str() {
        "running" => service.desired,
        _ => 0,
    };
    if let Some(under_way) = &service.under_way {
        return Some(format!("{name}: {under_way}"));
    }
    (service.ready != wanted).then(|| format!("{name}: {} of {wanted} are listed", service.ready))
}

fn unlike(is: &str, wanted: &str) -> Option<String> {
    (is != wanted).then(|| format!("it is {is}"))
}

/// The claims of a scenario during its run.
#[derive(Debug)]
pub(crate) struct Claims<'s> {
    /// Those that begin later, the next one last.
    later: Vec<&'s Claim>,
    /// Those that are to be so now.
    now: Vec<&'s Claim>,
    /// What was not so, in the order of time.
    pub(crate) unmet: Vec<String>,
}

impl<'s> Claims<'s> {
    pub(crate) fn new(claims: &'s [Claim]) -> Self {
        let mut later: Vec<_> = claims.iter().collect();
        later.sort_by_key(|claim| std::cmp::Reverse(claim.from));
        Self {
            later,
            now: Vec::new(),
            unmet: Vec::new(),
        }
    }

    /// Whether a claim is to be looked at before time goes on to `next`.
    pub(crate) fn is_due(&self, next: Option<Monotonic>) -> bool {
        let before = |at: Monotonic| next.is_none_or(|next| at < next);
        self.later.last().is_some_and(|claim| before(claim.from))
            || self.now.iter().any(|claim| is_over(claim, next))
    }

    /// The end of the instant before `next`: with this view time goes on.
    pub(crate) fn look(&mut self, next: Option<Monotonic>, view: Option<&View>) {
        let before = |at: Monotonic| next.is_none_or(|next| at < next);
        while let Some(claim) = self.later.pop_if(|claim| before(claim.from)) {
            self.now.push(claim);
            self.hold_one(claim, claim.from, view);
        }
        self.now.retain(|claim| !is_over(claim, next));
    }

    /// Something changed at `at`.
    pub(crate) fn hold(&mut self, at: Monotonic, view: Option<&View>) {
        for claim in self.now.clone() {
            self.hold_one(claim, at, view);
        }
    }

    fn hold_one(&mut self, claim: &'s Claim, at: Monotonic, view: Option<&View>) {
        // A controller that is away tells nobody anything, and takes nothing back.
        let lasts = claim.from < claim.to;
        if view.is_none() && lasts {
            return;
        }
        if let Some(instead) = claim.is_refuted_by(view) {
            self.unmet.push(claim.unmet(at, &instead));
            self.now.retain(|one| !std::ptr::eq(*one, claim));
        }
    }
}

/// Whether it says nothing of what comes at `next`: what is so until two minutes may change at two minutes.
fn is_over(claim: &Claim, next: Option<Monotonic>) -> bool {
    next.is_none_or(|next| claim.to <= next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Claim, String> {
        Claim::parse(text, |name| match name {
            "all" => Some(Named::All),
            "web" => Some(Named::Service("web.me".parse().ok()?)),
            "n1" => Some(Named::Host("n1".parse().ok()?)),
            _ => None,
        })
    }

    #[test]
    fn a_line_says_of_whom_it_speaks_and_what_is_so() {
        for text in [
            "1m web listed 3",
            "1m..2m web listed >= 3",
            "1m all restarts <= 2",
            "1m web settled",
            "1m all settled",
            "1m web is running",
            "1m web/0 is gave up",
            "1m web/0 on n1",
            "1m web/0 not on n1",
            "1m n1 is lost",
            "1m n1 free 3",
            "1m hosts up 3",
            "1m hosts not reported >= 3",
        ] {
            assert!(read(text).is_ok(), "{text}: {:?}", read(text));
        }
        for text in [
            "",
            "1m",
            "1m web",
            "1m web listed",
            "1m web listed > 3",
            "1m web free 3",
            "1m n1 listed 3",
            "1m wbe listed 3",
            "1m web/x is ready",
            "1m web/0 at n1",
            "1m web/0 on n2",
            "2m..1m web listed 3",
            "1m all is running",
            "1m hosts 3",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_that_is_refused_says_what_can_stand_in_that_place() {
        for (text, says) in [
            ("1m web", "says nothing of it; write \"TIME WHO WHAT\""),
            ("1m web lsted 3", "counts nothing; count wanted, listed, "),
            ("1m n1 listed 3", "counts nothing; count free, held, "),
            ("1m web listed > 3", "says no number; write 3, >= 3 or <= 3"),
            ("1m hosts up three", "says no number; write 3, >= 3 or <= 3"),
            (
                "1m web/0 at n1",
                "says nothing of a replica; write \"SERVICE/0 is ",
            ),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(says), "{told}");
            assert!(told.len() < 150, "{told}");
        }
    }

    #[test]
    fn what_nobody_can_tell_is_not_so_at_a_moment_and_not_refuted_meanwhile() {
        let moment = read("1m web listed 0").expect("a claim");
        let meanwhile = read("1m..2m web listed 0").expect("a claim");
        let all = [moment, meanwhile];
        let mut claims = Claims::new(&all);
        let at = |s: u64| Monotonic::from_millis(s * 1000);
        assert!(!claims.is_due(Some(at(60))));
        assert!(claims.is_due(Some(at(61))));
        claims.look(Some(at(61)), None);
        claims.hold(at(90), None);
        claims.look(Some(at(121)), Some(&View::default()));
        claims.look(None, Some(&View::default()));
        assert_eq!(
            claims.unmet,
            ["holds: 1m web listed 0\n instead at 60.000: the controller is not there"]
        );
    }

    #[test]
    fn a_claim_is_refuted_once_and_by_what_is_so_at_the_end_of_an_instant() {
        let lasting = [read("1m..2m hosts up 1").expect("a claim")];
        let mut claims = Claims::new(&lasting);
        let at = |s: u64| Monotonic::from_millis(s * 1000);
        claims.hold(at(30), Some(&View::default()));
        assert!(claims.unmet.is_empty());
        claims.look(Some(at(70)), Some(&View::default()));
        claims.hold(at(80), Some(&View::default()));
        assert_eq!(claims.unmet.len(), 1);
    }
}
