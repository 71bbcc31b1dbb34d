//! `token`: made, listed, renewed and revoked. A token never stands on a command line: it is printed once, or written to
//! a file that only its owner may read.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use portreeve::registry::TokenId;
use portreeve::rights::{Role, Scope};
use portreeve_api::Client;
use portreeve_api::body::{Answer, TokenAsk, TokenList, TokenMade, TokenView};
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::kept_token;
use crate::output::{Format, moment, print, print_json, rows, tell};
use crate::span::Span;

/// How long an answer may take: it is given once it is on disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Make, list, renew and revoke tokens: what people and machines prove themselves with where no socket tells who they are.
#[derive(Args, Debug)]
pub(crate) struct Token {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(Create),
    Rotate(Rotate),
    Revoke(Revoke),
    List(List),
}

impl Token {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let client = connect.client()?;
        match self.verb {
            Verb::Create(create) => create.run(&client).await,
            Verb::Rotate(rotate) => rotate.run(&client).await,
            Verb::Revoke(revoke) => revoke.run(&client).await,
            Verb::List(list) => list.run(&client).await,
        }
    }
}

/// What a token is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// It speaks for an account
    #[default]
    User,
    /// It lets machines join; for admins
    Join,
}

/// Make a token and print it, this once.
///
/// It may no more than you may now, and never more than you may later. The controller keeps only what it hashes to.
#[derive(Args, Debug)]
struct Create {
    /// What it is for
    #[arg(long, value_enum, default_value_t)]
    kind: Kind,
    /// For which account; by default yours. Another's is for admins
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// viewer reads and changes nothing; user, operator and admin as yours at most; by default what the account is
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
    /// Whose services it sees: own, group, group:NAME or all
    #[arg(long, value_name = "SCOPE")]
    scope: Option<Scope>,
    /// Whose services it manages, written the same
    #[arg(long, value_name = "SCOPE")]
    manage: Option<Scope>,
    /// How long it is good for; by default 8h, to join 1d
    #[arg(long, value_name = "TIME", conflicts_with = "no_expiry")]
    ttl: Option<String>,
    /// It is good until it is revoked
    #[arg(long)]
    no_expiry: bool,
    /// How many machines it lets join; by default 1
    #[arg(long, value_name = "N")]
    uses: Option<u32>,
    /// Agents that join with it may say which account of their machine asks, so that people there need no token; not
    /// where others than you are root there
    #[arg(long)]
    relay: bool,
    /// What it is for, in the list
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    #[command(flatten)]
    to: To,
}

/// Where a token goes.
#[derive(Args, Debug)]
struct To {
    /// Write it to this file, which only you may read (0600), instead of printing it
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "output_file")]
    force: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl To {
    /// Refuses what could not be written before there is anything to write.
    fn check(&self) -> Result<(), Failure> {
        match &self.output_file {
            Some(file) if !self.force && file.symlink_metadata().is_ok() => {
                Err(Failure::plain(format!(
                    "{} is there already, and no token was made; name another file, or replace it with --force",
                    file.display()
                )))
            }
            _ => Ok(()),
        }
    }

    fn tell(&self, made: &TokenMade) -> Result<(), Failure> {
        let until = until(made);
        if let Some(file) = &self.output_file {
            kept_token::write(file, &made.token, self.force)?;
            return print(&format!(
                "token {} is in {}, {until}\n",
                made.id,
                file.display()
            ));
        }
        if self.output == Format::Json {
            return print_json(made);
        }
        print(&format!("{}\n", made.token))?;
        tell!("token {}, {until}; it is not shown again", made.id);
        Ok(())
    }
}

pub(crate) fn until(made: &TokenMade) -> String {
    match made.expires_at {
        Some(at) => format!("good until {}", moment(at)),
        None => format!("good until `portreeve token revoke {}`", made.id),
    }
}

impl Create {
    async fn run(self, client: &Client) -> Result<(), Failure> {
        self.to.check()?;
        let ask = TokenAsk {
            kind: match self.kind {
                Kind::User => "user",
                Kind::Join => "join",
            }
            .to_owned(),
            user: self.user,
            role: self.role.map(|it| it.to_string()),
            view: self.scope.map(|it| it.to_string()),
            manage: self.manage.map(|it| it.to_string()),
            ttl: self.ttl,
            no_expiry: self.no_expiry,
            uses: self.uses,
            relay: self.relay,
            label: self.label,
        };
        self.to.tell(&make(client, &ask).await?)
    }
}

/// Has the controller make one.
pub(crate) async fn make(client: &Client, ask: &TokenAsk) -> Result<TokenMade, Failure> {
    Ok(client
        .call(Method::POST, &paths::tokens(), ask, PATIENCE)
        .await?)
}

/// Ends one.
pub(crate) async fn revoke(client: &Client, id: &str) -> Result<Answer, Failure> {
    let path = paths::token(&id);
    Ok(client.call(Method::DELETE, &path, &(), PATIENCE).await?)
}

/// Give a token another text; the one before is worth nothing from then on.
///
/// What it may and how long it is good for stay.
#[derive(Args, Debug)]
struct Rotate {
    /// Which: its id, as `portreeve token list` shows it
    id: TokenId,
    #[command(flatten)]
    to: To,
}

impl Rotate {
    async fn run(self, client: &Client) -> Result<(), Failure> {
        self.to.check()?;
        let path = paths::rotate_token(&self.id);
        let made: TokenMade = client.call(Method::POST, &path, &(), PATIENCE).await?;
        self.to.tell(&made)
    }
}

/// End a token, and all that were made through it. What they hold open ends within a second.
#[derive(Args, Debug)]
struct Revoke {
    /// Which: its id, as `portreeve token list` shows it
    id: TokenId,
    /// How to print what happened
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Revoke {
    async fn run(self, client: &Client) -> Result<(), Failure> {
        let answer = revoke(client, &self.id.to_string()).await?;
        if self.output == Format::Json {
            return print_json(&answer);
        }
        print(&format!("{}\n", answer.notes.join("; ")))
    }
}

/// List your tokens; an admin sees all. None is shown: what it hashes to is all the controller has.
#[derive(Args, Debug)]
struct List {
    /// How to print them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl List {
    async fn run(self, client: &Client) -> Result<(), Failure> {
        let list: TokenList = client.get(&paths::tokens(), PATIENCE).await?;
        if self.output == Format::Json {
            return print_json(&list);
        }
        if list.tokens.is_empty() {
            tell!(
                "no tokens; `portreeve token create` makes one, `portreeve login` one for yourself"
            );
            return Ok(());
        }
        let heading = ["ID", "KIND", "FOR", "MAY", "UNTIL", "BY", "LABEL"];
        let lines = list.tokens.iter().map(line).collect();
        print(&rows(&heading, lines))
    }
}

fn line(token: &TokenView) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let host = token.host.as_ref().map(ToString::to_string);
    let may = match (&token.role, token.uses_left) {
        (Some(role), _) => {
            let view = token.view_scope.as_deref().unwrap_or("own");
            match token.manage_scope.as_deref() {
                None | Some("none") => format!("{role}, sees {view}"),
                Some(manage) => format!("{role}, sees {view}, manages {manage}"),
            }
        }
        (None, Some(left)) => format!("{left} more join{}", relays(token)),
        (None, None) => format!("speaks for its host{}", relays(token)),
    };
    vec![
        token.id.clone(),
        token.kind.clone(),
        or_dash(token.user.clone().or(host)),
        may,
        match token.expires_at {
            Some(at) if token.expired => format!("{}, over", moment(at)),
            Some(at) => moment(at),
            None => "no expiry".to_owned(),
        },
        token.by.clone(),
        or_dash(token.label.clone()),
    ]
}

fn relays(token: &TokenView) -> &'static str {
    if token.relay { ", relays" } else { "" }
}

/// Keep a token of yours on this machine, for controllers on others.
///
/// It is made by the controller that knows you here, over its socket, and kept in a file that only you may read. Where no
/// socket tells who you are, commands use it.
#[derive(Args, Debug)]
pub(crate) struct Login {
    /// How long it is good for
    #[arg(long, value_name = "TIME", default_value = "8h")]
    ttl: Span,
}

impl Login {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let client = connect.client()?;
        kept_token::make_folder()?;
        let before = kept_token::of_login().ok().flatten();
        let host = nix::unistd::gethostname().unwrap_or_default();
        let ask = TokenAsk {
            kind: "user".to_owned(),
            ttl: Some(portreeve::time::Spelled(self.ttl.0).to_string()),
            label: Some(format!("login on {}", host.to_string_lossy())),
            ..TokenAsk::default()
        };
        let made = make(&client, &ask).await?;
        let file = kept_token::login_file();
        kept_token::write(&file, &made.token, true)?;
        if let Some(id) = before.as_deref().and_then(kept_token::id_of) {
            // The one before is of no use any more; where it is gone already, all is well.
            _ = revoke(&client, id).await;
        }
        print(&format!(
            "logged in, {}; the token is in {}\n",
            until(&made),
            file.display()
        ))
    }
}

/// Revoke the token of `portreeve login`, and forget it.
#[derive(Args, Debug)]
pub(crate) struct Logout {}

impl Logout {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let Some(token) = kept_token::of_login()? else {
            tell!(
                "not logged in: there is no {}",
                kept_token::login_file().display()
            );
            return Ok(());
        };
        let client = connect.client()?.with_token(Some(token.clone()));
        if let Some(id) = kept_token::id_of(&token) {
            match revoke(&client, id).await {
                Ok(_) => {}
                // It is worth nothing any more.
                Err(failure) if failure.code() == crate::exit::Code::NotAllowed => {}
                Err(failure) => {
                    let hint = "the token is still good, and kept; log out again, or end it with `portreeve token revoke`";
                    return Err(failure.with_hint(hint));
                }
            }
        }
        let file = kept_token::login_file();
        std::fs::remove_file(&file)
            .map_err(|cause| Failure::plain(format!("{}: {cause}", file.display())))?;
        print("logged out\n")
    }
}
