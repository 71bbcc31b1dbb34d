//! Memory that is taken when a context is made, so that no hot call has to ask for any.
//!
//! Refused is refused: nothing here ends the process, however much a configuration asks for.

use std::alloc::{Layout, alloc_zeroed};

use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::constants::PR_ENOMEM;

/// An empty list with room for `most` elements.
///
/// # Errors
///
/// `PR_ENOMEM` if there is no memory for them.
pub(crate) fn list<T>(most: usize, what: &'static str) -> Result<Vec<T>, Failure> {
    let mut list = Vec::new();
    let reserved = list.try_reserve_exact(most);
    reserved.map_err(|_| refused(most, what))?;
    Ok(list)
}

/// `many` zeroes. The system hands such pages out only when they are first used, so that a high maximum
/// costs memory for what is in use alone.
///
/// # Errors
///
/// `PR_ENOMEM` if there is no memory for them.
pub(crate) fn zeroes(many: usize, what: &'static str) -> Result<Vec<u32>, Failure> {
    let layout = Layout::array::<u32>(many).map_err(|_| refused(many, what))?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout has a size that is not 0 (checked).
    let first = unsafe { alloc_zeroed(layout) }.cast::<u32>();
    if first.is_null() {
        return Err(refused(many, what));
    }
    // SAFETY: `first` is from the global allocator with the layout of `many` numbers, which is what a vector of this
    // capacity frees; all of them are initialised, as zeroed bytes are numbers; nobody else has it.
    Ok(unsafe { Vec::from_raw_parts(first, many, many) })
}

fn refused(many: usize, what: &'static str) -> Failure {
    Failure::value(PR_ENOMEM, what, many as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_cannot_give_is_refused() {
        assert_eq!(zeroes(5, "few").unwrap(), [0; 5]);
        assert!(zeroes(0, "none").unwrap().is_empty());
        assert_eq!(list::<u64>(9, "few").unwrap().capacity(), 9);
        for many in [usize::MAX, 1 << 45] {
            assert_eq!(zeroes(many, "many").unwrap_err().code(), PR_ENOMEM);
            assert_eq!(list::<u32>(many, "many").unwrap_err().code(), PR_ENOMEM);
        }
    }
}
