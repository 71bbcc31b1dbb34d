//! Machines of one cluster, each with a network, a name, an `/etc`, a `/run` and a `/var/lib` of its own, joined by a bridge.
//!
//! What the package brings is in its place; `systemctl` starts what the shipped units say. The program is that under test,
//! in `/usr/local/bin`, which is on everybody's path.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cluster::sh;
use crate::namespace::Namespace;
use crate::world::{Outcome, PORTREEVE, World};

pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// An account of the cluster that is nobody in particular.
pub(super) const ALICE: u32 = 64_001;
/// What a login has.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A controller's machine `ctl` and hosts `n1`, `n2`, …, on which nothing of ours has begun.
pub(super) struct Machines {
    // Dropped first: what runs there writes into the folder.
    pub(super) ctl: Machine,
    pub(super) hosts: Vec<Machine>,
    _world: World,
}

/// One of them.
pub(super) struct Machine {
    pub(super) name: String,
    /// Where its own folders are to be seen from outside.
    pub(super) place: PathBuf,
    holder: Child,
    network: Namespace,
}

/// Makes the machine's own places, in its namespaces of mounts and of names, and holds them.
const SETUP: &str = r#"
set -eu
place=$1 name=$2
printf %s "$name" > /proc/sys/kernel/hostname
cp -a /etc/. "$place/etc/"
rm -rf "$place/etc/portreeve"
cp -a "$place/packaged" "$place/etc/portreeve"
cat "$place/names" >> "$place/etc/hosts"
# The machine's number, as 32 digits.
printf '%s\n' "$(printf %s "$place" | sha256sum | cut -c 1-32)" > "$place/etc/machine-id"
echo "alice:x:64001:64001::/home/alice:/bin/sh" >> "$place/etc/passwd"
echo "alice:x:64001:" >> "$place/etc/group"
mkdir "$place/home/alice" && chown 64001:64001 "$place/home/alice"
mount --bind "$place/etc" /etc
mount --bind "$place/lib" /var/lib
mount --bind "$place/bin" /usr/local/bin
mount --bind "$place/share" /usr/share
mount --bind "$place/home" /home
mount -t tmpfs -o mode=755 tmpfs /run
echo up
exec sleep 100000
"#;

impl Machines {
    /// A controller's machine and so many hosts, or `None` with a printed reason where the machine does not allow that.
    pub(super) fn new(hosts: usize) -> Option<Self> {
        let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
        if !nix::unistd::geteuid().is_root() {
            assert!(!required, "this test needs root: machines of their own");
            eprintln!("skipped: needs root, for machines with a name and an /etc of their own");
            return None;
        }
        let world = World::new()?;
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(world.path(""), open).unwrap();
        sh(
            world.network(),
            "ip link add br0 type bridge && ip link set br0 up",
        );
        let mut names = vec![("ctl".to_owned(), "10.20.0.1".to_owned())];
        names.extend((1..=hosts).map(|it| (format!("n{it}"), format!("10.20.0.{}", 10 + it))));
        let mut all: Vec<Machine> = (0..names.len())
            .map(|at| Machine::new(&world, &names, at))
            .collect();
        let hosts = all.split_off(1);
        let ctl = all.pop().expect("the first is the controller's");
        Some(Self {
            ctl,
            hosts,
            _world: world,
        })
    }
}

impl Machine {
    fn new(world: &World, names: &[(String, String)], at: usize) -> Self {
        let (name, address) = names[at].clone();
        let place = world.path(&name);
        for folder in ["etc", "lib", "bin", "share/portreeve", "home"] {
            std::fs::create_dir_all(place.join(folder)).unwrap();
        }
        let root = Path::new(ROOT);
        let install = |mode: &str, from: &[PathBuf], to: &Path| {
            // Copied by another process: a child that another test starts meanwhile would hold the copy open for
            // writing, and nobody could run it.
            let mut install = Command::new("install");
            install.args(["-D", "-m", mode, "-t"]).arg(to).args(from);
            assert!(install.status().unwrap().success(), "{from:?}");
        };
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/install/systemctl");
        install("755", &[PORTREEVE.into(), here], &place.join("bin"));
        install(
            "644",
            &below(&root.join("packaging/etc")),
            &place.join("packaged"),
        );
        let share = place.join("share/portreeve");
        install(
            "644",
            &below(&root.join("profiles")),
            &share.join("profiles"),
        );
        install(
            "644",
            &below(&root.join("packaging/systemd")),
            &share.join("systemd"),
        );
        // Whatever copies files to all hosts.
        let scp = format!(
            "#!/bin/sh\nexec cp \"{}/ctl${{1#*:}}\" \"$2\"\n",
            world.path("").display()
        );
        std::fs::write(place.join("bin/scp"), scp).unwrap();
        std::fs::set_permissions(
            place.join("bin/scp"),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        let lines = names
            .iter()
            .fold(String::new(), |mut text, (name, address)| {
                _ = writeln!(text, "{address} {name}.cluster.example {name}");
                text
            });
        std::fs::write(place.join("names"), lines).unwrap();

        let network = Namespace::within(world.network()).unwrap();
        let inside = network.holder();
        sh(
            world.network(),
            &format!(
                "ip link add link{at} type veth peer name eth0 netns {inside} && ip link set link{at} master br0 up"
            ),
        );
        sh(
            &network,
            &format!(
                "ip addr add {address}/16 dev eth0 && ip link set eth0 up && ip route add default via 10.20.255.254"
            ),
        );
        let mut holder = network.command("unshare");
        holder.args(["--mount", "--uts", "--propagation", "private"]);
        holder
            .args(["sh", "-c", SETUP, "sh"])
            .arg(&place)
            .arg(&name);
        let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = holder.stdout.take().expect("stdout is piped");
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n", "{name} has no places of its own");
        Self {
            name,
            place,
            holder,
            network,
        }
    }

    /// A command there, without anything of this process's environment.
    fn command(&self, before: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        for kind in ["net", "mnt", "uts"] {
            let option = if kind == "mnt" { "mount" } else { kind };
            command.arg(format!("--{option}=/proc/{}/ns/{kind}", self.holder.id()));
        }
        command.arg("--wd=/").arg("--").args(before);
        command.stdin(Stdio::null());
        command
    }

    /// Runs lines of shell there, as root.
    pub(super) fn run(&self, lines: &str) -> Outcome {
        let path = format!("PATH={PATH}");
        let before = ["env", "-i", &path, "HOME=/root", "sh", "-eu", "-c"];
        Outcome::of(self.command(&before).arg(lines).output().unwrap())
    }

    /// The same, which must succeed; gives what they print.
    pub(super) fn ok(&self, lines: &str) -> String {
        let outcome = self.run(lines);
        assert_eq!(
            outcome.code,
            Some(0),
            "on {}: {lines}\n{outcome:?}\n{}",
            self.name,
            self.logs()
        );
        outcome.stdout
    }

    /// Runs lines of shell there, as alice.
    pub(super) fn as_alice(&self, lines: &str) -> Outcome {
        let (uid, gid) = (format!("--reuid={ALICE}"), format!("--regid={ALICE}"));
        let path = format!("PATH={PATH}");
        let mut before = vec!["setpriv", &uid, &gid, "--clear-groups", "env", "-i", &path];
        before.extend(["HOME=/home/alice", "USER=alice", "sh", "-eu", "-c"]);
        Outcome::of(self.command(&before).arg(lines).output().unwrap())
    }

    /// The same, which must succeed.
    pub(super) fn alice(&self, lines: &str) -> String {
        let outcome = self.as_alice(lines);
        assert_eq!(
            outcome.code,
            Some(0),
            "alice on {}: {lines}\n{outcome:?}\n{}",
            self.name,
            self.logs()
        );
        outcome.stdout
    }

    /// Everything that daemons wrote there.
    pub(super) fn logs(&self) -> String {
        let mut text = String::new();
        for path in below(&self.place.join("lib/systemctl")) {
            if path.extension().is_some_and(|it| it == "log") {
                let words = std::fs::read_to_string(&path).unwrap_or_default();
                _ = writeln!(text, "--- {}\n{words}", path.display());
            }
        }
        text
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What runs there goes with its network.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let _ = &self.network;
    }
}

/// The files of a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    files.filter(|path| path.is_file()).collect()
}
