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
    /// The table's number, for those who follow several.
    table: Option<Watcher>,
    /// Who may see what, and what there is.
    view: watch::Receiver<Arc<View>>,
}

impl Bells {
    pub(crate) fn of(app: &App, asked: &Asked) -> Self {
        let several = asked.only().is_none();
        Self {
            cell: None,
            table: several.then(|| app.shown.table.subscribe()),
            view: app.shown.view.subscribe(),
        }
    }

    /// What rings from here on is heard. Before the snapshots are read, so that no change falls between.
    pub(crate) fn listen(&mut self, app: &App, asked: &Asked) {
        self.view.mark_unchanged();
        if let Some(table) = &mut self.table {
            table.mark_unchanged();
        }
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

    pub(crate) async fn ring(&mut self) {
        let Self { cell, table, view } = self;
        let number = match (cell, table) {
            (Some((_, number)), _) | (None, Some(number)) => Some(number),
            (None, None) => None,
        };
        tokio::select! {
            () = heard(number) => {}
            // The view's writer is part of what this stream holds.
            _ = view.changed() => {}
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
