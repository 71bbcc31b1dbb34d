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
    keep(OwnCertificate { certificate, key })
}

fn keep(files: OwnCertificate) -> Result<(), TlsFileError> {
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_was_kept_stands_in_for_its_own_files_alone_and_only_where_these_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            let own = OwnCertificate {
                certificate: folder.path().join(format!("{name}.pem")),
                key: folder.path().join(format!("{name}.key")),
            };
            std::fs::write(&own.certificate, made.cert.pem()).unwrap();
            std::fs::write(&own.key, made.signing_key.serialize_pem()).unwrap();
            std::fs::set_permissions(&own.key, Permissions::from_mode(0o600)).unwrap();
            own
        };
        let (mine, other) = (write("mine"), write("other"));
        keep(mine.clone()).unwrap();
        let first = own(&mine).unwrap().0;
        std::fs::remove_file(&other.key).unwrap();
        assert!(own(&other).is_err());
        // Renewed, and still readable.
        write("mine");
        assert_ne!(own(&mine).unwrap().0, first);
        std::fs::remove_file(&mine.key).unwrap();
        assert_eq!(own(&mine).unwrap().0, first);
    }
}
