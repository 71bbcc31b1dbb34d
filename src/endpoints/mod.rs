//! Service name to snapshot: one writer, lock-free readers, changes for watchers.

mod endpoint;

pub use endpoint::{Endpoint, EndpointPort, EndpointState, ServiceEndpoints};
