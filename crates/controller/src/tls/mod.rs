//! TLS of listeners beyond loopback: the certificate as it is now, and the bytes of one connection.
//!
//! A certificate that is renewed counts for connections from then on; those that are open go on under the former.

mod sealed;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use portreeve_api::tls::{TlsFileError, certificates, private_key};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

pub(crate) use sealed::Sealed;

/// The files of a controller that answers over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Its certificate, and those between it and its CA.
    pub certificate: PathBuf,
    /// The key; nobody else may read it.
    pub key: PathBuf,
    /// Who connects has to show a certificate of one of these CAs. `None`: nobody is asked for one.
    pub client_ca: Option<PathBuf>,
}

/// The files, and what they held when they were last read.
#[derive(Debug)]
pub(crate) struct Seal {
    files: ServerTls,
    now: Mutex<Arc<ServerConfig>>,
}

impl Seal {
    /// Reads the files.
    pub(crate) fn of(files: ServerTls) -> Result<Self, TlsFileError> {
        let now = Mutex::new(Arc::new(read(&files)?));
        Ok(Self { files, now })
    }

    /// Reads them again, for the connections that follow. As long as they cannot be used nothing changes.
    pub(crate) fn renew(&self) -> Result<(), TlsFileError> {
        let read = Arc::new(read(&self.files)?);
        *self.now.lock() = read;
        Ok(())
    }

    /// The greeting of one connection.
    pub(crate) async fn greet(&self, wire: TcpStream) -> std::io::Result<Sealed> {
        let config = Arc::clone(&self.now.lock());
        TlsAcceptor::from(config)
            .accept(wire)
            .await
            .map(Sealed::new)
    }
}

fn read(files: &ServerTls) -> Result<ServerConfig, TlsFileError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring has suites for every version that is built in");
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let garbled = |reason: String| TlsFileError::Garbled {
                path: path.clone(),
                reason,
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|cause| garbled(cause.to_string()))?;
            }
            let asks = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let asks = asks.build().map_err(|cause| garbled(cause.to_string()))?;
            builder.with_client_cert_verifier(asks)
        }
    };
    let shown = certificates(&files.certificate)?;
    let made = builder.with_single_cert(shown, private_key(&files.key)?);
    let mut config = made.map_err(|cause| TlsFileError::Mismatched {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        reason: cause.to_string(),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
