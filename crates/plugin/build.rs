//! How the shared object is linked.

fn main() {
    // A missing symbol shows here, not in the scheduler's process on the first call.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs");
    // The table and its functions stay readable after dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
