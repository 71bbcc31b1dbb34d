//! Whether the kernel killed for want of memory: the count that the run's control group keeps of it.

use std::fs;
use std::path::{Path, PathBuf};

use portreeve_api::containment::Hierarchy;

/// How many processes of a group were killed for want of memory so far.
#[derive(Debug)]
pub(crate) struct OomCount {
    file: Option<PathBuf>,
    before: u64,
}

impl OomCount {
    /// Begins to count: in the run's group of version 2 or the nearest above it where memory is accounted, else in
    /// the group of version 1 that the run inherits from this process. A run that moves on by itself is not followed.
    pub(crate) fn begin(run: Option<&Path>) -> Self {
        let own = run
            .map(Path::to_owned)
            .or_else(|| Hierarchy::Unified.own().ok());
        let unified = own.iter().flat_map(|own| own.ancestors());
        let unified = unified.map(|group| group.join("memory.events"));
        let memory = Hierarchy::Memory.own().ok();
        let memory = memory.map(|group| group.join("memory.oom_control"));
        let file = unified.chain(memory).find(|file| count(file).is_some());
        let before = file.as_deref().and_then(count).unwrap_or_default();
        Self { file, before }
    }

    /// Whether one was killed since.
    pub(crate) fn has_risen(&self) -> bool {
        let now = self.file.as_deref().and_then(count);
        now.is_some_and(|now| now > self.before)
    }
}

fn count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    number.trim().parse().ok()
}
