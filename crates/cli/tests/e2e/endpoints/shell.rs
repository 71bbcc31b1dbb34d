//! The watch of a shell, over a connection that breaks.

use std::fs;

use super::follower::Proxy;
use super::{Scripted, is_long, wait_listed};
use crate::world::eventually;

#[test]
fn a_file_behind_a_connection_that_breaks_all_the_time_ends_as_endpoints_says() {
    // P24
    let Some(mut site) = Scripted::new("web", 3) else {
        return;
    };
    for nth in 0..3 {
        site.tell(nth, true);
    }
    wait_listed(&site.world, "web", 3);
    let all = site.world.ok(&["endpoints", "web"]);
    let near = site.world.path("proxy.sock");
    let cuts = if is_long() { 200 } else { 12 };
    let proxy = Proxy::start(&near, &site.world.path("run/controller.sock"), cuts, 7).unwrap();
    let address = format!("unix:{}", near.display());
    let file = site.world.path("web");
    let name = file.display().to_string();
    let arguments = ["--controller", &address, "watch", "web", "--output", &name];
    let watch = site.world.start_alone("watch", &arguments);
    let mut nth = 0;
    // A connection that broke is tried anew after a quarter of a second, a second at most; fifty flips take that long.
    let met = (0..2 * cuts).any(|_| {
        eventually(|| {
            site.flip(nth % 3);
            nth += 1;
            nth.is_multiple_of(50) || proxy.cuts() >= cuts
        });
        proxy.cuts() >= cuts
    });
    assert!(met, "{} cuts: {}", proxy.cuts(), watch.output());
    for nth in 0..3 {
        site.tell(nth, nth != 1);
    }
    let lines: Vec<_> = all.lines().collect();
    let says = format!("{}\n{}\n", lines[0], lines[2]);
    let text = || fs::read_to_string(&file).unwrap_or_default();
    let met = eventually(|| text() == says);
    assert!(met, "{:?}, not {says:?}: {}", text(), watch.output());
    assert_eq!(site.world.ok(&["endpoints", "web"]), says);
    assert_eq!(watch.end("TERM"), Some(0));
}
