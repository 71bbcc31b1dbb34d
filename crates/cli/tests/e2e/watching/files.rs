//! `watch --output`: a file that is whole at any moment, and that stays while nothing is known.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::world::{World, eventually, kill, names_in};

use super::scripted::Scripted;

#[test]
fn a_file_says_what_holds_and_stays_while_nothing_is_known() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let folder = world.path("conf");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("web.conf");
    fs::write(&file, "from an earlier day\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
    let name = file.display().to_string();
    let holds = |text: &str| eventually(|| fs::read_to_string(&file).unwrap() == text);
    let number = || fs::metadata(&file).unwrap().ino();

    let address = controller.address();
    let template = "{% for e in endpoints %}server {{ e.authority }};\n{% endfor %}";
    let arguments = [
        "--controller",
        &address,
        "watch",
        "web",
        "--output",
        &name,
        "--template",
        template,
    ];
    let watch = world.start_alone("watch", &arguments);
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    // Not yet: something may be missing.
    asked.set("web.alice", 6, &[31007, 31009]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "from an earlier day\n");
    asked.bookmark(6);
    assert!(
        holds("server 10.0.0.1:31007;\nserver 10.0.0.1:31009;\n"),
        "{}",
        watch.output()
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o604
    );

    // The controller goes, and comes back as another that has to tell everything anew.
    let before = number();
    drop(asked);
    drop(controller.taken());
    let met = eventually(|| watch.output().contains("trying again"));
    assert!(met, "{}", watch.output());
    let asked = controller.watched();
    asked.say("id: f.1\nevent: reset\ndata: {\"reason\":\"other_epoch\"}\n\n");
    asked.set("web.alice", 1, &[31007, 31009]);
    asked.bookmark(1);
    let met = eventually(|| watch.output().contains("answers again"));
    assert!(met, "{}", watch.output());
    // All that was told is taken before the cut is seen.
    drop(asked);
    let asked = controller.watched();
    assert!(asked.head.contains("last-event-id: e.1"), "{}", asked.head);
    assert_eq!(number(), before, "it was written without a change");

    asked.set("web.alice", 3, &[31009]);
    assert!(holds("server 10.0.0.1:31009;\n"), "{}", watch.output());
    asked.say("id: e.9\nevent: removed\ndata: {\"service\":\"web.alice\"}\n\n");
    assert!(holds(""), "{}", watch.output());
    assert_eq!(names_in(&folder), ["web.conf"]);
    assert_eq!(watch.end("TERM"), Some(0));
}

#[test]
fn a_name_that_is_not_there_leaves_the_file_to_once_and_empties_it_for_a_watch() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let file = world.path("web.env");
    fs::write(&file, "old\n").unwrap();
    let name = file.display().to_string();
    let address = controller.address();
    let arguments = [
        "--controller",
        &address,
        "watch",
        "web",
        "--output",
        &name,
        "-o",
        "env",
    ];
    let mut once = world.start_alone("once", &[&arguments[..], &["--once"]].concat());
    let asked = controller.watched();
    asked.bookmark(5);
    assert_eq!(once.code(), Some(4), "{}", once.output());
    assert_eq!(fs::read_to_string(&file).unwrap(), "old\n");
    let watch = world.start_alone("watch", &arguments);
    let asked = controller.watched();
    asked.bookmark(5);
    let met = eventually(|| fs::read_to_string(&file).unwrap() == "WEB_ENDPOINTS=\n");
    assert!(met, "{}", watch.output());
    asked.set("web.alice", 6, &[31007]);
    let line = "WEB_ENDPOINTS=10.0.0.1:31007\nWEB_ENDPOINT_0=10.0.0.1:31007\n";
    let met = eventually(|| fs::read_to_string(&file).unwrap() == line);
    assert!(met, "{}", watch.output());
}

#[test]
fn several_services_share_a_file() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let file = world.path("all");
    let name = file.display().to_string();
    let address = controller.address();
    let arguments = [
        "--controller",
        &address,
        "watch",
        "--prefix",
        "w",
        "--output",
        &name,
        "-o",
        "table",
    ];
    let watch = world.start_alone("watch", &arguments);
    let asked = controller.watched();
    asked.set("web.alice", 5, &[31007]);
    asked.set("wide.bob", 6, &[80]);
    asked.bookmark(6);
    let expected = "web.alice\t0\tn1\thttp\t10.0.0.1:31007\tready\t-\nwide.bob\t0\tn1\thttp\t10.0.0.1:80\tready\t-\n";
    let met = eventually(|| fs::read_to_string(&file).is_ok_and(|text| text == expected));
    assert!(met, "{}", watch.output());
}

#[test]
fn a_file_that_cannot_be_written_is_told_and_tried_again() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let folder = world.path("conf");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("web");
    let name = file.display().to_string();
    let address = controller.address();
    let watch = world.start_alone(
        "watch",
        &["--controller", &address, "watch", "web", "--output", &name],
    );
    let asked = controller.watched();
    fs::remove_dir(&folder).unwrap();
    asked.set("web.alice", 5, &[31007]);
    asked.bookmark(5);
    let met = eventually(|| watch.output().contains("is not written"));
    assert!(met, "{}", watch.output());
    fs::create_dir(&folder).unwrap();
    let met = eventually(|| fs::read_to_string(&file).is_ok_and(|text| text == "10.0.0.1:31007\n"));
    assert!(met, "{}", watch.output());
    let told = || watch.output().matches(" is written").count();
    assert!(eventually(|| told() == 1), "{}", watch.output());
}

// `watch web --output FILE 2>&1 | head -1` kept the file until there was something to say, and died of it.
#[test]
fn words_that_nobody_can_read_end_no_watch() {
    let Some(world) = World::new() else { return };
    let controller = Scripted::new(&world);
    let file = world.path("web");
    let name = file.display().to_string();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let address = controller.address();
    let arguments = ["--controller", &address, "watch", "web", "--output", &name];
    let mut command = world.portreeve(&arguments);
    let mut watch = command.stderr(full).spawn().unwrap();
    let asked = controller.watched();
    // That it is not there is told in vain.
    asked.bookmark(5);
    asked.set("web.alice", 6, &[31007]);
    let met = eventually(|| fs::read_to_string(&file).is_ok_and(|text| text == "10.0.0.1:31007\n"));
    kill(watch.id().cast_signed(), "TERM");
    let status = watch.wait().unwrap();
    assert!(met && status.code() == Some(0), "{status:?}");
}
