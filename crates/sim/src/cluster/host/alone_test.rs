//! What one replica did alone, it does on a host of a cluster.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cluster::run::Cluster;
use crate::cluster::sight::{Seen, Subject};
use crate::scenario::Scenario;
use crate::timeline::What;

/// Reports of each replica in both engines.
fn both(name: &str, scenario: &Scenario) -> usize {
    let alone = crate::world::play_alone(scenario).unwrap();
    let mut old: BTreeMap<u32, Vec<(u64, String)>> = BTreeMap::new();
    for entry in &alone.timeline {
        if let What::Report(report) = &entry.what {
            old.entry(entry.replica.unwrap_or_default())
                .or_default()
                .push((entry.at.as_millis(), report.to_string()));
        }
    }
    let mut new: BTreeMap<u32, Vec<(u64, String)>> = BTreeMap::new();
    let mut cluster = Cluster::new(scenario.spec.clone());
    let mut steps = 0;
    while let Some(step) = cluster.step() {
        steps += 1;
        assert!(steps < 3_000_000, "{name}");
        for sight in step.sights {
            if let (Subject::Replica { index, .. }, Seen::Report(report)) = (&sight.of, &sight.what)
            {
                new.entry(*index)
                    .or_default()
                    .push((sight.at.as_millis(), report.to_string()));
            }
        }
    }
    let mut differences = 0;
    for (index, old) in &old {
        let new = new.get(index).cloned().unwrap_or_default();
        let first = old.iter().zip(&new).position(|(old, new)| old != new);
        if first.is_some() || old.len() != new.len() {
            differences += 1;
            if differences > 2 {
                continue;
            }
            let at = first.unwrap_or(old.len().min(new.len()));
            eprintln!(
                "{name} replica {index}: {} old, {} new; from {at}:\n  {:?}\n  {:?}",
                old.len(),
                new.len(),
                &old[at.saturating_sub(1)..(at + 3).min(old.len())],
                &new[at.saturating_sub(1).min(new.len())..(at + 3).min(new.len())]
            );
        }
    }
    eprintln!("{name}: {differences} replicas differ, {steps} steps");
    differences
}

#[test]
fn shipped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("[[host]]") || text.contains("[[service]]") {
            continue;
        }
        let Ok(scenario) = Scenario::from_toml(&text, |named| {
            std::fs::read(folder.join(named)).map_err(|cause| cause.to_string())
        }) else {
            eprintln!("{} is not read", path.display());
            continue;
        };
        both(&path.file_name().unwrap().to_string_lossy(), &scenario);
    }
}
