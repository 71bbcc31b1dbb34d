//! What `make fuzz` calls of this crate that nobody else may: readers of bytes that others wrote, and a whole controller
//! without a connection.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use portreeve_api::site_profiles::SiteFolder;

use crate::backup::Backup;
use crate::peer::Peer;
use crate::rest::Api;
use crate::token::TokenKey;
use crate::{Config, Controller, limits_file};

/// What `text` speaks for, where `key` signs it; signed anew if it is no token but what one claims.
#[must_use]
pub fn token(text: &str) -> Option<String> {
    TokenKey::read_and_signed(text)
}

/// Reads a file of limits; how many problems it has.
#[must_use]
pub fn limits(text: &str) -> usize {
    limits_file::problems(text)
}

/// Reads a backup: the bytes, and the same as its packed lines with the right end.
pub fn backup(bytes: &[u8]) {
    let _ = Backup::read(bytes);
    Backup::read_lines(bytes);
}

/// A whole controller in a folder, which is asked without a connection.
#[derive(Debug)]
pub struct Rest {
    controller: Controller,
    api: Api,
}

/// What came back; of what takes longer, or has no end, nothing.
#[derive(Debug)]
pub struct Answered {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl Rest {
    /// Begins anew in the folder, which is empty.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn start(folder: &Path) -> Self {
        let config = Config {
            networks: portreeve::host_addr::Networks::default(),
            data: folder.join("data"),
            socket: folder.join("run/controller.sock"),
            listen: Vec::new(),
            single_host: true,
            cooling: Duration::from_secs(60),
            coalesce: Duration::ZERO,
            silence: portreeve::registry::Silence::default(),
            new_epoch: false,
            site_profiles: SiteFolder::at(None),
            max_connections: None,
            max_streams: None,
            requests_per_second: Some(u32::MAX / 16),
            limits: None,
        };
        let controller = Controller::start(config).await.expect("it starts");
        let api = Api::new(Arc::clone(&controller.app));
        Self { controller, api }
    }

    /// Asks as the user of this number.
    pub async fn ask(
        &self,
        uid: u32,
        mut request: Request<Vec<u8>>,
        patience: Duration,
    ) -> Option<Answered> {
        let peer = Arc::new(Peer::Unix { uid });
        request.extensions_mut().insert(peer);
        let answered = async {
            let response = self.api.answer(request.map(Body::from)).await;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.ok()?.to_bytes().to_vec();
            Some(Answered {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        tokio::time::timeout(patience, answered).await.ok()?
    }

    /// Ends it.
    pub async fn stop(self) {
        drop(self.api);
        self.controller.stop().await;
    }
}
