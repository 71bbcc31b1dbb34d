//! TLS between portreeve's own programs: certificates and keys from files, and what is wrong with the other end's.
//!
//! Nothing is read before the first connection that needs it, so a program that speaks over a Unix socket alone carries
//! no roots in its memory. Files are read again once they changed: a renewed certificate needs no restart.

mod fault;
mod file;
mod kept;
mod trust;

pub use fault::TlsFault;
pub use file::{TlsFileError, certificates, private_key};
pub use kept::{CERTIFICATE_VARIABLE, KEY_VARIABLE, keep_own};
pub use trust::{OwnCertificate, TlsFiles};

pub(crate) use trust::Trust;
