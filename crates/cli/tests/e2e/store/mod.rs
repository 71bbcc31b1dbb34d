//! The controller's directory in earnest: a disk that is full, a holder that died, a backup that becomes the truth.

mod backup;
mod full_disk;
mod lock;
