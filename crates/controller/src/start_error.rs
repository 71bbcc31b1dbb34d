//! Why a controller did not start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use portreeve::commit::GraceTooShort;
use portreeve::registry::{LoadError, StoreError};
use portreeve::time::Spelled;
use portreeve_api::tls::TlsFileError;

use crate::audit::AuditPlace;
use crate::data_dir::TakeError;
use crate::site_file::SiteFileError;
use crate::socket::SocketError;
use crate::token::KeyError;

/// What is in the way of a controller. It did not start; what was there before is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another controller has the data directory.
    #[error("{} is in use by another controller{}; stop that one or name another directory with --data", path.display(), process(*pid))]
    DataInUse {
        /// The directory.
        path: PathBuf,
        /// The other process, where known.
        pid: Option<u32>,
    },
    /// The data directory, or something in it, cannot be used.
    #[error("the data directory cannot be used: {}: {reason}; name another with --data", path.display())]
    Data {
        /// What.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is stored cannot be read.
    #[error(transparent)]
    Records(#[from] LoadError),
    /// Another controller answers at the socket.
    #[error("another controller{} answers at {}; stop that one or name another directory with --run-dir", process(*pid), path.display())]
    SocketInUse {
        /// The socket.
        path: PathBuf,
        /// The other process, where known.
        pid: Option<u32>,
    },
    /// The socket cannot be made.
    #[error("socket {}: {reason}", path.display())]
    Socket {
        /// The socket or its folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Another program listens at the address.
    #[error("{address} is taken by another program; name another address with --listen")]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened at.
    #[error("{address}: {reason}; name another address with --listen")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        reason: String,
    },
    /// Not an address of this machine alone.
    #[error(
        "{address} can be reached from other machines: name a certificate and its key with --tls-cert and --tls-key, or listen at 127.0.0.1 or [::1]; \
         --insecure answers there in the clear, to readers without a name, and takes no token"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    /// A host would be given up whose agent was only started anew.
    #[error(
        "--host-grace {} gives up hosts that are well: an agent and its workers that start anew are heard of again after up to {}; \
         name a longer --host-grace, or a shorter --suspect-after, which has hosts give signs of life more often",
        Spelled(*host_grace), sum_of(parts)
    )]
    GraceTooShort {
        /// What was asked for.
        host_grace: Duration,
        /// The longest silence of a host that is well, part by part.
        parts: Box<[(&'static str, Duration)]>,
    },
    /// The file of limits or of rights cannot be used.
    #[error("{0}")]
    SiteFile(#[from] SiteFileError),
    /// The audit log cannot be written.
    #[error("the audit log {} cannot be written: {reason}; name another file with --audit-log", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The system gave no randomness.
    #[error("no randomness from the system: {reason}")]
    Randomness {
        /// The system's words.
        reason: String,
    },
}

/// `25s: 5s since the last sign of life, …`.
fn sum_of(parts: &[(&str, Duration)]) -> String {
    let sum: Duration = parts.iter().map(|(_, part)| *part).sum();
    let parts: Vec<String> = parts
        .iter()
        .map(|(what, part)| format!("{} {what}", Spelled(*part)))
        .collect();
    format!("{} ({})", Spelled(sum), parts.join(", "))
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl From<TakeError> for StartError {
    fn from(cause: TakeError) -> Self {
        match cause {
            TakeError::InUse { path, pid } => Self::DataInUse { path, pid },
            TakeError::Io { path, reason } => Self::Data { path, reason },
        }
    }
}

impl From<GraceTooShort> for StartError {
    fn from(cause: GraceTooShort) -> Self {
        Self::GraceTooShort {
            host_grace: cause.host_grace,
            parts: cause.parts,
        }
    }
}

impl From<KeyError> for StartError {
    fn from(cause: KeyError) -> Self {
        Self::Data {
            path: cause.path,
            reason: cause.reason,
        }
    }
}

impl StartError {
    /// An audit log that could not be opened.
    pub(crate) fn audit(place: Option<&AuditPlace>, cause: &std::io::Error) -> Self {
        let path = match place {
            Some(AuditPlace::InParts(path) | AuditPlace::File(path)) => path.clone(),
            None => PathBuf::new(),
        };
        let reason = cause.to_string();
        Self::Audit { path, reason }
    }

    /// A socket that could not be made at `path`.
    pub(crate) fn socket(path: PathBuf, cause: SocketError) -> Self {
        match cause {
            SocketError::InUse { pid } => Self::SocketInUse { path, pid },
            SocketError::RunDir { path, reason } => Self::Socket { path, reason },
            SocketError::Io(cause) => Self::Socket {
                path,
                reason: cause.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_that_is_too_short_is_told_with_the_sum_and_its_parts() {
        let refused = StartError::GraceTooShort {
            host_grace: Duration::from_secs(20),
            parts: portreeve::residency::lease::restart_and_rejoin(
                portreeve::residency::lease::PERIOD,
            )
            .into(),
        };
        assert_eq!(
            refused.to_string(),
            "--host-grace 20s gives up hosts that are well: an agent and its workers that start anew are heard of again \
             after up to 25s (5s since the last sign of life, 5s until the agent runs again and has its workers, \
             5s until it tries the controller again, 10s for its full report); name a longer --host-grace, or a shorter \
             --suspect-after, which has hosts give signs of life more often"
        );
    }
}
