//! The ports of one host: which are free, which are held, and by whom.

mod request;

pub use request::{
    FixedTwice, GrantedPort, PortGrant, PortRequest, PortRequestError, Want, WantedPort,
};
