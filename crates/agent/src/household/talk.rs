//! Speaking with the workers over their sockets, many at once.

use std::io;

use portreeve::residency::ReplicaName;
use portreeve::residency::household::{self, Answer, newer};
use portreeve_api::local::{ReplicaFolder, Tokens, WorkerAnswer, WorkerCommand};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::{Household, folder, worker};
use crate::clock;

/// How many workers are spoken with at once: each takes two descriptors.
const AT_ONCE: usize = 64;

type Talk = household::Talk<Tokens>;

impl Household {
    /// Says all of it and hears what they answer.
    pub(super) async fn talk(&mut self, talks: Vec<(ReplicaName, Talk)>) {
        let mut answers = Vec::with_capacity(talks.len());
        let mut running = JoinSet::new();
        for (name, talk) in talks {
            while running.len() >= AT_ONCE {
                answers.extend(running.join_next().await);
            }
            let folder = self.folder_of(&name);
            running.spawn(async move {
                let answer = worker::tell(&folder, &command(&talk)).await;
                (name, talk, folder, answer)
            });
        }
        while let Some(answer) = running.join_next().await {
            answers.push(answer);
        }
        for answer in answers {
            let (name, talk, folder, answer) =
                answer.expect("speaking with a worker does not panic");
            let answer = heard(&name, &talk, &folder, answer);
            self.rules.answered(clock::now(), &name, talk, answer);
        }
    }
}

fn heard(
    name: &ReplicaName,
    talk: &Talk,
    folder: &ReplicaFolder,
    answer: io::Result<WorkerAnswer>,
) -> Option<Answer> {
    let answer = answer.map(|answer| Answer {
        status: answer.status,
        refused: answer.refused,
    });
    if *talk == Talk::Newest {
        let answer = answer.unwrap_or_default();
        let status = newer(folder::status(folder), answer.status);
        return Some(Answer { status, ..answer });
    }
    match &answer {
        Ok(Answer {
            refused: Some(refusal),
            ..
        }) => warn!("the worker of {name} refuses {talk:?}: {refusal}"),
        Ok(_) => {}
        Err(cause) => debug!("the worker of {name} does not answer: {cause}"),
    }
    answer.ok()
}

fn command(talk: &Talk) -> WorkerCommand {
    match talk {
        Talk::Want(told) => WorkerCommand::Want {
            want: told.want,
            restart_no: told.restart_no,
        },
        Talk::Ask | Talk::Newest => WorkerCommand::Tell,
        Talk::Leave(why) => WorkerCommand::Leave { why: *why },
        Talk::Renew(tokens) => WorkerCommand::Renew {
            tokens: tokens.clone(),
        },
        Talk::Address((address, ports)) => WorkerCommand::Address {
            address: *address,
            ports: ports.clone(),
        },
    }
}
