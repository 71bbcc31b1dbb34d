//! Runs that seeds make: every seed another cluster, with other services and another mix of faults.
//!
//! * `case` makes a [`Spec`](crate::cluster::spec::Spec) of a seed, of `profiles`, `scripts` and the `faults` of its `mix`; `draw` is its chance.

mod case;
mod draw;
mod faults;
mod mix;
mod profiles;
mod scripts;
