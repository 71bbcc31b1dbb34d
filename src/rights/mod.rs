//! Who may see and do what: one pure decision under every output.

use serde::{Deserialize, Serialize};

/// Who asks, as the controller authenticated them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The account.
    pub user: String,
    /// Its uid on the controller's machine, where there is one.
    pub uid: Option<u32>,
    /// The account's groups.
    pub groups: Vec<String>,
    /// Whether every service may be seen and managed: root, and the controller's own account.
    pub admin: bool,
}
