//! What is wrong between two ends of TLS, in words that say who can mend it.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

use super::file::TlsFileError;

/// Why there is no TLS with a controller. Nothing was sent to it but the greeting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// Its certificate was signed by nobody known.
    #[error(
        "its certificate comes from a CA that is not known here; name the file of that CA with --ca"
    )]
    UnknownIssuer,
    /// Its certificate is another's.
    #[error(
        "its certificate is for {}, not for the name it was asked by; name the controller by one of these, or have a certificate made for that name",
        names(presented)
    )]
    WrongName {
        /// Whom it is for.
        presented: Vec<String>,
    },
    /// Its certificate is too old.
    #[error(
        "its certificate has expired, or the clock here is wrong; whoever runs the controller renews it"
    )]
    Expired,
    /// Its certificate is too new.
    #[error("its certificate is not valid yet, or the clock here is wrong")]
    NotYetValid,
    /// What answers there does not speak TLS.
    #[error("what answers there does not speak TLS; a plain port is named http://")]
    NotTls,
    /// It wants to know who the client is.
    #[error(
        "it wants a certificate of whoever connects; name one with --client-cert and --client-key"
    )]
    CertificateWanted,
    /// It does not believe the client's certificate.
    #[error(
        "it does not accept the certificate shown to it ({reason}); have one made by the CA that it asks for"
    )]
    CertificateRefused {
        /// The word of the protocol.
        reason: String,
    },
    /// A file of this side cannot be used.
    #[error(transparent)]
    File(#[from] TlsFileError),
    /// Something else.
    #[error("{reason}")]
    Other {
        /// The library's words.
        reason: String,
    },
}

impl TlsFault {
    /// What TLS says in this error or beneath it; `None`: it is of something else.
    #[must_use]
    pub fn beneath(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<rustls::Error>() {
                return Some(found.into());
            }
            // An error of IO hands out what is beneath what it holds, not what it holds.
            next = match error.downcast_ref::<io::Error>() {
                Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
                None => error.source(),
            };
        }
        None
    }
}

impl From<&rustls::Error> for TlsFault {
    fn from(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(cause) => of_certificate(cause),
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            rustls::Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateRequired => Self::CertificateWanted,
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::AccessDenied => Self::CertificateRefused {
                    reason: format!("{alert:?}"),
                },
                _ => Self::other(error),
            },
            _ => Self::other(error),
        }
    }
}

impl TlsFault {
    fn other(error: &rustls::Error) -> Self {
        Self::Other {
            reason: error.to_string(),
        }
    }
}

fn of_certificate(cause: &CertificateError) -> TlsFault {
    match cause {
        // Another CA of the same name is another CA.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFault::UnknownIssuer,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsFault::NotYetValid
        }
        CertificateError::NotValidForName => TlsFault::WrongName {
            presented: Vec::new(),
        },
        CertificateError::NotValidForNameContext { presented, .. } => TlsFault::WrongName {
            presented: presented.iter().map(|name| bare(name)).collect(),
        },
        other => TlsFault::Other {
            reason: format!("its certificate cannot be used: {other}"),
        },
    }
}

/// `DnsName("c.example")` as `c.example`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest);
    let inner = inner.strip_suffix(')').unwrap_or(inner);
    inner.trim_matches('"').to_owned()
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "another name".to_owned();
    }
    presented.join(", ")
}
