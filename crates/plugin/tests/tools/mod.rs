//! Programs that not every machine has.

/// Whether the program is installed; else a printed reason why a test says nothing. With
/// `PORTREEVE_REQUIRE_EXTERNAL=1` that is a failure.
pub(crate) fn is_there(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&paths).any(|folder| folder.join(tool).is_file()) {
        return true;
    }
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    assert!(!required, "{tool} is not installed");
    eprintln!("skipped: {tool} is not installed");
    false
}
