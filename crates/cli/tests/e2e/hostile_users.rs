//! Jobs that try to be somebody else, or to see what is somebody else's: an agent of root's starts them, and nothing of
//! root's comes with them.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::users::{BIN, DAEMON, Site};
use crate::world::{Outcome, eventually, names_in};

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A file of root's that no user may read.
fn of_root(site: &Site) -> PathBuf {
    let path = site.world.path("of-root");
    std::fs::write(&path, "of root\n").unwrap();
    set_mode(&path, 0o600);
    path
}

fn environment(pid: i32) -> String {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    String::from_utf8_lossy(&environment).replace('\0', "\n")
}

/// The shim of the service: its number.
fn shim(site: &Site, service: &str) -> i32 {
    let processes = site.world.processes();
    let is_it = |line: &str| line.contains(" shim --folder ") && line.contains(service);
    let found = processes.iter().find(|(_, line)| is_it(line));
    found.unwrap_or_else(|| panic!("{processes:?}")).0
}

#[test]
fn a_program_that_makes_anybody_root_makes_a_job_nobody_else() {
    let Some(site) = Site::new() else { return };
    let program = site.world.path("id-of-root");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    set_mode(&program, 0o4755);
    let program = program.display().to_string();
    let plain = site.as_user(DAEMON, &program, &["-u"]);
    if plain.stdout.trim() != "0" {
        // A file system without such programs shows nothing.
        eprintln!("skipped: set-user-ID programs mean nothing here: {plain:?}");
        return;
    }
    let script = format!("echo service=$({program} -u); echo END; exec sleep 1000000");
    let more = format!(
        "pre_exec = \"{program} -u > before\"\n[readiness]\ncommand = [\"/bin/sh\", \"-c\", \"{program} -u > probe\"]\ninterval = \"1s\"\n"
    );
    let service = site.submit(DAEMON, "climber", &script, &more);
    site.ready(&service);
    assert!(site.printed(&service).contains("service=1\n"));
    for file in ["before", "probe"] {
        let seen = std::fs::read_to_string(site.folder(&service).join(file)).unwrap();
        assert_eq!(seen, "1\n", "{file}");
    }
}

#[test]
fn a_job_has_no_descriptor_signal_or_capability_of_roots() {
    let Some(site) = Site::new() else { return };
    let look = "ls -m /proc/$$/fd; grep -E '^(Sig(Blk|Ign)|Cap(Inh|Prm|Eff|Amb)|Groups):' /proc/self/status";
    let script = format!("{look}; echo END; exec sleep 1000000");
    let more = format!(
        "pre_exec = '''{}; echo BEFORE'''\n",
        look.replace('$', "$$")
    );
    let service = site.submit(DAEMON, "heir", &script, &more);
    let text = site.printed(&service);
    let (before, of_service) = text.split_once("BEFORE\n").unwrap();
    let groups = site.as_user(DAEMON, "/usr/bin/id", &["-G", DAEMON.0]);
    for text in [before, of_service] {
        assert!(text.starts_with("0, 1, 2\n"), "{text}");
        for line in text.lines() {
            let Some((name, value)) = line.split_once(":\t") else {
                continue;
            };
            match name {
                "Groups" => assert_eq!(value.trim(), groups.stdout.trim()),
                // Those two are the C library's own, whoever started the tests.
                "SigIgn" => {
                    let ignored = u64::from_str_radix(value, 16).unwrap();
                    assert_eq!(ignored & !(0b11 << 31), 0, "{line}");
                }
                _ => assert_eq!(u64::from_str_radix(value, 16), Ok(0), "{line}"),
            }
        }
        assert_eq!(text.lines().filter(|line| line.contains(":\t")).count(), 7);
    }
}

#[test]
fn a_job_reaches_through_its_keepers_nothing_that_it_could_not_reach_itself() {
    let Some(site) = Site::new() else { return };
    // The worker holds a page that it shares with the workers of all users; a wrong byte there would hold up theirs.
    let script = "while ! grep -q pid worker.json; do sleep 0.1; done; \
         W=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' worker.json); \
         for p in $W $PPID $$; do for f in /proc/$p/fd/*; do \
         case $(readlink $f) in */agent/limits) echo found $f; (echo evil > $f) && echo wrote $f;; esac; done; \
         (cat /proc/$p/mem > /dev/null) 2>&1 | grep -q Permission; done 2>/dev/null; \
         (echo evil > ../../limits) 2>/dev/null && echo wrote; \
         (ls .. || ls ../../assignments) 2>/dev/null && echo listed; \
         for f in ../../../../c/secret ../../../../c/*.redb; do (cat $f) 2>/dev/null && echo read $f; done; \
         echo END; exec sleep 1000000";
    let service = site.submit(DAEMON, "digger", script, "");
    assert_eq!(site.printed(&service), "END\n");
    // What of the page the worker has open is not the job's to open again.
    let bystander = site.submit(BIN, "by", "exec sleep 1000000", "");
    site.ready(&bystander);
}

#[test]
fn whatever_a_profile_names_is_reached_with_its_users_rights() {
    let Some(site) = Site::new() else { return };
    let secret = of_root(&site);
    let closed = site.world.path("closed");
    std::fs::create_dir(&closed).unwrap();
    set_mode(&closed, 0o700);
    std::fs::copy("/bin/true", closed.join("program")).unwrap();
    let link = |name: &str, to: &Path| {
        let link = site.world.path(name);
        symlink(to, &link).unwrap();
        link.display().to_string()
    };
    let (to_closed, to_secret) = (link("to-closed", &closed), link("to-secret", &secret));
    let idle = "exec sleep 1000000";
    for (name, script, more, words) in [
        (
            "link",
            idle,
            format!("working_dir = \"{to_closed}\"\n"),
            "cannot be entered",
        ),
        (
            "variables",
            idle,
            format!("env_file = \"{to_secret}\"\n"),
            "env_file",
        ),
        (
            "before",
            idle,
            format!("pre_exec = \"cat {} > stolen\"\n", secret.display()),
            "pre-exec",
        ),
        (
            "write",
            idle,
            format!("pre_exec = \"echo evil >> {to_secret}\"\n"),
            "pre-exec",
        ),
        (
            "service",
            &format!("exec {to_closed}/program"),
            String::new(),
            "126",
        ),
    ] {
        let service = site.submit(DAEMON, name, script, &more);
        let failed = site.world.replica_when(&service, 0, "failed", |replica| {
            !replica["last_failure"].is_null()
        });
        let told = failed["last_failure"].to_string();
        assert!(told.contains(words), "{name}: {told}");
        let stolen = std::fs::read_to_string(site.folder(&service).join("stolen"));
        assert_eq!(stolen.unwrap_or_default(), "", "{name}");
    }
    let probe = format!(
        "[readiness]\ncommand = [\"/bin/sh\", \"-c\", \"cat {to_secret} > stolen; echo $$? > probed; exit 1\"]\n\
         interval = \"1s\"\n"
    );
    let service = site.submit(DAEMON, "probe", idle, &probe);
    let folder = site.folder(&service);
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    assert!(eventually(|| text("probed") == "1\n"), "{}", text("probed"));
    assert_eq!(text("stolen"), "");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "of root\n");
}

#[test]
fn a_jobs_variables_are_its_own_and_no_keepers() {
    let Some(site) = Site::new() else { return };
    let file = site.world.path("vars");
    std::fs::write(
        &file,
        "PORTREEVE_SERVICE=evil\nLD_PRELOAD=/nowhere/file.so\n",
    )
    .unwrap();
    set_mode(&file, 0o600);
    std::os::unix::fs::chown(&file, Some(DAEMON.1), Some(DAEMON.1)).unwrap();
    let more = format!(
        "env_file = \"{}\"\nenv = {{ LD_LIBRARY_PATH = \"/nowhere\", PATH = \"/nowhere:/bin:/usr/bin\", GCONV_PATH = \"/nowhere\" }}\n",
        file.display()
    );
    let script = "echo $PORTREEVE_SERVICE $PATH $LD_PRELOAD; echo END; exec sleep 1000000";
    let service = site.submit(DAEMON, "preload", script, &more);
    let text = site.printed(&service);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("preload /nowhere:/bin:/usr/bin"),
        "{text}"
    );
    assert!(first.ends_with(" /nowhere/file.so"), "{text}");
    for keeper in [site.worker(&service), shim(&site, &service)] {
        let environment = environment(keeper);
        assert!(!environment.contains("nowhere"), "{environment}");
        assert!(!environment.contains("evil"), "{environment}");
    }
    // Names that are ours are not for a profile to set.
    let toml = "kind = \"service\"\nname = \"names\"\ncommand = \"x\"\nenv = { PORTREEVE_TOKEN_FILE = \"/x\" }\n";
    let profile = site.world.profile("names.toml", toml);
    let refused = site.world.run(&["check", &profile]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("the system's own"), "{refused:?}");
}

/// Looks for texts, which it reads from its input, in all that it may read of processes, and of files.
const SEARCH: &str = r#"
import os, sys
wanted = [line.encode() for line in sys.stdin.read().split()]
looked, found = 0, []
def look(path):
    global looked
    try:
        with open(path, "rb", buffering=0) as file:
            text = file.read(8 << 20)
    except OSError:
        return
    looked += 1
    found.extend(path for one in wanted if one in text)
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        for name in ("cmdline", "environ"):
            look("/proc/%s/%s" % (pid, name))
for path in sys.argv[1:]:
    look(path)
print(looked)
print("\n".join(found))
"#;

/// Every plain file below the folder, also those whose names only root can list: names may be guessed.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

/// How many files the user could read, and where it found one of these.
fn search(site: &Site, (_, uid): (&str, u32), wanted: &[String]) -> (usize, Vec<String>) {
    let script = site.world.profile("search.py", SEARCH);
    set_mode(Path::new(&script), 0o644);
    let mut command = Command::new("setpriv");
    command.args([
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".to_owned(),
    ]);
    command
        .args(["/usr/bin/python3", &script])
        .args(files(&site.world.path("")));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(wanted.join("\n").as_bytes()).unwrap();
    drop(input);
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let mut lines = outcome.stdout.lines();
    let looked = lines.next().unwrap().parse().unwrap();
    (
        looked,
        lines
            .map(str::to_owned)
            .filter(|line| !line.is_empty())
            .collect(),
    )
}

#[test]
fn no_secret_of_a_job_is_seen_in_processes_or_files_by_another_user() {
    let Some(site) = Site::new() else { return };
    let file = site.world.path("vars");
    std::fs::write(&file, "FROM_FILE=marker-of-the-file\n").unwrap();
    set_mode(&file, 0o600);
    std::os::unix::fs::chown(&file, Some(DAEMON.1), Some(DAEMON.1)).unwrap();
    // Handed on by a command line of its own it would be the job's own affair.
    let more = format!(
        "env_file = \"{}\"\nenv = {{ SECRET = \"marker-of-the-profile\" }}\n\
         [readiness]\ncommand = [\"/bin/sh\", \"-c\", \"echo $$SECRET\"]\ninterval = \"300ms\"\n",
        file.display()
    );
    let script = "echo marker-of-the-$((1+1))nd-line; echo $SECRET; echo END; exec sleep 1000000";
    let service = site.submit(DAEMON, "secretive", script, &more);
    site.printed(&service);
    site.ready(&service);
    // Only its owner reads where it was written to be submitted.
    for name in names_in(&site.world.path("")) {
        if name.ends_with(".toml") {
            let written = site.world.path(&name);
            std::os::unix::fs::chown(&written, Some(DAEMON.1), Some(DAEMON.1)).unwrap();
            set_mode(&written, 0o600);
        }
    }
    let folder = site.folder(&service);
    let token = std::fs::read_to_string(folder.join("token")).unwrap();
    let assignment = std::fs::read_to_string(folder.join("assignment.json")).unwrap();
    let assignment: serde_json::Value = serde_json::from_str(&assignment).unwrap();
    let worker_token = assignment["tokens"]["worker"].as_str().unwrap();
    let wanted = [
        "marker-of-the-file",
        "marker-of-the-profile",
        "marker-of-the-2nd-line",
        token.trim(),
        worker_token,
    ];
    let wanted = wanted.map(str::to_owned);
    let (looked, found) = search(&site, BIN, &wanted);
    assert!(looked > 10, "{looked}");
    assert_eq!(found, Vec::<String>::new());
    // The search finds what may be found: the owner sees them all.
    let (_, own) = search(&site, DAEMON, &wanted);
    for place in ["environ", "vars", "stdout.log", "token", "assignment.json"] {
        assert!(
            own.iter().any(|path| path.ends_with(place)),
            "{place}: {own:?}"
        );
    }
    // A command line is everybody's to read; there not even root finds one.
    let (_, all) = search(&site, ("root", 0), &wanted);
    let told: Vec<_> = all
        .iter()
        .filter(|path| path.ends_with("cmdline"))
        .collect();
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_link_in_place_of_a_log_is_cut_and_removed_nowhere_else() {
    let Some(site) = Site::new() else { return };
    let secret = of_root(&site);
    let long = "long\n".repeat(1 << 20);
    std::fs::write(&secret, &long).unwrap();
    let theirs = site.world.path("of-bin");
    std::fs::write(&theirs, &long).unwrap();
    std::os::unix::fs::chown(&theirs, Some(BIN.1), Some(BIN.1)).unwrap();
    set_mode(&theirs, 0o666);
    // What the worker shortens and the agent removes leads to a file of root's, and to one that all may write.
    let script = format!(
        "ln -sfn {} stdout.log; ln -sfn {} stderr.log; ln -sfn {} worker.log; ln -sfn {} stdout.9.log; ln -sfn / stderr.9.log; \
         touch done; exec sleep 1000000",
        secret.display(),
        theirs.display(),
        secret.display(),
        theirs.display(),
    );
    let service = site.submit(DAEMON, "cutter", &script, "");
    let folder = site.folder(&service);
    assert!(eventually(|| folder.join("done").exists()));
    site.ready(&service);
    // Somebody reads it, it is started anew, and it ends.
    let _ = site.world.run(&["logs", &service]);
    let _ = site.world.run(&["logs", &service, "--stderr"]);
    site.world.ok(&["restart", &service]);
    site.world
        .replica_when(&service, 0, "ran again", |replica| replica["run"] == 2);
    site.end(&service);
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), long);
    assert!(std::fs::read_to_string(&theirs).unwrap().starts_with(&long));
    assert_eq!(
        std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777,
        0o600
    );
}
