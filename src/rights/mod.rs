//! Who may see and do what: one pure decision under every output.
//!
//! Invariant: what a caller may not see is answered exactly like what does not exist; so every reader asks
//! [`Caller::may_see`] first, and a refusal that names the owner comes only after it.
//!
//! What a caller may is its [`Rights`]: a [`Role`], and how far it sees and manages, each a [`Scope`]. What is decided
//! about is a [`Holding`]. Who somebody is, and which rights follow from that, is found outside.

mod caller;
mod role;
mod scope;

pub use caller::{Caller, Holding, Owner};
pub use role::{ParseRoleError, Rights, Role};
pub use scope::{ParseScopeError, Scope};

#[cfg(test)]
mod rights_test;
