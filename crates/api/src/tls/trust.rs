//! What a client believes and shows: roots and its own certificate, made of files when first wanted.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};

use super::file::{TlsFileError, certificates};
use super::kept;

/// The files a client needs over https; the usual ones where nothing is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    /// The certificates of CAs that are believed, in place of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// What the client proves itself with, to a controller that asks everybody for a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnCertificate>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCertificate {
    /// The certificate, and those between it and its CA.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Whether nothing is named.
    #[must_use]
    pub const fn is_usual(&self) -> bool {
        self.ca.is_none() && self.own.is_none()
    }

    /// Reads everything that is named.
    ///
    /// # Errors
    ///
    /// [`TlsFileError`]; a client would fail with it at its first connection.
    pub fn check(&self) -> Result<(), TlsFileError> {
        config(self).map(|_| ())
    }

    fn stamps(&self) -> Vec<Stamp> {
        let own = self.own.iter();
        let own = own.flat_map(|own| [&own.certificate, &own.key]);
        self.ca.iter().chain(own).map(|path| stamp(path)).collect()
    }
}

/// What tells one content of a file from the next: device, node, size and moment of change.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let about = std::fs::metadata(path).ok()?;
    let (dev, node, size) = (about.dev(), about.ino(), about.size());
    Some((dev, node, size, about.mtime(), about.mtime_nsec()))
}

/// The files, and what was made of them.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    files: TlsFiles,
    made: Mutex<Option<Made>>,
}

#[derive(Debug)]
struct Made {
    stamps: Vec<Stamp>,
    config: Arc<ClientConfig>,
}

impl Trust {
    pub(crate) const fn of(files: TlsFiles) -> Self {
        Self {
            files,
            made: Mutex::new(None),
        }
    }

    /// For the next connection. Files that changed are read again; as long as what is written there now cannot be used,
    /// what was read before holds.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsFileError> {
        // What a panic left is only a config that is made anew.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.stamps();
        if let Some(made) = &*made
            && made.stamps == stamps
        {
            return Ok(Arc::clone(&made.config));
        }
        let config = match (config(&self.files), &*made) {
            (Ok(config), _) => Arc::new(config),
            (Err(_), Some(before)) => return Ok(Arc::clone(&before.config)),
            (Err(cause), None) => return Err(cause),
        };
        *made = Some(Made {
            stamps,
            config: Arc::clone(&config),
        });
        Ok(config)
    }
}

fn config(files: &TlsFiles) -> Result<ClientConfig, TlsFileError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for every version that is built in")
        .with_root_certificates(roots(files.ca.as_deref())?);
    let Some(own) = &files.own else {
        return Ok(builder.with_no_client_auth());
    };
    let (shown, key) = kept::own(own)?;
    let made = builder.with_client_auth_cert(shown, key);
    made.map_err(|cause| TlsFileError::Mismatched {
        certificate: own.certificate.clone(),
        key: own.key.clone(),
        reason: cause.to_string(),
    })
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates(path)? {
            add(&mut roots, certificate).map_err(|reason| TlsFileError::Garbled {
                path: path.to_owned(),
                reason,
            })?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    // One that this library does not read is none that a controller would have.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        let reason = if reasons.is_empty() {
            "none is installed".to_owned()
        } else {
            reasons.join("; ")
        };
        return Err(TlsFileError::NoRoots { reason });
    }
    Ok(roots)
}

fn add(roots: &mut RootCertStore, certificate: CertificateDer<'static>) -> Result<(), String> {
    roots.add(certificate).map_err(|cause| cause.to_string())
}
