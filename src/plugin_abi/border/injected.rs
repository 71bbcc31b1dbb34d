//! Defects on demand: with the feature `panic-injection` alone, a test in C lets a call panic at a place of
//! its choice. In every other build there are no such places.

/// A place at which a call can be let panic.
#[inline]
pub(crate) fn point() {
    #[cfg(feature = "panic-injection")]
    armed::reach();
}

#[cfg(feature = "panic-injection")]
pub use armed::pr_panic_at;

#[cfg(feature = "panic-injection")]
mod armed {
    use std::cell::Cell;

    thread_local! {
        /// How many places are left until the one that panics; 0: none does.
        static LEFT: Cell<u32> = const { Cell::new(0) };
    }

    pub(crate) fn reach() {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        assert!(left != 1, "injected");
    }

    /// Lets this thread panic at the `point`th place from now on, once; 0: not at all. Returns how many
    /// places were left of what was asked before.
    #[unsafe(no_mangle)]
    pub extern "C" fn pr_panic_at(point: u32) -> u32 {
        LEFT.replace(point)
    }
}
