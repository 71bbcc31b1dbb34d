//! Why a controller did not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use portreeve::registry::{LoadError, StoreError};

use crate::data_dir::TakeError;
use crate::limits_file::LimitsError;
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
        "{address} can be reached from other machines, which needs authentication and TLS that this version does not have; listen at 127.0.0.1 or [::1]"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The file of limits cannot be used.
    #[error("{0}")]
    Limits(#[from] LimitsError),
    /// The system gave no randomness.
    #[error("no randomness from the system: {reason}")]
    Randomness {
        /// The system's words.
        reason: String,
    },
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

impl From<KeyError> for StartError {
    fn from(cause: KeyError) -> Self {
        Self::Data {
            path: cause.path,
            reason: cause.reason,
        }
    }
}

impl StartError {
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
