//! One machine with what C leaves to us: effects that it has not taken yet, and a clock that never falls.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::effect;
use crate::identity::Run;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::constants::{PR_EAGAIN, PR_ESTATE, PR_NEVER};
use crate::plugin_abi::types::PrSupEffect;
use crate::supervision::{Config, Effect, Event, Machine};
use crate::time::Monotonic;

/// A machine under an id of C's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Supervised {
    machine: Machine,
    /// The largest moment that was told.
    latest: Monotonic,
    /// Oldest first, at most [`Supervised::MOST_PENDING`] and what one call adds.
    pending: VecDeque<Pending>,
    /// Read back and told no moment since.
    #[serde(skip, default = "yes")]
    is_fresh: bool,
    /// Kept for its room, so that a probe's result allocates nothing.
    #[serde(skip)]
    out: Vec<Effect>,
}

const fn yes() -> bool {
    true
}

/// Something to do that C has not taken yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pending {
    /// The newest run when it was said, which a report does not carry itself.
    run: Run,
    effect: Effect,
}

impl Supervised {
    /// A caller that takes nothing gets no more than this.
    const MOST_PENDING: usize = 256;

    pub(super) fn new(config: impl Into<Arc<Config>>, seed: u64) -> Self {
        Self {
            machine: Machine::new(config, seed),
            latest: Monotonic::default(),
            pending: VecDeque::new(),
            is_fresh: false,
            out: Vec::new(),
        }
    }

    pub(super) fn config(&self) -> &Config {
        self.machine.config()
    }

    pub(super) fn handle(&mut self, now_ms: u64, event: Event) -> Result<(), Failure> {
        self.at(now_ms, |machine, now, out| machine.handle(now, event, out))
    }

    pub(super) fn act_until(&mut self, now_ms: u64) -> Result<(), Failure> {
        self.at(now_ms, Machine::on_deadline)
    }

    pub(super) fn next_deadline_ms(&self) -> u64 {
        let next = self.machine.next_deadline();
        next.map_or(PR_NEVER, Monotonic::as_millis)
    }

    /// The oldest effect that was not taken yet, as the header writes it.
    pub(super) fn take_effect(&mut self) -> Option<PrSupEffect> {
        let next = self.pending.pop_front()?;
        Some(effect::written(next.run, &next.effect, self.config()))
    }

    fn at(
        &mut self,
        now_ms: u64,
        call: impl FnOnce(&mut Machine, Monotonic, &mut Vec<Effect>),
    ) -> Result<(), Failure> {
        if self.pending.len() >= Self::MOST_PENDING {
            return Err(Failure::limited(
                PR_EAGAIN,
                "take the effects first",
                self.pending.len() as u64,
                Self::MOST_PENDING as u64,
            ));
        }
        let now = Monotonic::from_millis(now_ms);
        // One clock of one boot never falls, so this one is another boot's.
        if self.is_fresh && now < self.latest {
            let latest = self.latest.as_millis();
            return Err(Failure::told(
                PR_ESTATE,
                format_args!("the state is of {latest} ms, so of another boot than {now_ms} ms"),
            ));
        }
        self.is_fresh = false;
        self.latest = self.latest.max(now);
        let mut run = self.machine.run();
        let mut out = std::mem::take(&mut self.out);
        call(&mut self.machine, self.latest, &mut out);
        for effect in out.drain(..) {
            if let Effect::Spawn { run: begun } = effect {
                run = begun;
            }
            self.pending.push_back(Pending { run, effect });
        }
        self.out = out;
        Ok(())
    }
}
