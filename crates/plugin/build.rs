//! How the shared object is linked.

fn main() {
    // A missing symbol shows here, not in the scheduler's process on the first call.
    link("-z,defs");
    // The table and its functions stay readable after dlclose.
    link("-z,nodelete");
    // Nothing is bound later, so nothing has to stay writable for it.
    link("-z,relro,-z,now");
    // Who links it asks for the major number of the contract: PR_ABI.
    link("-soname,libportreeve_plugin.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}

fn link(option: &str) {
    println!("cargo:rustc-cdylib-link-arg=-Wl,{option}");
}
