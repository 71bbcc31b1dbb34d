//! One controller per directory, and none in the way of the next.

use crate::daemons::controller;
use crate::world::{Outcome, World};

#[test]
fn a_second_controller_names_the_first_and_a_killed_one_is_in_nobodys_way() {
    let Some(world) = World::new() else { return };
    let first = controller(&world);
    world.ok(&[
        "submit",
        &world.profile(
            "a.toml",
            "kind = \"service\"\nname = \"a\"\nreplicas = 0\ncommand = \"x\"\n",
        ),
    ]);
    let data = world.path("controller").display().to_string();
    let second = |data: &str| {
        let run = world.path("other-run").display().to_string();
        let arguments = [
            "controller",
            "--data",
            data,
            "--run-dir",
            &run,
            "--listen",
            "127.0.0.1:7399",
        ];
        Outcome::of(world.portreeve(&arguments).output().unwrap())
    };
    let refused = second(&data);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let named = format!("process {}", first.pid());
    assert!(
        refused.stderr.contains(&named) && refused.stderr.contains(&data),
        "{refused:?}"
    );
    for command in ["backup", "restore"] {
        let file = world.path("b").display().to_string();
        if command == "restore" {
            world.ok(&["backup", &file]);
        }
        let refused = world.run(&[command, &file, "--data", &data, "--force"]);
        assert_eq!(refused.code, Some(1), "{command}: {refused:?}");
        assert!(refused.stderr.contains(&named), "{command}: {refused:?}");
    }
    // The lock lies in the copy too, and holds nobody there.
    let copy = world.path("copy");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(&data)
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let file = world.path("of-copy").display().to_string();
    world.ok(&["backup", &file, "--data", &copy.display().to_string()]);
    assert_eq!(first.end("KILL"), None);
    let _again = controller(&world);
    assert_eq!(
        world.json(&["services"])["services"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}
