//! The way to the one task that owns the truth: bounded, and answered when what was asked is true.

use portreeve::commit::Told;
use portreeve::identity::{HostName, ServiceName};
use portreeve::registry::{
    Answer, Command, EventView, Explain, FitView, HistoryQuestion, HostPorts, PortHistory, Refusal,
    StoreError, Stored,
};
use portreeve::rights::Caller;
use tokio::sync::{mpsc, oneshot};

/// The way to the driver. Clones reach the same one.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    facts: mpsc::Sender<Fact>,
    questions: mpsc::Sender<Question>,
}

/// Something for the registry.
pub(crate) enum Fact {
    Command {
        by: Caller,
        command: Command,
        reply: oneshot::Sender<Result<Answer, Refusal>>,
    },
    Told {
        told: Told,
        reply: oneshot::Sender<Result<(), String>>,
    },
}

/// Something only the registry knows.
pub(crate) enum Question {
    /// What happened to a service.
    Events {
        service: ServiceName,
        reply: oneshot::Sender<Vec<EventView>>,
    },
    /// What happened to a host; nothing for an unknown one.
    HostEvents {
        host: HostName,
        reply: oneshot::Sender<Option<Vec<EventView>>>,
    },
    /// Who had which numbers of a host; nothing for one that was never known.
    PortHistory {
        reader: Caller,
        host: HostName,
        asked: HistoryQuestion,
        reply: oneshot::Sender<Option<PortHistory>>,
    },
    /// Which numbers of a host are not free; nothing for an unknown host.
    Ports {
        reader: Caller,
        host: HostName,
        reply: oneshot::Sender<Option<HostPorts>>,
    },
    /// Everything that is stored.
    Stored {
        reply: oneshot::Sender<Result<Stored, StoreError>>,
    },
    /// Where a replica would fit.
    Explain {
        by: Caller,
        what: Explain,
        reply: oneshot::Sender<Result<FitView, Refusal>>,
    },
}

/// Why an input was not acknowledged. The sender keeps it and sends it again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unacknowledged {
    /// The store refused.
    NotStored(String),
    /// The controller is going down.
    Stopping,
}

impl Queue {
    /// How much may wait; a sender beyond it waits for its turn.
    const DEPTH: usize = 1024;

    /// A queue, and the ends that its owner drains: facts, and questions, which wait behind facts.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Fact>, mpsc::Receiver<Question>) {
        let (facts, facts_end) = mpsc::channel(Self::DEPTH);
        let (questions, questions_end) = mpsc::channel(Self::DEPTH);
        (Self { facts, questions }, facts_end, questions_end)
    }

    /// Asks for something. `None`: the controller is going down and nothing changed.
    pub(crate) async fn command(
        &self,
        by: Caller,
        command: Command,
    ) -> Option<Result<Answer, Refusal>> {
        let (reply, answer) = oneshot::channel();
        let fact = Fact::Command { by, command, reply };
        self.facts.send(fact).await.ok()?;
        answer.await.ok()
    }

    /// Tells something; returns once readers see it, and once it is durable if it is truth.
    pub(crate) async fn tell(&self, told: Told) -> Result<(), Unacknowledged> {
        let (reply, done) = oneshot::channel();
        let sent = self.facts.send(Fact::Told { told, reply }).await;
        sent.map_err(|_| Unacknowledged::Stopping)?;
        let done = done.await.map_err(|_| Unacknowledged::Stopping)?;
        done.map_err(Unacknowledged::NotStored)
    }

    /// What happened to a service.
    pub(crate) async fn events(&self, service: ServiceName) -> Option<Vec<EventView>> {
        self.ask(|reply| Question::Events { service, reply }).await
    }

    /// What happened to a host; nothing for an unknown one.
    pub(crate) async fn host_events(&self, host: HostName) -> Option<Option<Vec<EventView>>> {
        self.ask(|reply| Question::HostEvents { host, reply }).await
    }

    /// Who had which numbers of a host, as the reader may know it; nothing for one that was never known.
    pub(crate) async fn port_history(
        &self,
        reader: Caller,
        host: HostName,
        asked: HistoryQuestion,
    ) -> Option<Option<PortHistory>> {
        let question = |reply| Question::PortHistory {
            reader,
            host,
            asked,
            reply,
        };
        self.ask(question).await
    }

    /// The numbers of a host as the reader sees them; nothing for an unknown host.
    pub(crate) async fn ports(&self, reader: Caller, host: HostName) -> Option<Option<HostPorts>> {
        let question = |reply| Question::Ports {
            reader,
            host,
            reply,
        };
        self.ask(question).await
    }

    /// Everything that is stored, of one moment; changes of truth wait while it is read. `Some(None)`: somebody else
    /// is being told already.
    pub(crate) async fn stored(&self) -> Option<Option<Result<Stored, StoreError>>> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::Stored { reply }).await.ok()?;
        Some(answer.await.ok())
    }

    /// Where a replica would fit now.
    pub(crate) async fn explain(
        &self,
        by: Caller,
        what: Explain,
    ) -> Option<Result<FitView, Refusal>> {
        self.ask(|reply| Question::Explain { by, what, reply })
            .await
    }

    /// `None`: the controller is going down.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(question(reply)).await.ok()?;
        answer.await.ok()
    }
}
