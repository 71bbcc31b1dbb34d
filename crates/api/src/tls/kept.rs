//! A certificate that was read while this process could still read its key.
//!
//! A worker becomes the user of its job for good. What it proves the host with is not that user's: it is read before, and
//! stays in a memory that the kernel shows no user whom a process became. Renewed files count for workers that start later.

use std::path::PathBuf;
use std::sync::OnceLock;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::file::{TlsFileError, certificates, private_key};
use super::trust::OwnCertificate;

/// Names the certificate, for commands too.
pub const CERTIFICATE_VARIABLE: &str = "PORTREEVE_CLIENT_CERT_FILE";
/// Names its key.
pub const KEY_VARIABLE: &str = "PORTREEVE_CLIENT_KEY_FILE";

static KEPT: OnceLock<Kept> = OnceLock::new();

struct Kept {
    files: OwnCertificate,
    pair: Pair,
}

/// A certificate with those between it and its CA, and its key.
pub(super) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads the certificate and the key that the environment names, if it names both, for as long as this process lives.
///
/// # Errors
///
/// [`TlsFileError`]; nothing is kept.
pub fn keep_own() -> Result<(), TlsFileError> {
    let named = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(certificate), Some(key)) = (named(CERTIFICATE_VARIABLE), named(KEY_VARIABLE)) else {
        return Ok(());
    };
    let files = OwnCertificate { certificate, key };
    let pair = read(&files)?;
    // Read twice, the first stands.
    let _ = KEPT.set(Kept { files, pair });
    Ok(())
}

/// The files as they are now; where they cannot be read any more, as they were kept.
pub(super) fn own(files: &OwnCertificate) -> Result<Pair, TlsFileError> {
    read(files).or_else(|cause| match KEPT.get() {
        Some(kept) if kept.files == *files => {
            let (certificates, key) = &kept.pair;
            Ok((certificates.clone(), key.clone_key()))
        }
        _ => Err(cause),
    })
}

fn read(files: &OwnCertificate) -> Result<Pair, TlsFileError> {
    Ok((certificates(&files.certificate)?, private_key(&files.key)?))
}
