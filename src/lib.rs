//! portreeve: ports, supervision and endpoints for long-running services on batch and HPC clusters.
//!
//! This package is the lean core. It decides and does nothing else: no clock, no socket, no thread, no
//! file; time, randomness and outcomes are arguments and return values. The crates beside it do.
//!
//! What it promises, and where:
//!
//! 1. No collision: a number of a host has one holder, from the decision until its last process is gone
//!    ([`allocator`], [`port_pool`]).
//! 2. A restart keeps its ports: [`supervision`] knows of none, so it cannot change them.
//! 3. A reader sees one version of a service, and only replicas last known ready ([`endpoints`]).
//! 4. Silence is the steady state: without a change nothing is sent, stored or woken.
//! 5. Refused means unchanged, and says which port, which host and who has it.
//! 6. What is decided is durable before it is visible ([`registry`]).
//! 7. Unknown is not gone: silence frees no port ([`registry`], [`residency`]).
//!
//! A profile becomes a request, the request a grant, the grant what the job sees:
//!
//! ```
//! use portreeve::allocator::{Allocator, AllocatorConfig, HostSpec, HostState};
//! use portreeve::identity::{HostId, Incarnation, ReplicaId, Run, ServiceId};
//! use portreeve::profile::Profile;
//! use portreeve::time::Monotonic;
//! use portreeve::variables::{PREFIX, Setting, environment};
//!
//! let profile = Profile::from_toml(
//!     r#"
//!     kind = "service"
//!     name = "web"
//!     command = ["python3", "-m", "http.server", "${port.http}"]
//!     [ports]
//!     http = "any"
//!     "#,
//! )?
//! .profile;
//!
//! let mut allocator = Allocator::new(AllocatorConfig::default());
//! allocator.put_host(HostId(0), HostSpec::new("n1".parse()?))?;
//! allocator.set_host_state(HostId(0), HostState::Up)?;
//! let replica = ReplicaId { service: ServiceId(1), index: 0, incarnation: Incarnation(0) };
//! let mut transaction = allocator.begin(Monotonic::from_millis(0));
//! let grant = transaction.reserve(HostId(0), replica, &profile.request(), None)?;
//! transaction.commit();
//!
//! let seen = environment(
//!     &profile,
//!     &Setting {
//!         prefix: PREFIX,
//!         service: &"web.alice".parse()?,
//!         index: replica.index,
//!         incarnation: replica.incarnation,
//!         run: Run(1),
//!         host: &"n1".parse()?,
//!         host_address: "10.0.0.1".parse()?,
//!         port_addresses: &std::collections::BTreeMap::new(),
//!         grant: &grant,
//!         scratch: "/tmp/web",
//!         controller: "http://10.0.0.9:7373",
//!         token_file: "/tmp/web-token",
//!     },
//! );
//! assert!(seen.contains(&("PORTREEVE_PORT_HTTP".to_owned(), "20000".to_owned())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// A program that loads the core has its own idea of what stands on its terminal.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod allocator;
pub mod attendance;
pub mod commit;
pub mod endpoints;
pub mod host_addr;
pub mod identity;
pub mod plugin_abi;
pub mod port;
pub mod port_pool;
pub mod profile;
pub mod registry;
pub mod residency;
pub mod rights;
pub mod supervision;
pub mod time;
pub mod variables;
