//! Finds the controller a command speaks to, and the identity it speaks under.

use std::path::PathBuf;

use clap::Args;
use portreeve_api::{Client, Target};

use crate::exit::{Code, Failure};
use crate::kept_token;
use crate::places;

/// Which controller, as whom.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Connect {
    /// The controller: unix:/path/controller.sock or http://host:port
    ///
    /// Without it: the one of this user, then the one of this machine, then 127.0.0.1:7373.
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        env = "PORTREEVE_CONTROLLER",
        help_heading = "Connection"
    )]
    pub(crate) controller: Option<Target>,
    /// A file with a token to speak under, which nobody else may read; over a Unix socket you are who you are, and without
    /// one the token of `portreeve login` is taken
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Connect {
    /// The client to use. Nothing is sent yet, but of several usual places the first with a socket is taken.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let target = match &self.controller {
            Some(target) => target.clone(),
            None => places::usual_targets()
                .into_iter()
                .find(|target| match target {
                    Target::Unix(path) => path.exists() && places::is_trusted(path),
                    Target::Tcp(_) => true,
                })
                .ok_or_else(|| Failure::new(Code::Unreachable, "no controller is known"))?,
        };
        let file = self.token_file.clone().or_else(|| match &target {
            // A job speaks for its owner over TCP; over a Unix socket the kernel says who it is.
            Target::Tcp(_) => std::env::var_os("PORTREEVE_TOKEN_FILE").map(PathBuf::from),
            Target::Unix(_) => None,
        });
        let token = match (file, &target) {
            (Some(file), _) => Some(kept_token::read(&file)?),
            (None, Target::Tcp(_)) => kept_token::of_login()?,
            (None, Target::Unix(_)) => None,
        };
        Ok(Client::new(target).with_token(token))
    }
}
