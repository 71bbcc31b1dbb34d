//! What the product is held against: other ways to do the same, each as good as it is known to be.

pub(crate) mod flat;
pub(crate) mod host_locks;
pub(crate) mod locked_map;
pub(crate) mod rebuild;
pub(crate) mod roaring_pool;
pub(crate) mod scan;
pub(crate) mod sorted_list;
pub(crate) mod with_grants;
