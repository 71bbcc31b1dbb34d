//! The controller: it owns the truth, keeps it on disk, and answers over REST.

mod clock;
mod data_dir;
mod store;
mod token;

pub use store::RedbStore;
