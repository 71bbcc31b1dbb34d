//! Word from the kernel that addresses, links or routes of this network changed.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram as StdDatagram;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::net::UnixDatagram;

/// Told by the kernel of every change; what changed is looked up, not read from the message.
///
/// A netlink socket sends whole messages as a Unix datagram socket does; under that type it can be waited for
/// without code of ours that the compiler cannot check.
#[derive(Debug)]
pub(super) struct LinkNews(UnixDatagram);

impl LinkNews {
    /// Listens from now on. Call it inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// The system's: such a socket cannot be had here.
    pub(super) fn listen() -> io::Result<Self> {
        // As include/uapi/linux/rtnetlink.h numbers them: links, and addresses and routes of both families.
        const LINK: u32 = 0x1;
        const IPV4_ADDRESS: u32 = 0x10;
        const IPV4_ROUTE: u32 = 0x40;
        const IPV6_ADDRESS: u32 = 0x100;
        const IPV6_ROUTE: u32 = 0x400;
        let groups = LINK | IPV4_ADDRESS | IPV4_ROUTE | IPV6_ADDRESS | IPV6_ROUTE;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Of the netlink protocols, that of links and routes is 0, the default.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self(UnixDatagram::from_std(StdDatagram::from(socket))?))
    }

    /// Returns once something changed since the last call.
    ///
    /// # Errors
    ///
    /// The system's; the socket is of no use any more.
    pub(super) async fn come(&self) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            if self.drain()? {
                return Ok(());
            }
        }
    }

    /// Takes what has come; whether it was anything.
    fn drain(&self) -> io::Result<bool> {
        let mut message = [0; 8192];
        let mut any = false;
        // A storm of changes must not keep us here: what is left is taken at the next look.
        for _ in 0..256 {
            match self.0.try_recv(&mut message) {
                Ok(_) => any = true,
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => break,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                // Some were lost for want of room: that is news too.
                Err(cause) if cause.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    any = true;
                }
                Err(cause) => return Err(cause),
            }
        }
        Ok(any)
    }
}
