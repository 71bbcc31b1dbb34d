//! A disk of a few megabytes that is full: truth is refused with words, news and withdrawals go on, and it heals.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::daemons::{agent, controller};
use crate::world::{Running, World, eventually, hello, kill};

/// A controller whose directory is a disk of its own, and the file that fills it.
struct Small {
    running: Running,
    filler: PathBuf,
}

fn small(world: &World) -> Small {
    let data = world.path("controller").display().to_string();
    std::fs::create_dir_all(&data).unwrap();
    let mount = format!("mount -t tmpfs -o size=4m none {data} && exec \"$0\" \"$@\"");
    let through = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &mount,
    ];
    let run = world.path("run").display().to_string();
    let arguments = [
        "controller",
        "--single-host",
        "--data",
        &data,
        "--run-dir",
        &run,
    ];
    let running = world.start_through(world.network(), "controller", &through, &arguments);
    // What it is mounted to is seen by the controller alone, and through it.
    let filler = format!("/proc/{}/root{data}/filler", running.pid());
    Small {
        running,
        filler: filler.into(),
    }
}

impl Small {
    fn fill(&self) {
        let mut file = File::create(&self.filler).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(&self.filler).unwrap();
    }
}

const SLOW: &str = "[ports]\nhttp = \"any\"\n[restart]\nbackoff = { initial = \"1h\", max = \"1h\" }\n\
    [readiness]\nhttp = { path = \"/\" }\ninterval = \"200ms\"\n";

// controller.md section 2; issue point 3: a full disk never delays a withdrawal.
#[test]
fn on_a_full_disk_truth_is_refused_a_withdrawal_is_seen_and_it_heals_by_itself() {
    let Some(world) = World::new() else { return };
    let small = small(&world);
    let _agent = agent(&world);
    let profile = world.profile("web.toml", &hello("web", 2, "", SLOW));
    world.ok(&["submit", &profile]);
    world.ok(&["wait", "web", "--ready", "2", "--timeout", "60s"]);
    small.fill();
    // Big ones, so that the pages that the store has already do not do.
    let words = "x".repeat(60_000);
    let refused = (0..60).find_map(|n| {
        let text = format!(
            "kind = \"service\"\nname = \"big{n}\"\nreplicas = 0\ncommand = [\"x\", \"{words}\"]\n"
        );
        let outcome = world.run(&["submit", &world.profile("big.toml", &text)]);
        (outcome.code != Some(0)).then_some((n, outcome))
    });
    let (n, refused) = refused.expect("the disk is full at some time");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("No space left on device")
            && refused.stderr.contains("portreeve.redb")
            && refused.stderr.contains("nothing was changed"),
        "{refused:?}"
    );
    let code = |path: &str| {
        let url = format!("http://localhost{path}");
        let socket = world.path("run/controller.sock").display().to_string();
        world.curl(&["--unix-socket", &socket, "-w", "\n%{http_code}", &url])
    };
    let ready = code("/readyz");
    assert!(
        ready.ends_with("503") && ready.contains("not_writable"),
        "{ready}"
    );
    assert!(code("/healthz").ends_with("200"));
    // Refused is unchanged.
    let name = format!("big{n}");
    assert_eq!(world.run(&["service", &name]).code, Some(4));
    // Reads go on, and who ends is withdrawn at once, though nothing can be written.
    assert_eq!(world.ok(&["endpoints", "web"]).lines().count(), 2);
    let pid = world.replica("web", 0)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    let left = || world.ok(&["endpoints", "web"]).lines().count() == 1;
    assert!(eventually(left), "{}", small.running.output());
    assert!(code("/readyz").ends_with("503"), "it is full still");
    // It heals without a word from anybody: the news of the withdrawal is what is written first.
    small.empty();
    assert!(eventually(|| code("/readyz").ends_with("200")));
    let small = format!("kind = \"service\"\nname = \"{name}\"\nreplicas = 0\ncommand = \"x\"\n");
    world.ok(&["submit", &world.profile("small.toml", &small)]);
    let replica = world.replica("web", 0);
    assert_eq!(
        (&replica["ready"], &replica["state"]),
        (&false.into(), &"backoff".into())
    );
    let at = || {
        world.json(&["services"])["services"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(at(), usize::try_from(n).unwrap() + 2);
}

#[test]
fn a_controller_that_starts_on_a_full_disk_says_so() {
    let Some(world) = World::new() else { return };
    let data = world.path("controller").display().to_string();
    std::fs::create_dir_all(&data).unwrap();
    assert_eq!(controller(&world).end("TERM"), Some(0));
    let mount = format!(
        "cp -a {data} {data}.was && mount -t tmpfs -o size=4m none {data} && cp -a {data}.was/. {data}/ && \
         dd if=/dev/zero of={data}/filler bs=4k 2>/dev/null; exec \"$0\" \"$@\""
    );
    let through = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &mount,
    ];
    let run = world.path("run").display().to_string();
    let line = [&through[..], &[crate::world::PORTREEVE]].concat();
    let mut command = world.command(line[0]);
    command
        .args(&line[1..])
        .args(["controller", "--data", &data, "--run-dir", &run]);
    let outcome = crate::world::Outcome::of(command.output().unwrap());
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("No space left on device"),
        "{outcome:?}"
    );
    // With room it is what it was.
    drop(controller(&world));
}
