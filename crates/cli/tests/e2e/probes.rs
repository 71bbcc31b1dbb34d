//! Probes on a real host: where they go, what they tell, what they leave, and what the host allows them.

use std::path::PathBuf;

use serde_json::Value;

use crate::stranger::Stranger;
use crate::world::{Running, USUAL, World, eventually, hello, kill};

/// A controller, and an agent of a host whose clients are elsewhere: it publishes 10.1.0.17.
fn host_with_clients_elsewhere(world: &World) -> [Running; 2] {
    let link = "ip link add d0 type veth peer name d1 && ip addr add 10.1.0.17/24 dev d0 && \
                ip addr add fd00::17/64 dev d0 nodad && ip link set d0 up && ip link set d1 up";
    let made = world.command("sh").args(["-c", link]).status().unwrap();
    assert!(made.success(), "a link cannot be made");
    let path = |name: &str| world.path(name).display().to_string();
    let (data, run, socket) = (path("data"), path("run"), world.socket());
    let controller = world.start(
        "controller",
        &["controller", "--data", &data, "--run-dir", &run],
    );
    let agent = world.start(
        "agent",
        &[
            "agent",
            "--host",
            "n1",
            "--data",
            &data,
            "--controller",
            &socket,
        ],
    );
    let published = || world.json(&["hosts"])["hosts"][0]["address"] == "10.1.0.17";
    assert!(eventually(published), "{}", agent.output());
    [controller, agent]
}

/// Waits for a reason that holds these words; gives the replica.
fn told(world: &World, service: &str, words: &str) -> Value {
    world.replica_when(service, 0, words, |replica| {
        replica["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains(words))
    })
}

/// A service in Python that listens on its number, on a socket made and set by these lines, and keeps what it takes.
fn listener(world: &World, name: &str, lines: &str, more: &str) -> String {
    let code = format!(
        "import os, socket, time\nport = int(os.environ['PORTREEVE_PORT_HTTP'])\n{lines}\ns.listen(64)\nkept = []\n\
         while True:\n kept.append(s.accept())\n"
    );
    let path = world.profile(&format!("{name}.py"), &code);
    format!("kind = \"service\"\nname = \"{name}\"\ncommand = \"exec python3 {path}\"\n{more}\n")
}

#[test]
fn a_service_on_loopback_alone_is_ready_only_where_its_clients_are() {
    // P18, D8 loopback-only, v6-only and dual-stack binds
    let Some(world) = World::new() else { return };
    let _daemons = host_with_clients_elsewhere(&world);
    let submit = |name: &str, text: &str| {
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), text)]);
    };
    let tcp = "[ports]\nhttp = \"any\"\n[readiness]\ntcp = {}\ninterval = \"200ms\"\n";
    let look = "[ports]\nhttp = \"any\"\n";
    let alone = "s = socket.socket(socket.AF_INET6)\ns.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)\n\
                 s.bind(('::', port))";
    submit("byhttp", &hello("byhttp", 1, "--bind 127.0.0.1", USUAL));
    submit("bytcp", &hello("bytcp", 1, "--bind 127.0.0.1", tcp));
    submit("bylook", &hello("bylook", 1, "--bind 127.0.0.1", look));
    submit("six", &listener(&world, "six", alone, look));
    let unpublished = USUAL.replace("\"any\"", "{ any = 1, publish = false }");
    submit(
        "hidden",
        &hello("hidden", 1, "--bind 127.0.0.1", &unpublished),
    );
    submit("both", &hello("both", 1, "--bind ::", USUAL));
    submit("exact", &hello("exact", 1, "--bind 10.1.0.17", USUAL));
    // Nobody restarts it for that.
    let living = format!("{look}[liveness]\ntcp = {{}}\ninterval = \"200ms\"\n");
    submit("lives", &hello("lives", 1, "--bind 127.0.0.1", &living));
    for (service, bound) in [
        ("byhttp", "127.0.0.1"),
        ("bytcp", "127.0.0.1"),
        ("bylook", "127.0.0.1"),
        ("lives", "127.0.0.1"),
        ("six", "[::]"),
    ] {
        let port = world.replica_when(service, 0, "was placed", |it| it["ports"]["http"].is_u64());
        let port = &port["ports"]["http"];
        let words = format!(
            "listens on {bound}:{port} only; clients use 10.1.0.17: bind ${{host.address}}"
        );
        let replica = told(&world, service, &words);
        assert_eq!(
            (&replica["ready"], &replica["restarts"]),
            (&false.into(), &0.into())
        );
    }
    for service in ["hidden", "both", "exact"] {
        world.ok(&["wait", service, "--timeout", "30s"]);
    }
    assert_eq!(world.replica("lives", 0)["restarts"], 0);
}

#[test]
fn on_a_single_host_loopback_is_where_clients_are_whatever_a_name_means() {
    // P18: `localhost` is ::1 alone for the host and its services, and nobody listens there.
    let Some(world) = World::new() else { return };
    let hosts = world.profile("hosts", "::1 localhost\n");
    let mount = format!("mount --bind {hosts} /etc/hosts && exec \"$@\"");
    let through = ["unshare", "--mount", "sh", "-c", &mount, "sh"];
    let run = world.path("run").display().to_string();
    let quiet = "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n";
    let quiet = world.profile("quiet.toml", quiet);
    let dev = ["dev", "--run-dir", &run, &quiet];
    let _dev = world.start_through(world.network(), "dev", &through, &dev);
    let named = USUAL.replace("{ path", "{ host = \"127.0.0.1\", path");
    let tcp = "[ports]\nhttp = \"any\"\n[readiness]\ntcp = {}\ninterval = \"200ms\"\n";
    let look = "[ports]\nhttp = \"any\"\n";
    for (name, more) in [
        ("asked", USUAL),
        ("named", &named),
        ("connected", tcp),
        ("looked", look),
    ] {
        let text = hello(name, 1, "--bind 127.0.0.1", more);
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
    }
    for name in ["asked", "named", "connected", "looked"] {
        world.ok(&["wait", name, "--timeout", "30s"]);
    }
    let pid = world.replica("asked", 0)["pid"].as_i64().unwrap();
    let seen = std::fs::read_to_string(format!("/proc/{pid}/root/etc/hosts")).unwrap();
    assert_eq!(seen, "::1 localhost\n");
    // Another address is tried where the profile says so, and told.
    let other = USUAL.replace("{ path", "{ host = \"::1\", path");
    let text = hello("other", 1, "--bind 127.0.0.1", &other);
    world.ok(&["submit", &world.profile("other.toml", &text)]);
    let tried = told(&world, "other", "[::1]:");
    assert_eq!(tried["ready"], false);
    // A name is no address.
    let name = USUAL.replace("{ path", "{ host = \"localhost\", path");
    let file = world.profile("name.toml", &hello("name", 1, "", &name));
    let refused = world.run(&["submit", &file]);
    assert!(
        refused.code != Some(0) && refused.stderr.contains("localhost"),
        "{refused:?}"
    );
}

#[test]
fn a_service_that_took_another_number_is_never_published_and_told_which() {
    // P09: by the default, by a connect, by a request, and where only the startup probe runs.
    let Some(world) = World::new() else { return };
    let look = "[ports]\nhttp = \"any\"\n";
    let tcp = format!("{look}[readiness]\ntcp = {{}}\ninterval = \"200ms\"\n");
    let startup = format!("{look}[startup]\ntcp = {{}}\ninterval = \"200ms\"\nwithin = \"10m\"\n");
    let all = [
        ("looked", look),
        ("connected", &tcp),
        ("asked", USUAL),
        ("starts", &startup),
    ];
    let profiles = all.map(|(name, more)| {
        let text = hello(name, 1, "", more);
        let text = text.replace("${port.http}", "$((PORTREEVE_PORT_HTTP + 5000))");
        world.profile(&format!("{name}.toml"), &text)
    });
    let profiles: Vec<_> = profiles.iter().map(String::as_str).collect();
    let _dev = world.dev(&profiles);
    for (service, _) in all {
        let replica =
            world.replica_when(service, 0, "was placed", |it| it["ports"]["http"].is_u64());
        let port = replica["ports"]["http"].as_u64().unwrap();
        let words = format!(
            "nothing listens on {port}; processes of this replica listen on {}",
            port + 5000
        );
        assert_eq!(told(&world, service, &words)["ready"], false);
        assert_eq!(world.run(&["endpoints", service]).stdout, "");
    }
}

#[test]
fn a_hundred_hung_checks_leave_no_process() {
    // P29, with 100 ms for a second; every third ignores TERM, every third has left its group.
    let Some(world) = World::new() else { return };
    let rounds = world.path("rounds");
    let check = format!(
        "echo x >> {0}; case $(( $(wc -l < {0}) % 3 )) in 0) exec sleep 10000;; 1) trap '' TERM; sleep 10000; :;; \
         2) setsid sleep 10000 </dev/null >/dev/null 2>&1 & sleep 10000;; esac",
        rounds.display()
    );
    let profile = world.profile(
        "hangs.toml",
        &format!(
            "kind = \"service\"\nname = \"hangs\"\ncommand = \"exec tail -f /dev/null\"\n[ports]\nhttp = \"any\"\n\
             [readiness]\ncommand = [\"sh\", \"-c\", \"{}\"]\ninterval = \"100ms\"\ntimeout = \"100ms\"\n",
            check.replace('$', "$$")
        ),
    );
    let _dev = world.dev(&[&profile]);
    let sleeping = || {
        let of_checks = |(_, line): &&(i32, String)| line.starts_with("sleep 10000");
        world.processes().iter().filter(of_checks).count()
    };
    let mut most = 0;
    let done = eventually(|| {
        most = most.max(sleeping());
        let text = std::fs::read_to_string(&rounds).unwrap_or_default();
        text.lines().count() >= 100
    });
    assert!(done, "the checks stopped");
    assert!(most <= 2, "{most} at once");
    let replica = told(&world, "hangs", "no answer within 100ms");
    assert_eq!(
        (&replica["ready"], &replica["restarts"]),
        (&false.into(), &0.into())
    );
    world.ok(&["stop", "hangs"]);
    world.ok(&["wait", "hangs", "--gone", "--timeout", "30s"]);
    assert!(eventually(|| sleeping() == 0), "{:?}", world.processes());
}

#[test]
fn proxies_that_everybody_has_set_see_nothing() {
    // P31: set for the agent, which its worker inherits, and for the job.
    let Some(world) = World::new() else { return };
    let seen = world.path("seen");
    let code = format!(
        "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 3128))\ns.listen()\nwhile True:\n s.accept()\n \
         open('{}', 'a').write('x')\n",
        seen.display()
    );
    let _proxy = Stranger::running(&world, &code);
    assert!(eventually(|| world.listens(3128)));
    let names = ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"];
    let env: Vec<_> = names
        .map(|name| format!("{name} = \"http://127.0.0.1:3128\""))
        .into();
    let more = format!(
        "{USUAL}[liveness]\ntcp = {{}}\ninterval = \"200ms\"\nfailure_threshold = 300\n[env]\n{}\n",
        env.join("\n")
    );
    let profile = world.profile("hello.toml", &hello("hello", 1, "", &more));
    let set = names.map(|name| format!("{name}=http://127.0.0.1:3128"));
    let _dev = world.dev_with(&set, &[&profile]);
    assert!(eventually(
        || world.run(&["service", "hello"]).code == Some(0)
    ));
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let proxied = world.replica("hello", 0)["pid"].as_i64().unwrap();
    let environment = std::fs::read(format!("/proc/{proxied}/environ")).unwrap();
    assert!(String::from_utf8_lossy(&environment).contains("ALL_PROXY="));
    assert!(!seen.exists(), "the proxy was asked");
}

/// The page that the workers of a `dev --data DIR` share.
fn page_of(world: &World, data: &str) -> PathBuf {
    let output = world
        .command("find")
        .args([data, "-name", "limits"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().into()
}

#[test]
fn checks_of_all_workers_share_the_limits_of_the_host_which_says_so_when_they_are_met() {
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "checked.toml",
        "kind = \"service\"\nname = \"checked\"\ncommand = \"exec tail -f /dev/null\"\n[ports]\nhttp = \"any\"\n\
         [readiness]\ncommand = [\"true\"]\ninterval = \"300ms\"\nfailure_threshold = 1\n",
    );
    let data = world.path("data").display().to_string();
    let _dev = world.dev(&["--data", &data, &profile]);
    world.ok(&["wait", "checked", "--timeout", "30s"]);
    // Every worker has the page, nobody else inherits it, and one that takes over has it again.
    let page = page_of(&world, &data);
    let who_has_it = || {
        let has = |(pid, _): &(i32, String)| {
            let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten()
                .flatten();
            let mut files = files.filter_map(|file| std::fs::read_link(file.path()).ok());
            files.any(|file| file == page)
        };
        let all = world.processes();
        let all = all
            .into_iter()
            .filter(|(_, line)| !line.contains(" dev "))
            .filter(has);
        all.collect::<Vec<_>>()
    };
    let first = who_has_it();
    assert!(
        matches!(&first[..], [(_, line)] if line.contains(" worker ")),
        "{first:?}"
    );
    kill(first[0].0, "KILL");
    let taken_over =
        || matches!(&who_has_it()[..], [one] if one.1.contains(" worker ") && *one != first[0]);
    assert!(eventually(taken_over), "{:?}", who_has_it());
    // Somebody else has every place.
    let held = world.path("held");
    let code = format!(
        "import fcntl, time\npage = open('{}', 'r+b')\nfcntl.lockf(page, fcntl.LOCK_EX, 64, 64)\n\
         open('{}', 'w').close()\ntime.sleep(100000)",
        page.display(),
        held.display()
    );
    let other = Stranger::running(&world, &code);
    assert!(eventually(|| held.exists()));
    let host = world.json(&["hosts"])["hosts"][0]["host"]
        .as_str()
        .unwrap()
        .to_owned();
    let warned = || world.ok(&["host", &host]).contains("at most 64 at once");
    assert!(eventually(warned), "{}", world.ok(&["host", &host]));
    // That it could not be asked says nothing about the service.
    assert_eq!(world.replica("checked", 0)["ready"], true);
    other.leave();
    // Its places are free again, and a new one is asked at once.
    kill(pid_of(&world, "checked"), "KILL");
    world.replica_when("checked", 0, "came back", |it| {
        it["ready"] == true && it["restarts"] == 1
    });
}

fn pid_of(world: &World, service: &str) -> i32 {
    i32::try_from(world.replica(service, 0)["pid"].as_i64().unwrap()).unwrap()
}

#[test]
fn restarts_wait_for_their_turn_and_a_damaged_page_holds_up_nothing() {
    let Some(world) = World::new() else { return };
    let more = USUAL.replace("500ms", "100ms");
    let profile = world.profile("hello.toml", &hello("hello", 1, "", &more));
    let data = world.path("data").display().to_string();
    let _dev = world.dev(&["--data", &data, &profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let page = page_of(&world, &data);
    // As after a storm of restarts: so many seconds of tokens are spent ahead.
    let spend = |seconds: u64| {
        let code = format!(
            "import os, sys, time\npage = os.open('{}', os.O_RDWR)\n\
             due = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000000 + {seconds} * 1000\n\
             os.pwrite(page, due.to_bytes(8, sys.byteorder), 16)",
            page.display()
        );
        assert!(
            world
                .command("python3")
                .args(["-c", &code])
                .status()
                .unwrap()
                .success()
        );
    };
    spend(200);
    kill(pid_of(&world, "hello"), "KILL");
    let log = world
        .command("find")
        .args([&data, "-name", "worker.log"])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&log.stdout).trim().to_owned();
    let waits = || {
        std::fs::read_to_string(&log)
            .unwrap_or_default()
            .contains("run 2 begins in ")
    };
    assert!(
        eventually(waits),
        "{}",
        std::fs::read_to_string(&log).unwrap_or_default()
    );
    assert!(world.replica("hello", 0)["pid"].is_null());
    // A stop does not wait with it, and starts nothing.
    world.ok(&["stop", "hello"]);
    world.ok(&["wait", "hello", "--gone", "--timeout", "30s"]);
    spend(0);
    world.ok(&["start", "hello"]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    spend(4);
    kill(pid_of(&world, "hello"), "KILL");
    world.replica_when("hello", 0, "came back", |it| {
        it["ready"] == true && it["restarts"] == 1
    });
    std::fs::write(&page, [0xFF; 256]).unwrap();
    kill(pid_of(&world, "hello"), "KILL");
    world.replica_when("hello", 0, "came back", |it| {
        it["ready"] == true && it["restarts"] == 2
    });
}

#[test]
fn connecting_probes_take_no_number_of_a_pool_that_is_all_the_kernel_has() {
    // P03, seen from the probes: they themselves are the outgoing connections.
    let Some(world) = World::new() else { return };
    let range = "echo 40000 40004 > /proc/sys/net/ipv4/ip_local_port_range";
    let set = world.command("sh").args(["-c", range]).status().unwrap();
    assert!(
        set.success(),
        "the ephemeral range of a namespace cannot be set here"
    );
    let more = USUAL.replace("200ms", "100ms");
    let profile = world.profile("hello.toml", &hello("hello", 5, "", &more));
    let _dev = world.dev(&["--ports", "40000-40004", &profile]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    for index in 0..5 {
        assert_eq!(world.replica("hello", index)["restarts_total"], 0);
    }
}
