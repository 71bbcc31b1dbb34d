//! Watchers of a controller that goes on, and of one whose data comes from elsewhere.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::wire::{Event, Events};
use super::{Scripted, get, place, ports, wait_listed};
use crate::daemons::controller;

const PATIENCE: Duration = Duration::from_secs(60);
const PATH: &str = "/api/v1/services/web/endpoints";

/// The events of a stream up to its first full set, after one that ended with this id.
fn first(site: &Scripted, after: &str) -> Vec<Event> {
    let mut events = Events::open(&place(&site.world), PATH, Some(after), PATIENCE).unwrap();
    let mut seen = Vec::new();
    while seen
        .last()
        .is_none_or(|event: &Event| event.name != "endpoints")
    {
        seen.push(events.next().unwrap().unwrap());
    }
    seen
}

fn now(site: &Scripted) -> Value {
    get(&site.world, "services/web/endpoints").json()
}

fn id(endpoints: &Value) -> String {
    let epoch = endpoints["epoch"].as_str().unwrap();
    format!("{epoch}.{}", endpoints["revision"])
}

impl Scripted {
    /// The controller ends as it is asked to, so that everything is written.
    fn end_controller(&mut self) {
        let ended = self.controller.take().unwrap().end("TERM");
        assert_eq!(ended, Some(0));
    }

    fn start_controller(&mut self) {
        self.controller = Some(controller(&self.world));
        self.host.report().unwrap();
    }

    /// Copies the controller's data.
    fn copy(&self, from: &str, to: &str) {
        let mut copy = Command::new("cp");
        copy.arg("-r")
            .args([from, to].map(|name| self.world.path(name)));
        assert!(copy.status().unwrap().success());
    }
}

#[test]
fn a_watcher_goes_on_after_a_restart_and_starts_anew_after_a_restore() {
    // Entries 12 and 13
    let Some(mut site) = Scripted::new("web", 3) else {
        return;
    };
    site.tell(0, true);
    wait_listed(&site.world, "web", 1);
    let first_of_all = now(&site);
    site.end_controller();
    site.copy("controller", "kept");
    site.start_controller();
    site.tell(1, true);
    wait_listed(&site.world, "web", 2);
    let restarted = now(&site);
    // The same line of state: the watcher of before the restart is told what changed, and need not forget.
    assert_eq!(restarted["epoch"], first_of_all["epoch"]);
    assert!(restarted["revision"].as_u64() > first_of_all["revision"].as_u64());
    let seen = first(&site, &id(&first_of_all));
    assert!(seen.iter().all(|event| event.name != "reset"), "{seen:#?}");
    assert_eq!(ports(&seen.last().unwrap().data).len(), 2);

    // The data of before is put back; what the watcher knows of after it never was.
    site.end_controller();
    std::fs::rename(site.world.path("controller"), site.world.path("lost")).unwrap();
    site.copy("kept", "controller");
    site.start_controller();
    wait_listed(&site.world, "web", 2);
    let restored = now(&site);
    assert_ne!(restored["epoch"], restarted["epoch"]);
    assert!(
        restored["revision"].as_u64() > restarted["revision"].as_u64(),
        "a number went back: {restored:#} {restarted:#}"
    );
    let seen = first(&site, &id(&restarted));
    assert_eq!(seen[0].name, "reset", "{seen:#?}");
    assert_eq!(ports(&seen.last().unwrap().data), ports(&restored));
    assert!(
        seen.last()
            .unwrap()
            .id
            .starts_with(restored["epoch"].as_str().unwrap())
    );

    // A poll of that line is answered at once, too: it does not wait for a number that is not its own.
    let (epoch, revision) = (restarted["epoch"].as_str().unwrap(), &restarted["revision"]);
    let poll = format!("services/web/endpoints?revision={revision}&epoch={epoch}&wait=5m");
    let answer = get(&site.world, &poll);
    assert!([200, 400].contains(&answer.head.status), "{answer:?}");
}
