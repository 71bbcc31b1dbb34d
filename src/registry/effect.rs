//! What the registry tells the driver.

use serde::{Deserialize, Serialize};

use crate::endpoints::ServiceUpdate;
use crate::identity::{HostName, ServiceName};
use crate::time::{Utc, WallClock};

use super::Desired;
use super::TokenId;
use super::limits::LimitReached;
use super::store::Batch;

/// Names one question, so that its answer finds the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something for the driver to do, in this order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write this durably, then say [`super::Registry::committed`] or [`super::Registry::commit_failed`].
    Commit(Batch),
    /// Swap these services' snapshots at this revision.
    Publish {
        /// The revision all of them get.
        revision: u64,
        /// What became of their endpoints: parts of what was published before, or the whole set of one that was not.
        services: Vec<ServiceUpdate>,
        /// Services that are gone.
        removed: Vec<ServiceName>,
    },
    /// Answer a command.
    Answer {
        /// Whose.
        ticket: Ticket,
        /// What.
        answer: Result<Answer, Refusal>,
    },
    /// The wanted set of this host changed; wake its agent.
    Order {
        /// Which host.
        host: HostName,
    },
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Answer {
    /// The service concerned; left out where it is a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The host concerned, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Whether anything changed.
    pub changed: bool,
    /// What happened, and what the user may want to know at once: one sentence each.
    pub notes: Vec<String>,
    /// What was granted to another scheduler's job; never on the wire, where it comes with its tokens.
    #[serde(skip)]
    pub granted: Option<Box<Desired>>,
}

impl Answer {
    /// What it is about, as people name it: `web.alice`, or `host n1`.
    #[must_use]
    pub fn subject(&self) -> String {
        match (&self.service, &self.host) {
            (Some(service), _) => service.to_string(),
            (None, Some(host)) => format!("host {host}"),
            (None, None) => "done".to_owned(),
        }
    }
}

/// Why a command was refused. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Unknown, or not visible to the asker: the same answer.
    #[error("no service \"{service}\" in your view; `portreeve services` lists what you can see")]
    NoSuchService {
        /// The name asked for.
        service: ServiceName,
    },
    /// The service has no such replica.
    #[error("{service} has no replica {index}; `portreeve service {service}` lists them")]
    NoSuchReplica {
        /// Which service.
        service: ServiceName,
        /// The index asked for.
        index: u32,
    },
    /// Visible, but the action is not allowed.
    #[error("{user} may not {action} {service}: it belongs to {owner}")]
    NotAllowed {
        /// Who asked.
        user: String,
        /// The verb.
        action: &'static str,
        /// Which service.
        service: ServiceName,
        /// Whose it is.
        owner: String,
    },
    /// A service of this name runs with another profile.
    #[error(
        "{service} runs with another profile ({difference}); `portreeve submit --replace` replaces it"
    )]
    Differs {
        /// Which service.
        service: ServiceName,
        /// The fields that differ.
        difference: String,
    },
    /// Deleting what still runs.
    #[error("{service} still has {}; `portreeve stop {service}` and `portreeve wait {service} --gone` first", live_replicas(*live))]
    StillRunning {
        /// Which service.
        service: ServiceName,
        /// How many live.
        live: u32,
    },
    /// A living replica has the index.
    #[error(
        "replica {index} of {service} is running on host {host}; name another with --replica, or leave it out for the next free one"
    )]
    Taken {
        /// Which service.
        service: ServiceName,
        /// The index asked for.
        index: u32,
        /// Where it runs.
        host: HostName,
    },
    /// The host cannot give the ports now; it may later.
    #[error("host {host} has no ports for {service}: {reason}")]
    NoRoom {
        /// Which service.
        service: ServiceName,
        /// The only host considered.
        host: HostName,
        /// What is against it there.
        reason: String,
    },
    /// The command does not fit the service.
    #[error("{service}: {reason}")]
    Unfit {
        /// Which service.
        service: ServiceName,
        /// Why, and what to do.
        reason: String,
    },
    /// No host of this name has reported.
    #[error("no host {host} has reported; `portreeve hosts` lists those that have")]
    NoSuchHost {
        /// The name asked for.
        host: HostName,
    },
    /// Orders about hosts are for those who run them.
    #[error(
        "{user} may not {action} host {host}: that is for operators and admins, such as root and the controller's account"
    )]
    OperatorsOnly {
        /// Who asked.
        user: String,
        /// The verb.
        action: &'static str,
        /// Which host.
        host: HostName,
    },
    /// Somebody who only reads.
    #[error("{user} is a viewer here, and changes nothing; ask an admin for the role user")]
    ViewersChangeNothing {
        /// Who asked.
        user: String,
    },
    /// There is none of this id, or it is not the asker's: the same answer.
    #[error("no token {id} of yours; `portreeve token list` lists them")]
    NoSuchToken {
        /// The id asked for.
        id: TokenId,
    },
    /// The asker may not do that with tokens.
    #[error("{user} may not {reason}")]
    TokenNotAllowed {
        /// Who asked.
        user: String,
        /// What, and what to do.
        reason: String,
    },
    /// There are as many as may be.
    #[error(
        "{whose} has {most} tokens, and may have no more; `portreeve token revoke` ends those that are not used"
    )]
    TooManyTokens {
        /// Whose.
        whose: String,
        /// How many.
        most: usize,
    },
    /// Its time is over.
    #[error(
        "the token ended at {}, and here it is {}; where that is not the time, mend the clock, else ask for another token",
        Utc(*at),
        Utc(*now)
    )]
    TokenOver {
        /// When it ended.
        at: WallClock,
        /// What the clock says.
        now: WallClock,
    },
    /// It let as many machines join as it may.
    #[error(
        "token {id} let as many machines join as it may; `portreeve token create --kind join --uses N` makes another"
    )]
    TokenUsedUp {
        /// Which.
        id: TokenId,
    },
    /// Another machine has the name.
    #[error(
        "host {host} joined before, from another machine; stop that one's agent, and join with --replace if this one takes the name"
    )]
    HostJoined {
        /// The name.
        host: HostName,
    },
    /// The order does not fit the host.
    #[error("host {host}: {reason}")]
    HostUnfit {
        /// Which host.
        host: HostName,
        /// Why, and what to do.
        reason: String,
    },
    /// It asks for more than the whole of a limit, which nothing that ends would make possible.
    #[error("{service}: LIMIT: {limit}")]
    BeyondLimit {
        /// Which service.
        service: ServiceName,
        /// Which limit.
        limit: Box<LimitReached>,
    },
    /// The service is not as the asker knows it.
    #[error("{service} {}", otherwise(tag.is_some()))]
    Changed {
        /// Which service.
        service: ServiceName,
        /// The tag of its definition now; none: it is not there.
        tag: Option<String>,
    },
    /// The truth could not be written; nothing changed.
    #[error("the store refused the change and nothing was changed: {reason}")]
    NotStored {
        /// The store's words.
        reason: String,
    },
}

const fn otherwise(is_there: bool) -> &'static str {
    if is_there {
        "is not as it was when you read it; read it again and decide anew"
    } else {
        "is not there any more; leave out the condition to create it"
    }
}

fn live_replicas(live: u32) -> String {
    let word = if live == 1 { "replica" } else { "replicas" };
    format!("{live} live {word}")
}
