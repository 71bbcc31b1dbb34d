//! What a watcher's stream waits on.

use std::sync::Arc;

use portreeve::endpoints::{Handle, Snapshot, Watcher};
use portreeve::registry::View;
use tokio::sync::watch;

use crate::app::App;

use super::asked::Asked;

/// The numbers of one stream: few, however many services it follows.
pub(crate) struct Bells {
    /// The one service's number, while it is there.
    cell: Option<(Handle, Watcher)>,
    /// The table's number, for those who follow several; that of its names, for who waits for one.
    table: Watcher,
    /// Who may see what.
    rights: watch::Receiver<u64>,
    /// That what was stored is confirmed.
    synced: watch::Receiver<u64>,
    /// What there is, for as long as the table shows more than it: the view is written after the table.
    view: watch::Receiver<Arc<View>>,
}

impl Bells {
    pub(crate) fn of(app: &App, asked: &Asked) -> Self {
        let table = &app.shown.table;
        Self {
            cell: None,
            table: match asked.only() {
                Some(_) => table.subscribe_names(),
                None => table.subscribe(),
            },
            rights: app.shown.rights.subscribe(),
            synced: app.shown.synced.subscribe(),
            view: app.shown.view.subscribe(),
        }
    }

    /// What rings from here on is heard. Before the snapshots are read, so that no change falls between.
    pub(crate) fn listen(&mut self, app: &App, asked: &Asked) {
        self.table.mark_unchanged();
        self.rights.mark_unchanged();
        self.synced.mark_unchanged();
        self.view.mark_unchanged();
        let gone = |handle: &Handle| handle.read(Snapshot::is_removed);
        if self.cell.as_ref().is_some_and(|(handle, _)| gone(handle)) {
            self.cell = None;
        }
        match (&mut self.cell, asked.only()) {
            (Some((_, number)), _) => number.mark_unchanged(),
            (None, Some(service)) => {
                let handle = app.shown.table.service(service);
                self.cell = handle.map(|handle| {
                    let number = asked.view.listing.subscribe(&handle);
                    (handle, number)
                });
            }
            (None, None) => {}
        }
    }

    /// Returns when one of them rings. The view's only where `awaits_view`: it moves with whatever happens.
    pub(crate) async fn ring(&mut self, awaits_view: bool) {
        let Self {
            cell,
            table,
            rights,
            synced,
            view,
        } = self;
        let number = match cell {
            Some((_, number)) => number,
            None => table,
        };
        tokio::select! {
            _ = number.changed() => {}
            // Those who ring are part of what this stream holds.
            _ = rights.changed() => {}
            _ = synced.changed() => {}
            _ = view.changed(), if awaits_view => {}
        }
    }
}

/// Returns when the number moves; never, where there is none.
pub(crate) async fn heard(number: Option<&mut Watcher>) {
    match number {
        Some(number) => {
            number.changed().await;
        }
        None => std::future::pending().await,
    }
}
