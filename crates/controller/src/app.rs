//! What every request handler shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use portreeve::commit::{Front, Terms};
use portreeve::endpoints::Watcher;
use portreeve::identity::ServiceName;
use portreeve::registry::{ServiceView, View};
use portreeve::rights::Caller;
use portreeve_api::site_profiles::SiteFolder;
use tokio::sync::watch;

use crate::account::Accounts;
use crate::audit::AuditLog;
use crate::bindings::Bindings;
use crate::driver::Shown;
use crate::jwt::Jwt;
use crate::limits::Limits;
use crate::meters::Meters;
use crate::queue::Queue;
use crate::rate::Rates;
use crate::reads::Reads;
use crate::rest::counters::Heard;
use crate::rest::pages::{Pages, Wanted, WantedHosts};
use crate::rest::query::Hold;
use crate::rest::refused::Refused;
use crate::rest::synced::Synced;
use crate::share::Shares;
use crate::stop::Stop;
use crate::token::TokenKey;
use crate::watch::Texts;

/// The controller as its request handlers see it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) shown: Arc<Shown>,
    pub(crate) queue: Queue,
    pub(crate) reads: Reads,
    pub(crate) heard: Heard,
    pub(crate) accounts: Accounts,
    /// The revision at which other rights were bound: what somebody saw up to it is not known.
    pub(crate) bound_at: AtomicU64,
    /// Checks the tokens of the site's issuer, if it has one.
    pub(crate) jwt: Option<Jwt>,
    /// Lists that are read in pages.
    pub(crate) pages: Pages<Wanted>,
    /// The same of hosts.
    pub(crate) host_pages: Pages<WantedHosts>,
    pub(crate) synced: Synced,
    pub(crate) key: TokenKey,
    /// Where the store and the secret lie.
    pub(crate) data: PathBuf,
    /// Random per start: a change asks every agent for a full report.
    pub(crate) instance: String,
    /// What agents are told.
    pub(crate) terms: Terms,
    pub(crate) site_profiles: SiteFolder,
    pub(crate) stopping: Stop,
    /// Questions that are held, by user.
    pub(crate) polls: Shares<String>,
    pub(crate) limits: Limits,
    /// What was asked since the start.
    pub(crate) meters: Meters,
    pub(crate) rates: Rates,
    /// Where the store is.
    pub(crate) store_file: PathBuf,
    /// What watchers are told, written once for all of them.
    pub(crate) texts: Texts,
    /// What was changed and refused.
    pub(crate) audit: AuditLog,
    /// Who is listened to.
    pub(crate) front: Mutex<Front>,
}

impl App {
    /// Other rights hold from now on; who is listened to or watches is asked for again.
    pub(crate) fn bind(&self, bindings: Bindings) {
        self.accounts.bind(bindings);
        let now = self.shown.table.revision();
        self.bound_at.store(now, Ordering::Release);
        self.shown.access.send_modify(|number| *number += 1);
    }

    /// A service that exists for `caller`; what is hidden is refused like what is unknown.
    pub(crate) fn visible(
        &self,
        caller: &Caller,
        name: &ServiceName,
    ) -> Result<Arc<ServiceView>, Refused> {
        visible_in(&self.shown.view.borrow(), caller, name)
    }

    /// Looks until there is something to say, again after each ring of `bell`, for as long as the asker
    /// wishes and the controller runs. The caller subscribed `bell` before anything `look` reads.
    pub(crate) async fn held<T>(
        &self,
        hold: Hold,
        bell: &mut impl Bell,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut stopping = self.stopping.clone();
        let late = tokio::time::sleep(hold.shortened());
        tokio::pin!(late);
        loop {
            bell.listen_again();
            if let Some(found) = look() {
                return Some(found);
            }
            tokio::select! {
                rung = bell.rung() => rung?,
                () = &mut late => return None,
                () = stopping.said() => return None,
            }
        }
    }
}

#[cfg(test)]
std::thread_local! {
    /// How often this thread looked for a service: as often for one that is hidden as for one that is not there.
    pub(crate) static LOOK_UPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The service in `view`, if it exists for `caller`.
pub(crate) fn visible_in(
    view: &View,
    caller: &Caller,
    name: &ServiceName,
) -> Result<Arc<ServiceView>, Refused> {
    #[cfg(test)]
    LOOK_UPS.with(|count| count.set(count.get() + 1));
    let service = view.services.get(name);
    let service = service.filter(|s| caller.may_see(s.holding()));
    service
        .map(Arc::clone)
        .ok_or_else(|| Refused::no_such_service(name))
}

/// What tells a sleeper that there may be something new.
pub(crate) trait Bell {
    /// Forgets what was rung so far.
    fn listen_again(&mut self);

    /// Waits for the next ring since; `None`: nobody will ring any more.
    async fn rung(&mut self) -> Option<()>;
}

impl<B> Bell for watch::Receiver<B> {
    fn listen_again(&mut self) {
        self.mark_unchanged();
    }

    async fn rung(&mut self) -> Option<()> {
        self.changed().await.ok()
    }
}

impl Bell for Watcher {
    fn listen_again(&mut self) {
        self.mark_unchanged();
    }

    async fn rung(&mut self) -> Option<()> {
        self.changed().await;
        Some(())
    }
}
