//! Finds the controller a command speaks to, and the identity it speaks under.

use std::path::{Path, PathBuf};

use clap::Args;
use portreeve_api::tls::{OwnCertificate, TlsFiles};
use portreeve_api::{Client, Target};

use crate::exit::{Code, Failure};
use crate::kept_token;
use crate::places;

/// Which controller, as whom.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Connect {
    /// The controller: unix:/path/controller.sock, https://host:port or http://host:port; several addresses of the same,
    /// separated by commas, are tried in order
    ///
    /// Without it: the one of this user, then the one of this machine, then the agent of this machine, which asks the controller for
    /// you, then 127.0.0.1:7373.
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        value_delimiter = ',',
        env = "PORTREEVE_CONTROLLER",
        help_heading = "Connection"
    )]
    pub(crate) controller: Vec<Target>,
    /// The certificates of CAs to believe over https://, PEM; by default the system's
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "PORTREEVE_CA_FILE",
        help_heading = "Connection"
    )]
    pub(crate) ca: Option<PathBuf>,
    /// A certificate to show to a controller that asks everybody for one, PEM; with --client-key
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "PORTREEVE_CLIENT_CERT_FILE",
        help_heading = "Connection"
    )]
    pub(crate) client_cert: Option<PathBuf>,
    /// The key of --client-cert, PEM; refused if others may read it
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "PORTREEVE_CLIENT_KEY_FILE",
        help_heading = "Connection"
    )]
    pub(crate) client_key: Option<PathBuf>,
    /// A file with a token to speak under, which nobody else may read; over a Unix socket you are who you are, and without
    /// one the token of `portreeve login` is taken
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Connect {
    /// The client to use. Nothing is sent yet, but of several usual places the first with a socket is taken.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let targets = match self.controller.as_slice() {
            // A token that somebody names is not for the agent, which has its own.
            [] => vec![usual_target(self.token_file.is_none())?],
            named => named.to_vec(),
        };
        // A token speaks over the network; over a Unix socket the kernel says who it is, unless somebody wishes otherwise.
        let by_token = targets
            .iter()
            .any(|target| !matches!(target, Target::Unix(_)));
        let of_job = by_token.then(|| std::env::var_os("PORTREEVE_TOKEN_FILE"));
        let of_job = of_job.flatten().map(PathBuf::from);
        let token = match self.token_file.clone().or(of_job) {
            Some(file) => Some(kept_token::read(&file)?),
            None if by_token => kept_token::of_login()?,
            None => None,
        };
        Ok(self.client_of(targets)?.with_token(token))
    }

    /// The controller itself, for a daemon, which has a name of its own.
    pub(crate) fn controller(&self) -> Result<Client, Failure> {
        match self.controller.as_slice() {
            [] => self.client_of(vec![usual_target(false)?]),
            named => self.client_of(named.to_vec()),
        }
    }

    fn client_of(&self, mut targets: Vec<Target>) -> Result<Client, Failure> {
        let first = targets.remove(0);
        let client = Client::new(first).with_further(targets);
        Ok(client.with_tls(self.tls()?))
    }

    /// What is believed and shown over https.
    pub(crate) fn tls(&self) -> Result<TlsFiles, Failure> {
        let own = match (&self.client_cert, &self.client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(OwnCertificate {
                certificate: whole(certificate)?,
                key: whole(key)?,
            }),
            _ => {
                let words = "a certificate is shown with its key: name both --client-cert and --client-key, or neither";
                return Err(Failure::new(Code::Usage, words));
            }
        };
        let ca = self.ca.as_deref().map(whole).transpose()?;
        Ok(TlsFiles { ca, own })
    }
}

/// A worker is told of it, and works in another folder.
fn whole(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::plain)
}

/// Where to ask where no controller is named: at its socket, then through an agent, then at the usual address.
fn usual_target(through_agent: bool) -> Result<Target, Failure> {
    let is_there = |path: &PathBuf| path.exists() && places::is_trusted(path);
    let (sockets, addresses): (Vec<_>, Vec<_>) = places::usual_targets()
        .into_iter()
        .partition(|target| matches!(target, Target::Unix(_)));
    let relays = through_agent.then(places::usual_relays);
    let relays = relays.into_iter().flatten().map(Target::Unix);
    sockets
        .into_iter()
        .chain(relays)
        .chain(addresses)
        .find(|target| match target {
            Target::Unix(path) => is_there(path),
            Target::Tcp(_) | Target::Tls(_) => true,
        })
        .ok_or_else(|| Failure::new(Code::Unreachable, "no controller is known"))
}
