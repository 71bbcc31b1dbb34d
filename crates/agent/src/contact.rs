//! When the controller last heard of this host, noted where workers read it: a service may be told to end once that is
//! longer ago than the controller forgives.

use std::path::Path;
use std::time::Duration;

use portreeve::time::Monotonic;
use portreeve_api::host_limits::{Contact, HostLimits};
use tokio::sync::watch;
use tracing::warn;

use crate::clock;

/// Where it is noted.
#[derive(Debug)]
pub(crate) struct ContactPage {
    page: Option<HostLimits>,
    /// Whether a replica here reads it. Without one nothing is written, so that a host at rest writes nothing.
    read: watch::Receiver<bool>,
    newest: Option<Contact>,
    is_broken: bool,
}

impl ContactPage {
    /// The page that all workers of the host share.
    pub(crate) fn of(state: &Path, read: watch::Receiver<bool>) -> Self {
        // Who made it before said why, if it cannot be used.
        let page = HostLimits::open(&state.join("limits")).ok();
        if let Some(page) = &page
            && page
                .contact()
                .is_some_and(|noted| noted.at > clock::steady())
        {
            // Of an earlier boot.
            _ = page.note_contact(Contact {
                at: Monotonic::default(),
                grace: Duration::ZERO,
            });
        }
        Self {
            page,
            read,
            newest: None,
            is_broken: false,
        }
    }

    /// The controller has acknowledged what was sent at `at`. Without a grace it is one that tells none.
    pub(crate) fn heard(&mut self, at: Monotonic, grace: Option<Duration>) {
        self.newest = grace.map(|grace| Contact { at, grace });
        if *self.read.borrow_and_update() {
            self.note();
        }
    }

    /// Returns once the first replica is here that reads what is noted.
    pub(crate) async fn is_read(&mut self) {
        while self.read.changed().await.is_ok() {
            if *self.read.borrow_and_update() {
                return;
            }
        }
        // The household has ended, and the agent with it.
        std::future::pending::<()>().await;
    }

    /// Notes the last contact.
    pub(crate) fn note(&mut self) {
        let (Some(page), Some(contact)) = (&self.page, self.newest) else {
            return;
        };
        let noted = page.note_contact(contact);
        if let Err(cause) = &noted
            && !self.is_broken
        {
            warn!(
                "that the controller answers cannot be noted, and services that end when cut off will: {cause}"
            );
        }
        self.is_broken = noted.is_err();
    }
}
