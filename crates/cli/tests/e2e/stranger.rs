//! Processes that are not ours and use ports all the same.

use std::process::{Child, Stdio};

use crate::namespace::Namespace;
use crate::world::{World, eventually};

/// A process of nobody's that listens on ports of a world.
pub(crate) struct Stranger(Child);

impl Stranger {
    /// One TCP listener.
    pub(crate) fn new(world: &World, address: &str, port: u16) -> Self {
        Self::on_all(world, &[(address, port)])
    }

    /// TCP listeners of one process.
    pub(crate) fn on_all(world: &World, places: &[(&str, u16)]) -> Self {
        Self::on_host(world, world.network(), places)
    }

    /// TCP listeners of one process in the network of a host.
    pub(crate) fn on_host(world: &World, network: &Namespace, places: &[(&str, u16)]) -> Self {
        let list: Vec<String> = places
            .iter()
            .map(|(address, port)| format!("('{address}', {port})"))
            .collect();
        let code = format!(
            "import socket,time\nkept=[]\nfor a,p in [{}]:\n\
             \ts=socket.socket(socket.AF_INET6 if ':' in a else socket.AF_INET)\n\
             \ts.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\ts.bind((a, p))\n\ts.listen()\n\tkept.append(s)\n\
             time.sleep(100000)",
            list.join(", ")
        );
        let stranger = Self::running_in(world, network, &code);
        let all = || {
            places
                .iter()
                .all(|(_, port)| network.listens(u64::from(*port)))
        };
        assert!(eventually(all), "the stranger never listened");
        stranger
    }

    /// Any Python text.
    pub(crate) fn running(world: &World, code: &str) -> Self {
        Self::running_in(world, world.network(), code)
    }

    fn running_in(world: &World, network: &Namespace, code: &str) -> Self {
        let child = world
            .command_in(network, "python3")
            .args(["-c", code])
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn leave(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
