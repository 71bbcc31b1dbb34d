//! Jobs as their users: an agent that runs as root starts each as who submitted it, and is led nowhere by what
//! a job puts into its folder.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::world::{Outcome, PORTREEVE, Running, World, eventually, kill, names_in};

/// An account that every Linux has, with a group of its own.
pub(crate) const DAEMON: (&str, u32) = ("daemon", 1);
/// Another one.
pub(crate) const BIN: (&str, u32) = ("bin", 2);

/// A controller and an agent of root's, and a program that everybody may run.
pub(crate) struct Site {
    pub(crate) agent: Option<Running>,
    _controller: Running,
    program: PathBuf,
    pub(crate) world: World,
}

impl Site {
    /// A site, or `None` with a printed reason where the machine does not allow one.
    pub(crate) fn new() -> Option<Self> {
        Self::run_by(None)
    }

    /// A site whose daemons a user runs.
    fn run_by(user: Option<u32>) -> Option<Self> {
        let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
        if !nix::unistd::geteuid().is_root() {
            assert!(!required, "this test needs root: jobs of two users");
            eprintln!("skipped: needs root, to run jobs of two users");
            return None;
        }
        let world = World::new()?;
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&world.path(""), 0o711);
        let program = world.path("portreeve");
        // Where the tests were built may be closed to users. Copied by another process: a child that another test
        // starts meanwhile would hold the copy open for writing, and nobody could run it.
        let mut copy = Command::new("install");
        copy.args(["-m", "755", PORTREEVE]).arg(&program);
        assert!(copy.status().unwrap().success());
        for folder in ["run", "data"] {
            std::fs::create_dir(world.path(folder)).unwrap();
            if let Some(user) = user {
                chown(world.path(folder), Some(user), Some(user)).unwrap();
            }
        }
        let (data, run) = (world.path("data/c"), world.path("run"));
        let arguments = ["controller", "--single-host", "--cooling", "1s", "--data"];
        let more = [data.to_str().unwrap(), "--run-dir", run.to_str().unwrap()];
        let command = Self::command_of(&world, &program, user);
        let controller =
            world.start_by(command, "controller", &[&arguments[..], &more[..]].concat());
        let mut site = Self {
            agent: None,
            _controller: controller,
            program,
            world,
        };
        site.start_agent(user);
        Some(site)
    }

    fn command_of(world: &World, program: &Path, user: Option<u32>) -> Command {
        let Some(user) = user else {
            return world.command(program);
        };
        let mut command = world.command("setpriv");
        command.args([
            format!("--reuid={user}"),
            format!("--regid={user}"),
            "--clear-groups".to_owned(),
        ]);
        command.arg(program);
        command
    }

    pub(crate) fn start_agent(&mut self, user: Option<u32>) {
        let data = self.world.path("data/a").display().to_string();
        let socket = self.world.socket();
        let arguments = [
            "agent",
            "--host",
            "n1",
            "--single-host",
            "--data",
            &data,
            "--controller",
            &socket,
        ];
        let command = Self::command_of(&self.world, &self.program, user);
        self.agent = Some(self.world.start_by(command, "agent", &arguments));
        let up = || self.world.json(&["hosts"])["hosts"][0]["state"] == "up";
        assert!(eventually(up), "the host never reported");
    }

    /// Runs a program as the user, to its end.
    pub(crate) fn as_user(
        &self,
        (_, uid): (&str, u32),
        program: &str,
        arguments: &[&str],
    ) -> Outcome {
        let mut command = Self::command_of(&self.world, Path::new(program), Some(uid));
        Outcome::of(command.args(arguments).output().unwrap())
    }

    /// Submits a shell line as a service of the user, and gives its name.
    pub(crate) fn submit(&self, user: (&str, u32), name: &str, script: &str, more: &str) -> String {
        let script = script.replace('$', "$$");
        let text = format!(
            "kind = \"service\"\nname = \"{name}\"\ncommand = '''{script}'''\n\
             min_up = \"100ms\"\n{more}\n[stop]\ngrace = \"1s\"\n\
             [restart]\nbackoff = {{ initial = \"100ms\", max = \"1s\" }}\n"
        );
        let file = self.world.profile(&format!("{name}.toml"), &text);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let program = self.program.display().to_string();
        let submitted = self.as_user(user, &program, &["submit", &file]);
        assert_eq!(submitted.code, Some(0), "{submitted:?}");
        format!("{name}.{}", user.0)
    }

    pub(crate) fn ready(&self, service: &str) -> Value {
        self.world
            .replica_when(service, 0, "was ready", |replica| replica["ready"] == true)
    }

    /// The folder of the first incarnation of replica 0.
    pub(crate) fn folder(&self, service: &str) -> PathBuf {
        let replicas = self.replicas();
        let prefix = format!("{service}~0~");
        let mut found = None;
        let met = eventually(|| {
            let mut names = names_in(&replicas).into_iter();
            found = names.find(|name| name.starts_with(&prefix));
            found.is_some()
        });
        assert!(met, "no folder of {service}");
        replicas.join(found.unwrap_or_default())
    }

    pub(crate) fn replicas(&self) -> PathBuf {
        self.world.path("data/a/agent/replicas")
    }

    /// What the service printed, once it printed `END`.
    pub(crate) fn printed(&self, service: &str) -> String {
        let mut text = String::new();
        let met = eventually(|| {
            text = self.world.ok(&["logs", service]);
            text.contains("END\n")
        });
        assert!(met, "{service} printed {text}");
        text
    }

    /// The worker of the service: its number.
    pub(crate) fn worker(&self, service: &str) -> i32 {
        let processes = self.world.processes();
        let is_it = |line: &str| line.contains(" worker --folder ") && line.contains(service);
        let found = processes.iter().find(|(_, line)| is_it(line));
        found.unwrap_or_else(|| panic!("{processes:?}")).0
    }
}

/// Prints who it is and goes on.
const WHO: &str = "echo id=$(id -u):$(id -g):$(id -G); grep -E '^(NoNewPrivs|CapEff|CapPrm):' /proc/self/status; \
     echo umask=$(umask); echo cwd=$(pwd); echo home=$HOME user=$USER logname=$LOGNAME shell=$SHELL; \
     echo tmpdir=$TMPDIR; echo END; exec sleep 1000000";

/// Owner, group and mode of everything in the folder and below.
fn owners(folder: &Path) -> Vec<(PathBuf, u32, u32, u32)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let about = std::fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
        found.push((path, about.uid(), about.gid(), about.mode() & 0o777));
    }
    found
}

#[test]
fn each_job_runs_as_who_submitted_it_and_its_files_are_that_users() {
    let Some(site) = Site::new() else { return };
    for user in [DAEMON, BIN] {
        let service = site.submit(user, "who", WHO, "");
        let text = site.printed(&service);
        let (name, uid) = user;
        let groups = site.as_user(user, "/usr/bin/id", &["-G", name]).stdout;
        let home = nix::unistd::User::from_name(name).unwrap().unwrap();
        for line in [
            format!("id={uid}:{uid}:{}", groups.trim()),
            "NoNewPrivs:\t1".to_owned(),
            "CapEff:\t0000000000000000".to_owned(),
            "CapPrm:\t0000000000000000".to_owned(),
            "umask=0022".to_owned(),
            format!("cwd={}", site.folder(&service).display()),
            format!(
                "home={} user={name} logname={name} shell={}",
                home.dir.display(),
                home.shell.display()
            ),
            "tmpdir=".to_owned(),
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line:?} is not in {text}"
            );
        }
        for (path, owner, group, mode) in owners(&site.folder(&service)) {
            assert_eq!((owner, group), (uid, uid), "{}", path.display());
            // A socket is as closed as its folder.
            let socket = path.extension().is_some_and(|end| end == "sock");
            assert!(socket || mode & 0o077 == 0, "{} {mode:o}", path.display());
        }
        // The worker and the shim too, and neither knows anything of root's environment.
        let worker = site.worker(&service);
        let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        let line = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}");
        assert!(status.lines().any(|one| one == line), "{status}");
        let environment = std::fs::read(format!("/proc/{worker}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(!environment.contains("TMPDIR="), "{environment:?}");
    }
}

#[test]
fn a_user_reads_neither_the_logs_nor_the_folder_nor_the_environment_of_another() {
    let Some(site) = Site::new() else { return };
    let secret = "env = { SECRET = \"xyzzy\" }\n";
    let service = site.submit(
        DAEMON,
        "mine",
        "echo xyzzy; echo END; exec sleep 1000000",
        secret,
    );
    site.printed(&service);
    let folder = site.folder(&service);
    let pid = site.ready(&service)["pid"].as_u64().unwrap();
    let environ = format!("/proc/{pid}/environ");
    let log = folder.join("stdout.log").display().to_string();
    let kept = site.world.path("data/a/agent/assignments");
    let replicas = site.replicas().display().to_string();
    let text = |path: &Path| path.display().to_string();
    let own = site.as_user(DAEMON, "cat", &[&environ]);
    assert!(own.stdout.contains("SECRET=xyzzy"), "{own:?}");
    for (program, path) in [
        ("cat", &log),
        ("cat", &environ),
        ("ls", &text(&folder)),
        ("ls", &replicas),
        ("ls", &text(&kept)),
        ("cat", &text(&folder.join("assignment.json"))),
    ] {
        let refused = site.as_user(BIN, program, &[path]);
        assert_ne!(refused.code, Some(0), "{program} {path}: {refused:?}");
        assert!(!refused.stdout.contains("xyzzy"), "{refused:?}");
    }
    let program = site.program.display().to_string();
    let refused = site.as_user(BIN, &program, &["logs", &service]);
    assert!(!refused.stdout.contains("xyzzy"), "{refused:?}");
    // A user does not read what the agent keeps of its own service either: it holds a token.
    assert_ne!(site.as_user(DAEMON, "ls", &[&text(&kept)]).code, Some(0));
}

#[test]
fn what_a_job_puts_in_place_of_its_files_leads_the_agent_nowhere() {
    let Some(mut site) = Site::new() else { return };
    let target = site.world.path("of-root");
    std::fs::write(&target, "of root\n").unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    let of_root = target.display().to_string();
    // Everything that the agent reads or writes there becomes a link to a file of root's.
    let script = format!(
        "for f in stdout.log stderr.log status.json worker.json worker.log machine.json ended supervision.jsonl \
         supervision.1.jsonl assignment.json assignment.new status.new token; do ln -sfn {of_root} $f; done; \
         rm -rf run-1/scratch; ln -s /etc run-1/scratch; mkfifo pipe; touch done; exec sleep 1000000"
    );
    let service = site.submit(DAEMON, "evil", &script, "");
    let folder = site.folder(&service);
    assert!(eventually(|| folder.join("done").exists()));
    assert!(folder.join("worker.log").is_symlink());
    // Anybody's readers see nothing of it.
    assert!(!site.world.ok(&["logs", &service]).contains("of root"));
    assert!(
        !site
            .world
            .ok(&["logs", &service, "--stderr"])
            .contains("of root")
    );
    // The next worker, and the next agent.
    kill(site.worker(&service), "KILL");
    drop(site.agent.take());
    let bystander = site.submit(BIN, "by", "exec sleep 1000000", "");
    site.start_agent(None);
    site.ready(&bystander);
    // Of its folder nothing can be believed; it ends as any other, and nothing of it ran as root.
    site.world.run(&["delete", &service, "--yes"]);
    let text = std::fs::read_to_string(&target).unwrap();
    assert_eq!(text, "of root\n");
    let about = std::fs::metadata(&target).unwrap();
    assert_eq!((about.uid(), about.mode() & 0o777), (0, 0o600));
    assert!(Path::new("/etc/passwd").exists());
    site.ready(&bystander);
}

#[test]
fn a_forged_assignment_or_worker_makes_nobody_root() {
    let Some(mut site) = Site::new() else { return };
    let service = site.submit(
        DAEMON,
        "forger",
        "echo $(id -u) >> ids; exec sleep 1000000",
        "",
    );
    site.ready(&service);
    let folder = site.folder(&service);
    let assignment = folder.join("assignment.json");
    let text = std::fs::read_to_string(&assignment).unwrap();
    let forged = text
        .replace("\"uid\":1,", "\"uid\":0,")
        .replace("\"user\":\"daemon\"", "\"user\":\"root\"")
        .replace("\"name\":\"daemon\"", "\"name\":\"root\"");
    assert_ne!(forged, text);
    drop(site.agent.take());
    std::fs::write(&assignment, &forged).unwrap();
    // Process 1 as its worker: alive, and not the user's.
    let identity = std::fs::read_to_string(folder.join("worker.json")).unwrap();
    let mut identity: Value = serde_json::from_str(&identity).unwrap();
    let stat = std::fs::read_to_string("/proc/1/stat").unwrap();
    let start = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_ascii_whitespace()
        .nth(19);
    identity["pid"] = 1.into();
    identity["start_ticks"] = start.unwrap().parse::<u64>().unwrap().into();
    std::fs::write(folder.join("worker.json"), identity.to_string()).unwrap();
    // And that it has ended long ago.
    std::fs::write(folder.join("ended"), "").unwrap();
    let worker = site.worker(&service);
    kill(worker, "KILL");
    let pid = site.ready(&service)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    site.start_agent(None);
    let again = site
        .world
        .replica_when(&service, 0, "came back", |replica| {
            replica["ready"] == true && replica["pid"].as_i64() != Some(pid)
        });
    assert_eq!(again["restarts"], 1);
    let ids = std::fs::read_to_string(folder.join("ids")).unwrap();
    assert_eq!(ids, "1\n1\n");
    assert_ne!(site.worker(&service), worker);
}

#[test]
fn files_that_a_profile_names_are_read_with_the_users_rights() {
    let Some(site) = Site::new() else { return };
    let file = site.world.path("vars");
    std::fs::write(&file, "FROM_FILE=xyzzy\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let env_file = format!("env_file = \"{}\"\n", file.display());
    let script = "echo got=$FROM_FILE; echo END; exec sleep 1000000";
    // Root's own file is not read for a user.
    let refused = site.submit(BIN, "theirs", script, &env_file);
    let why = site.world.replica_when(&refused, 0, "failed", |replica| {
        !replica["last_failure"].is_null()
    });
    let words = why["last_failure"].as_str().unwrap();
    assert!(words.contains("vars"), "{words}");
    chown(&file, Some(DAEMON.1), Some(DAEMON.1)).unwrap();
    let service = site.submit(DAEMON, "reader", script, &env_file);
    assert!(site.printed(&service).contains("got=xyzzy\n"));

    let closed = site.world.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let working_dir = format!("working_dir = \"{}\"\n", closed.display());
    let shut_out = site.submit(BIN, "shut-out", "exec sleep 1000000", &working_dir);
    let why = site.world.replica_when(&shut_out, 0, "failed", |replica| {
        !replica["last_failure"].is_null()
    });
    let words = why["last_failure"].as_str().unwrap();
    assert!(words.contains("closed cannot be entered"), "{words}");
}

#[test]
fn a_user_without_an_account_on_the_host_is_told_so() {
    let Some(site) = Site::new() else { return };
    let service = site.submit(("54321", 54_321), "ghost", "exec sleep 1000000", "");
    let ended = site.world.replica_when(&service, 0, "failed", |replica| {
        !replica["last_failure"].is_null()
    });
    let words = ended["last_failure"].as_str().unwrap();
    assert!(words.contains("this host has no account 54321"), "{words}");
    assert!(
        site.world
            .processes()
            .iter()
            .all(|(_, line)| !line.contains(" worker "))
    );
}

#[test]
fn an_agent_that_is_not_root_runs_jobs_of_its_own_user_only() {
    let Some(site) = Site::run_by(Some(DAEMON.1)) else {
        return;
    };
    let own = site.submit(DAEMON, "own", WHO, "");
    assert!(site.printed(&own).contains("id=1:1:"));
    let other = site.submit(BIN, "other", "exec sleep 1000000", "");
    let ended = site.world.replica_when(&other, 0, "failed", |replica| {
        !replica["last_failure"].is_null()
    });
    let words = ended["last_failure"].as_str().unwrap();
    assert!(
        words.contains("run as bin (uid 2)") && words.contains("only an agent that runs as root"),
        "{words}"
    );
}

#[test]
fn a_state_folder_that_users_cannot_reach_is_named() {
    let Some(site) = Site::new() else { return };
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(site.world.path("data"), closed).unwrap();
    let service = site.submit(DAEMON, "far", "exec sleep 1000000", "");
    let ended = site.world.replica_when(&service, 0, "failed", |replica| {
        !replica["last_failure"].is_null()
    });
    let words = ended["last_failure"].as_str().unwrap();
    assert!(
        words.contains("data has mode 0700; `chmod o+x` it"),
        "{words}"
    );
}

#[test]
fn a_job_that_replaces_its_socket_by_a_link_is_not_spoken_to() {
    let Some(site) = Site::new() else { return };
    let service = site.submit(DAEMON, "liar", "exec sleep 1000000", "");
    site.ready(&service);
    let place = site.world.path("trap.sock");
    let trap = std::os::unix::net::UnixListener::bind(&place).unwrap();
    trap.set_nonblocking(true).unwrap();
    let socket = site.folder(&service).join("worker.sock");
    std::fs::remove_file(&socket).unwrap();
    symlink(&place, &socket).unwrap();
    // Whatever the agent would tell the worker now finds no worker.
    site.world.run(&["stop", &service]);
    let bystander = site.submit(DAEMON, "by", "exec sleep 1000000", "");
    site.ready(&bystander);
    let accepted = trap.accept();
    assert!(accepted.is_err(), "somebody came");
}
