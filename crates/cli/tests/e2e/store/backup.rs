//! A backup becomes the truth again while what it speaks of runs.

use std::os::unix::fs::PermissionsExt;

use crate::daemons::{agent, controller};
use crate::world::{USUAL, World, eventually, hello, kill};

// controller.md section 2: a restore starts a new epoch; hosts.md section 4: after a restore.
#[test]
fn services_survive_a_restore_and_watchers_start_anew() {
    let Some(world) = World::new() else { return };
    let first = controller(&world);
    let _agent = agent(&world);
    let profile = world.profile("web.toml", &hello("web", 2, "", USUAL));
    world.ok(&["submit", &profile]);
    world.ok(&["wait", "web", "--ready", "2", "--timeout", "60s"]);
    // News is written with the next truth.
    let quiet = "kind = \"service\"\nname = \"quiet\"\nreplicas = 0\ncommand = \"x\"\n";
    world.ok(&["submit", &world.profile("quiet.toml", quiet)]);
    let file = world.path("backup").display().to_string();
    let told = world.ok(&["backup", &file]);
    assert!(told.contains("without secrets"), "{told}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = world.run(&["backup", &file]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("--force replaces it"), "{again:?}");
    world.ok(&["backup", &file, "--force"]);
    // What comes after it is lost with the restore.
    world.ok(&[
        "submit",
        &world.profile("late.toml", &quiet.replace("quiet", "late")),
    ]);
    let lines = world.ok(&["endpoints", "web"]);
    let standing = || {
        let of = |index| {
            let replica = world.replica("web", index);
            ["incarnation", "ports", "pid", "restarts"].map(|field| replica[field].clone())
        };
        (of(0), of(1))
    };
    let before = standing();
    let epoch = || world.json(&["endpoints", "web"])["epoch"].clone();
    let first_epoch = epoch();
    first.end("TERM");
    let data = world.path("controller").display().to_string();
    let unasked = world.run(&["restore", &file, "--data", &data]);
    assert_eq!(unasked.code, Some(1), "{unasked:?}");
    assert!(
        unasked.stderr.contains("holds a store already"),
        "{unasked:?}"
    );
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 40]).unwrap();
    let damaged = world.run(&["restore", &file, "--data", &data, "--force"]);
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    assert!(
        damaged.stderr.contains("damaged") && damaged.stderr.contains("nothing was restored"),
        "{damaged:?}"
    );
    std::fs::write(&file, &whole).unwrap();
    let told = world.ok(&["restore", &file, "--data", &data, "--force"]);
    assert!(told.contains("new epoch"), "{told}");
    // As on another machine: what the workers prove themselves with is gone.
    std::fs::remove_file(world.path("controller/secret")).unwrap();
    let _second = controller(&world);
    // At once, from what is stored.
    assert_eq!(world.ok(&["endpoints", "web"]), lines);
    assert_ne!(epoch(), first_epoch);
    assert_eq!(world.run(&["service", "late"]).code, Some(4));
    let is_up = || world.json(&["hosts"])["hosts"][0]["state"] == "up";
    assert!(eventually(is_up));
    assert_eq!(standing(), before);
    world.ok(&["scale", "web", "3"]);
    world.ok(&["wait", "web", "--ready", "3", "--timeout", "60s"]);
    assert_eq!(standing(), before);
    // Those that run are heard of all the same.
    let pid = world.replica("web", 0)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("web", 0, "told of its restart", |it| {
        it["restarts"] == 1 && it["ready"] == true
    });
}
