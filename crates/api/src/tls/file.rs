//! Certificates and keys as they lie in files: PEM, and a key that nobody else may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::plain_file;

/// A longer file holds no certificates that anybody wrote by hand or by a CA.
const MOST_BYTES: u64 = 4 << 20;
/// Everybody may read or write, or the group may write. A group that reads is how Debian shares keys (`ssl-cert`).
const TOO_WIDE: u32 = 0o027;

/// The certificates of a PEM file, in its order.
///
/// # Errors
///
/// [`TlsFileError`]: it cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = read(path, &open(path)?)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|cause| TlsFileError::Garbled {
        path: path.to_owned(),
        reason: cause.to_string(),
    })?;
    if found.is_empty() {
        return Err(TlsFileError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(found)
}

/// The first private key of a PEM file (PKCS #8, PKCS #1 or SEC 1).
///
/// # Errors
///
/// [`TlsFileError`]: it cannot be read, others may read it, or it holds none.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let file = open(path)?;
    let about = file.metadata().map_err(|cause| unreadable(path, &cause))?;
    let mode = about.mode() & 0o777;
    if mode & TOO_WIDE != 0 {
        return Err(TlsFileError::TooWide {
            path: path.to_owned(),
            mode,
        });
    }
    let text = read(path, &file)?;
    // Its words could hold a part of the file.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsFileError::NoKey {
        path: path.to_owned(),
    })
}

fn open(path: &Path) -> Result<File, TlsFileError> {
    plain_file::open(path).map_err(|cause| unreadable(path, &cause))
}

fn read(path: &Path, file: &File) -> Result<Vec<u8>, TlsFileError> {
    let mut text = Vec::new();
    let read = file.take(MOST_BYTES).read_to_end(&mut text);
    read.map_err(|cause| unreadable(path, &cause))?;
    Ok(text)
}

fn unreadable(path: &Path, cause: &io::Error) -> TlsFileError {
    TlsFileError::Unreadable {
        path: path.to_owned(),
        reason: cause.to_string(),
    }
}

/// Why a file of TLS cannot be used. None of its content is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// It cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// Others could read the key.
    #[error("{} holds a private key and has mode {mode:04o}: others may read or change it; `chmod 600 {}`", path.display(), path.display())]
    TooWide {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// There is no certificate in it.
    #[error("{} holds no certificate; it should begin with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// There is no private key in it.
    #[error("{} holds no private key that can be read: PEM, without a pass phrase", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// It is no PEM, or what is in it no certificate.
    #[error("{} cannot be read as certificates in PEM: {reason}", path.display())]
    Garbled {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Key and certificate do not belong together, or are of a kind that is not supported.
    #[error("the certificate {} and the key {} do not go together: {reason}", certificate.display(), key.display())]
    Mismatched {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of its key.
        key: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The system believes nobody.
    #[error("this machine has no certificates of CAs ({reason}); name the CA's file with --ca")]
    NoRoots {
        /// What was found in their place.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_that_others_may_read_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        std::fs::write(&path, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        for (mode, fine) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o604, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = private_key(&path);
            assert_eq!(read.is_ok(), fine, "{mode:o}: {:?}", read.err());
        }
    }

    #[test]
    fn what_holds_no_key_or_certificate_is_named_without_a_word_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.pem");
        let text = "-----BEGIN PRIVATE KEY-----\nMARKER@@\n-----END PRIVATE KEY-----\n";
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for words in [
            private_key(&path).unwrap_err().to_string(),
            certificates(&path).unwrap_err().to_string(),
        ] {
            assert!(words.contains("secret.pem"), "{words}");
            assert!(!words.contains("MARKER"), "{words}");
        }
        let missing = certificates(&folder.path().join("none.pem")).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
    }
}
