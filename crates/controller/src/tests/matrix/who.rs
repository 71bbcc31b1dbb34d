//! Who asks: by what, and from where.

use std::sync::Arc;

use crate::peer::Peer;

/// Somebody with what they show.
#[derive(Clone, Debug)]
pub(super) struct Who {
    /// As the table has it.
    pub(super) name: &'static str,
    peer: Arc<Peer>,
    token: Option<String>,
    on_behalf: Option<u32>,
}

impl Who {
    /// An account over the socket.
    pub(super) fn account(name: &'static str, uid: u32) -> Self {
        Self {
            name,
            peer: Arc::new(Peer::Unix { uid }),
            token: None,
            on_behalf: None,
        }
    }

    /// Another machine, over TLS or in the clear, without a token.
    pub(super) fn remote(name: &'static str, tls: bool) -> Self {
        let address = "192.0.2.7:4000".parse().unwrap();
        Self {
            peer: Arc::new(Peer::Remote { address, tls }),
            ..Self::account(name, 0)
        }
    }

    /// Another machine over TLS with this token.
    pub(super) fn bearer(name: &'static str, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..Self::remote(name, true)
        }
    }

    /// The same, saying that it asks for somebody.
    pub(super) fn on_behalf(self, uid: u32) -> Self {
        Self {
            on_behalf: Some(uid),
            ..self
        }
    }

    /// What nobody else may ever be told of it.
    pub(super) fn secret(&self) -> Option<&str> {
        let (_, secret) = self.token.as_ref()?.rsplit_once('.')?;
        Some(secret)
    }

    /// Puts all of it on a request.
    pub(super) fn sign<B>(&self, request: &mut http::Request<B>) {
        request.extensions_mut().insert(Arc::clone(&self.peer));
        let headers = request.headers_mut();
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse().unwrap();
            headers.insert("authorization", value);
        }
        if let Some(uid) = self.on_behalf {
            headers.insert("portreeve-on-behalf", uid.into());
        }
    }
}
