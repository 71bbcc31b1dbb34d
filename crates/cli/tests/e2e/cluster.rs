//! Several hosts on one machine, each a network of its own, joined by a bridge that can be cut.
//!
//! ```text
//!   home network: controller, clients, bridge 10.99.0.254 ── link 1 ── host n1: agent, eth0 10.99.0.1
//!                                                         └─ link 2 ── host n2: agent, eth0 10.99.0.2
//! ```
//!
//! A host publishes the address of its `eth0`, by the default rule. The controller listens on its Unix socket alone,
//! so each host reaches it through a relay that crosses the link: [`Cluster::link_down`] cuts the host's agent and
//! workers off from the controller, and clients from the host, as a pulled cable does.
//!
//! Whatever runs in a host's network is killed with the cluster, also when the test fails.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::namespace::Namespace;
use crate::world::{Running, World, eventually, kill, names_in};

/// A controller and one agent per host.
pub(crate) struct Cluster {
    // In the order in which they are dropped: before the folder goes, what writes into it.
    controller: Option<Running>,
    hosts: Vec<Host>,
    _relay: Relay,
    pub(crate) world: World,
}

/// One host: `n1` is number 1.
struct Host {
    agent: Option<Running>,
    network: Namespace,
    relay: Relay,
}

/// The controller's side of all links.
const GATEWAY: &str = "10.99.0.254";
/// Where the relay in the home network takes what comes over the links.
const CROSSING: u16 = 7399;

impl Cluster {
    /// A cluster of hosts `n1`, `n2`, …, all of which have reported; `None` as for [`World::new`].
    pub(crate) fn of(hosts: usize) -> Option<Self> {
        Self::with(hosts, |_| Vec::new())
    }

    /// The same, with these further arguments for the agent of each number.
    pub(crate) fn with(hosts: usize, arguments: impl Fn(usize) -> Vec<String>) -> Option<Self> {
        let mut cluster = Self::bare(hosts)?;
        for number in 1..=hosts {
            let more = arguments(number);
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            cluster.start_agent(number, &more);
        }
        cluster.wait_until_up(hosts);
        Some(cluster)
    }

    /// The controller and the networks, without any agent.
    pub(crate) fn bare(hosts: usize) -> Option<Self> {
        let world = World::new()?;
        sh(
            world.network(),
            &format!(
                "ip link add br0 type bridge && ip addr add {GATEWAY}/24 dev br0 && ip link set br0 up"
            ),
        );
        let home = world.network();
        let crossing = format!("tcp:{GATEWAY}:{CROSSING}");
        let relay = Relay::start(&world, home, &crossing, &world.socket());
        let mut cluster = Self {
            controller: None,
            hosts: Vec::new(),
            _relay: relay,
            world,
        };
        cluster.start_controller(&[]);
        for number in 1..=hosts {
            cluster.add_host(number);
        }
        Some(cluster)
    }

    fn add_host(&mut self, number: usize) {
        let network = Namespace::within(self.world.network()).unwrap();
        let inside = network.holder();
        sh(
            self.world.network(),
            &format!(
                "ip link add link{number} type veth peer name eth0 netns {inside} \
                 && ip link set link{number} master br0 up"
            ),
        );
        sh(
            &network,
            &format!(
                "ip addr add {}/24 dev eth0 && ip link set eth0 up && ip route add default via {GATEWAY}",
                address(number)
            ),
        );
        let near = format!("unix:{}", self.way(number).display());
        let far = format!("tcp:{GATEWAY}:{CROSSING}");
        let relay = Relay::start(&self.world, &network, &near, &far);
        self.hosts.push(Host {
            agent: None,
            network,
            relay,
        });
    }

    /// Where the controller answers on this host.
    fn way(&self, number: usize) -> std::path::PathBuf {
        self.world.path(&format!("way{number}.sock"))
    }

    /// Starts the controller; one that ran before is killed first.
    pub(crate) fn start_controller(&mut self, more: &[&str]) {
        self.kill_controller();
        let data = self.world.path("controller").display().to_string();
        let run = self.world.path("run").display().to_string();
        let usual = [
            "controller",
            "--data",
            &data,
            "--run-dir",
            &run,
            "--cooling",
            "1s",
        ];
        let controller = self.world.start("controller", &[&usual, more].concat());
        self.controller = Some(controller);
    }

    /// Kills the controller without a word.
    pub(crate) fn kill_controller(&mut self) {
        drop(self.controller.take());
    }

    /// Halts the controller or lets it go on.
    pub(crate) fn signal_controller(&self, signal: &str) {
        let controller = self.controller.as_ref().expect("it runs");
        kill(controller.pid(), signal);
    }

    /// The same of the agent of a host.
    pub(crate) fn signal_agent(&self, number: usize, signal: &str) {
        let agent = self.hosts[number - 1].agent.as_ref().expect("it runs");
        kill(agent.pid(), signal);
    }

    /// Starts the agent of a host; one that ran before is killed first.
    pub(crate) fn start_agent(&mut self, number: usize, more: &[&str]) {
        self.start_agent_through(number, &[], &["--host", &format!("n{number}")], more);
    }

    /// Starts the agent of a host by another program, such as `unshare --uts`, with this name or none.
    pub(crate) fn start_agent_through(
        &mut self,
        number: usize,
        through: &[&str],
        name: &[&str],
        more: &[&str],
    ) {
        self.kill_agent(number);
        let data = self.world.path(&format!("n{number}")).display().to_string();
        let controller = format!("unix:{}", self.way(number).display());
        let usual = ["agent", "--data", &data, "--controller", &controller];
        let arguments = [&usual, name, more].concat();
        let network = &self.hosts[number - 1].network;
        let agent = self
            .world
            .start_through(network, &format!("n{number}"), through, &arguments);
        self.hosts[number - 1].agent = Some(agent);
    }

    /// Kills the agent of a host without a word.
    pub(crate) fn kill_agent(&mut self, number: usize) {
        drop(self.hosts[number - 1].agent.take());
    }

    /// What the agent of a host wrote so far.
    pub(crate) fn agent_log(&self, number: usize) -> String {
        let agent = self.hosts[number - 1].agent.as_ref();
        agent.map(Running::output).unwrap_or_default()
    }

    /// Waits until so many hosts are up.
    pub(crate) fn wait_until_up(&self, hosts: usize) {
        let up = || {
            let list = self.world.json(&["hosts"]);
            let list = list["hosts"].as_array().unwrap();
            list.iter().filter(|host| host["state"] == "up").count() == hosts
        };
        let logs = || (1..=self.hosts.len()).map(|number| self.agent_log(number));
        assert!(
            eventually(up),
            "not every host reported: {:?}",
            logs().collect::<Vec<_>>()
        );
    }

    /// Cuts the cable of a host.
    pub(crate) fn link_down(&self, number: usize) {
        sh(
            self.world.network(),
            &format!("ip link set link{number} down"),
        );
    }

    /// Mends it.
    pub(crate) fn link_up(&self, number: usize) {
        sh(
            self.world.network(),
            &format!("ip link set link{number} up"),
        );
    }

    /// Takes the power of a host away: its cable is dead, and everything that ran there is gone without a word.
    pub(crate) fn power_off(&mut self, number: usize) {
        self.link_down(number);
        self.kill_agent(number);
        let host = &self.hosts[number - 1];
        // The relay is ours and not the host's.
        let relay = host.relay.0.id().cast_signed();
        let gone = eventually(|| {
            let mut left = host.network.processes();
            left.retain(|(pid, _)| *pid != relay);
            for (pid, _) in &left {
                kill(*pid, "KILL");
            }
            left.is_empty()
        });
        assert!(gone, "{:?}", host.network.processes());
    }

    /// Boots it: the kernel there says that this is another boot.
    pub(crate) fn power_on(&mut self, number: usize, boot_id: &str) {
        let file = self
            .world
            .profile(&format!("boot{number}"), &format!("{boot_id}\n"));
        let line =
            format!("mount --bind {file} /proc/sys/kernel/random/boot_id && exec \"$0\" \"$@\"");
        self.link_up(number);
        let through = ["unshare", "--mount", "sh", "-c", &line];
        self.start_agent_through(number, &through, &["--host", &format!("n{number}")], &[]);
    }

    /// Runs a line of shell in the network of a host, which must succeed.
    pub(crate) fn on(&self, number: usize, line: &str) {
        sh(self.network(number), line);
    }

    /// The network of a host.
    pub(crate) fn network(&self, number: usize) -> &Namespace {
        &self.hosts[number - 1].network
    }

    /// The networks of all hosts.
    pub(crate) fn networks(&self) -> impl Iterator<Item = &Namespace> {
        self.hosts.iter().map(|host| &host.network)
    }

    /// What `portreeve host n…` shows.
    pub(crate) fn host(&self, number: usize) -> Value {
        self.world.json(&["host", &format!("n{number}")])
    }

    /// Submits a profile of this text.
    pub(crate) fn submit(&self, name: &str, text: &str) -> String {
        let file = self.world.profile(&format!("{name}.toml"), text);
        self.world.ok(&["submit", &file])
    }

    /// Waits until so many replicas of a service are ready.
    pub(crate) fn ready(&self, service: &str, replicas: &str) {
        self.world
            .ok(&["wait", service, "--ready", replicas, "--timeout", "60s"]);
    }

    /// The replicas of a service.
    pub(crate) fn replicas(&self, service: &str) -> Vec<Value> {
        let service = self.world.json(&["service", service]);
        service["replicas"].as_array().unwrap().clone()
    }

    /// What the workers of a host wrote down of their replicas, for a test that failed.
    pub(crate) fn records(&self, number: usize) -> String {
        let replicas = self.world.path(&format!("n{number}/agent/replicas"));
        let mut text = String::new();
        for name in names_in(&replicas) {
            for file in ["worker.log", "shim.log", "supervision.jsonl"] {
                let path = replicas.join(&name).join(file);
                let words = std::fs::read_to_string(path).unwrap_or_else(|cause| cause.to_string());
                text += &format!("\n--- {name}/{file}\n{words}");
            }
        }
        text
    }

    /// On which hosts the replicas of a service are.
    pub(crate) fn hosts_of(&self, service: &str) -> Vec<String> {
        let host = |replica: &Value| replica["host"].as_str().unwrap_or("-").to_owned();
        self.replicas(service).iter().map(host).collect()
    }
}

/// The address of a host's `eth0`.
pub(crate) fn address(number: usize) -> String {
    format!("10.99.0.{number}")
}

/// Runs a line of shell in a network, which must succeed.
pub(crate) fn sh(network: &Namespace, line: &str) {
    let output = network.command("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Carries connections from one network to another, over whatever is between them.
struct Relay(Child);

impl Relay {
    fn start(world: &World, network: &Namespace, near: &str, far: &str) -> Self {
        const CODE: &str = r"
import socket, sys, threading
def place(text):
    kind, rest = text.split(':', 1)
    if kind == 'unix':
        return socket.AF_UNIX, rest
    address, port = rest.rsplit(':', 1)
    return socket.AF_INET, (address, int(port))
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        for end in a, b:
            try: end.shutdown(socket.SHUT_RDWR)
            except OSError: pass
def carry(a):
    family, to = place(sys.argv[2])
    b = socket.socket(family)
    b.settimeout(3)
    try:
        b.connect(to)
    except OSError:
        return a.close()
    b.settimeout(None)
    back = threading.Thread(target=pump, args=(b, a), daemon=True)
    back.start()
    pump(a, b)
    back.join()
    a.close()
    b.close()
family, at = place(sys.argv[1])
s = socket.socket(family)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(at)
s.listen(64)
print('up', flush=True)
while True:
    threading.Thread(target=carry, args=(s.accept()[0],), daemon=True).start()
";
        use std::io::{BufRead, BufReader};
        let mut child = world
            .command_in(network, "python3")
            .args(["-c", CODE, near, far])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().expect("stdout is piped");
        BufReader::new(out).read_line(&mut line).unwrap();
        let relay = Self(child);
        assert_eq!(
            line, "up\n",
            "the relay from {near} to {far} does not listen"
        );
        relay
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        kill(self.0.id().cast_signed(), "KILL");
        let _ = self.0.wait();
    }
}
