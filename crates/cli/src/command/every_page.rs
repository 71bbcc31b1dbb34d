//! Long lists whole: page by page, all of one moment.

use portreeve_api::body::{HostList, ServiceList};
use portreeve_api::{Client, ClientError, Problem, paths};
use serde::de::DeserializeOwned;

use crate::exit::Failure;

use super::services::PATIENCE;

/// A list that comes in pages.
pub(crate) trait Paged: DeserializeOwned {
    /// Where the next page begins, if there is one; from now on there is none.
    fn take_cursor(&mut self) -> Option<String>;

    /// Adds the page that follows, and where the one after that begins.
    fn append(&mut self, next: Self);
}

impl Paged for ServiceList {
    fn take_cursor(&mut self) -> Option<String> {
        self.next_cursor.take()
    }

    fn append(&mut self, next: Self) {
        self.services.extend(next.services);
        self.next_cursor = next.next_cursor;
    }
}

impl Paged for HostList {
    fn take_cursor(&mut self) -> Option<String> {
        self.next_cursor.take()
    }

    fn append(&mut self, next: Self) {
        self.hosts.extend(next.hosts);
        self.next_cursor = next.next_cursor;
    }
}

/// How often a list is begun again whose moment the controller forgot between two pages.
const BEGUN_AGAIN: u32 = 2;

/// The whole list at `path`, its first page asked for with `filters`.
pub(crate) async fn every_page<L: Paged>(
    client: &Client,
    path: &str,
    filters: &[(&str, &str)],
) -> Result<L, Failure> {
    let first = paths::with_parameters(path, filters);
    let mut begun = 0;
    loop {
        let mut list: L = client.get(&first, PATIENCE).await?;
        let whole = loop {
            let Some(cursor) = list.take_cursor() else {
                break true;
            };
            let next = paths::with_parameters(path, &[("cursor", &cursor)]);
            match client.get::<L>(&next, PATIENCE).await {
                Ok(page) => list.append(page),
                Err(ClientError::Refused(problem))
                    if problem.code == Problem::CURSOR_EXPIRED && begun < BEGUN_AGAIN =>
                {
                    break false;
                }
                Err(other) => return Err(other.into()),
            }
        };
        if whole {
            return Ok(list);
        }
        begun += 1;
    }
}
