//! Commands that hold only as long as a service is as the asker knows it, or is not there.
//!
//! The condition is looked at in the same step as the command, so that nobody else's change comes between.

use crate::identity::ServiceName;
use crate::profile::Replicas;
use crate::rights::Caller;

use super::machine::Registry;
use super::records::{Service, Wish};
use super::{Command, Refusal};

/// What has to be true of the service before a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Precondition {
    /// It is there; with tags: and its definition has one of these.
    pub is_there: Option<Vec<String>>,
    /// It is not there.
    pub is_absent: bool,
}

impl Command {
    /// The service it is about; none: it is about a host or a token.
    #[must_use]
    pub const fn service(&self) -> Option<&ServiceName> {
        match self {
            Self::Submit(submission) => Some(&submission.service),
            Self::Attach(attachment) => Some(&attachment.service),
            Self::Scale { service, .. }
            | Self::Start { service }
            | Self::Stop { service }
            | Self::Restart { service, .. }
            | Self::Kill { service, .. }
            | Self::Delete { service } => Some(service),
            Self::OnlyIf { command, .. } => command.service(),
            Self::Host { .. } | Self::Token(_) => None,
        }
    }
}

impl Registry {
    /// Refuses the command where its service is not as it has to be. Who may not see or manage the service is told by
    /// the command itself.
    pub(super) fn holds(
        &self,
        by: &Caller,
        precondition: &Precondition,
        command: &Command,
    ) -> Result<(), Refusal> {
        let Some(name) = command.service() else {
            return Ok(());
        };
        let known = self.names.get(name);
        let known = known.and_then(|id| self.truth.services.find(id));
        let seen = known.filter(|it| by.may_see(it.holding()));
        if seen.is_some_and(|it| !by.may_manage(it.holding())) {
            return Ok(());
        }
        if seen.is_none() && !matches!(command, Command::Submit(_)) {
            return Ok(());
        }
        let tag = seen.map(|service| self.definition(service));
        let is_there = precondition.is_there.as_ref().is_none_or(|tags| {
            tag.as_ref()
                .is_some_and(|tag| tags.is_empty() || tags.contains(tag))
        });
        if is_there && !(precondition.is_absent && tag.is_some()) {
            return Ok(());
        }
        Err(Refusal::Changed {
            service: name.clone(),
            tag,
        })
    }

    /// Names what the owner wants of the service: another text once that is something else, and the same however its
    /// replicas fare.
    pub(super) fn definition(&self, service: &Service) -> String {
        let wish = match service.wish {
            Wish::Running => "run",
            Wish::Stopped => "stop",
        };
        let (written, desired) = match service.profile().replicas {
            Replicas::Count(count) if !service.attached => (count, service.desired),
            // How many there are is not the owner's wish.
            _ => (0, 0),
        };
        format!(
            "{}.{}.{}.{written}.{desired}.{wish}",
            self.epoch(),
            service.id,
            service.generation
        )
    }
}
