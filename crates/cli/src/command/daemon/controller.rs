//! `portreeve controller`: its options, and the process.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use portreeve::host_addr::{NamedNetwork, Networks};
use portreeve::registry::{Silence, Suspects};
use portreeve::time::ParseDurationError;
use portreeve_controller::{
    AuditPlace, Config as ControllerConfig, Controller as ControllerDaemon, JwtAlgorithm,
    JwtConfig, ServerTls,
};

use crate::command::logging::LogOptions;
use crate::command::told::{Told, Word, look_again_at, say_checked};
use crate::config::ConfigFile;
use crate::exit::{Code, Failure};
use crate::output::{self};
use crate::places::{self, Places};
use crate::span::Span;
use crate::supervised;

/// Run the controller: the truth about services, ports and endpoints.
///
/// Ends on SIGTERM or Ctrl-C; services go on. On SIGHUP it reads certificates, limits and the like again, and goes on.
///
/// Every option that stays can be set in /etc/portreeve/controller.toml (without root: ~/.config/portreeve), with _ for -.
#[derive(Args, Debug)]
pub(crate) struct Controller {
    /// Where the truth is kept; by default /var/lib/portreeve for root, else the user's state folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the socket is made; by default /run/portreeve for root, else the user's runtime folder
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Addresses to listen on; beyond loopback with --tls-cert and --tls-key, or --insecure
    #[arg(long, value_name = "ADDRESS", default_values = places::LISTEN)]
    listen: Vec<SocketAddr>,
    /// The certificate for addresses beyond loopback, and those between it and its CA, PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert, PEM; refused if others may read it
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Have everybody beyond loopback show a certificate of one of these CAs, PEM
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Answer beyond loopback in the clear: to readers without a name, what everybody on the cluster may see; no token is
    /// taken there, so agents on other hosts need https://
    #[arg(long, conflicts_with = "tls_cert", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, action = clap::ArgAction::Set, value_name = "BOOL", hide_possible_values = true)]
    insecure: bool,
    /// How long a freed port rests
    #[arg(long, value_name = "TIME", default_value = "60s")]
    cooling: Span,
    /// How long changes of a service's readiness are gathered before readers see them, up to 1s: the first after
    /// quiet is seen at once, and who is not ready any more is withdrawn within 20ms
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = window)]
    coalesce: Span,
    #[command(flatten)]
    silence: SilenceOptions,
    /// Begin a new epoch, so that every watcher starts anew: after the disk or the machine was set back as a whole;
    /// a copied or restored data directory is noticed without it
    #[arg(long)]
    new_epoch: bool,
    /// All on one machine: loopback addresses are published
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, action = clap::ArgAction::Set, value_name = "BOOL", hide_possible_values = true)]
    single_host: bool,
    #[command(flatten)]
    networks: NetworkOptions,
    /// The site's profiles: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR")]
    site_profiles: Option<PathBuf>,
    /// Connections at once of each listener; by default as many as the system allows files, and at most 16384
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    max_connections: Option<u32>,
    /// Of these, streams that watch endpoints; by default three quarters. One user has at most half of them
    #[arg(long, value_name = "N")]
    max_streams: Option<u32>,
    /// Requests a second that one user may send on the long run, five times as many at once; root and the controller's
    /// account are not bound by it
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    max_requests: u32,
    /// How much users and groups may hold: tables such as [user.default], [user.alice] and [group.chem] with
    /// ports_per_host, ports, replicas and services; a change holds within 5s and ends nothing
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Who may see and do what: common_groups, and tables such as [default], [user.alice] and [group.staff] with role,
    /// view and manage; a change holds within 5s
    #[arg(long, value_name = "FILE")]
    rights: Option<PathBuf>,
    #[command(flatten)]
    jwt: JwtOptions,
    /// Where every change and every refusal is written, a JSON object a line; by default audit.log in --data, in parts of
    /// 50 MB of which 3 are kept. A file named here is never cut: have logrotate move it
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    #[command(flatten)]
    log: LogOptions,
    /// Only check the configuration file, the options and the files they name; starts nothing
    #[arg(long)]
    check_config: bool,
}

/// A window for changes of readiness.
fn window(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .map_err(|cause: ParseDurationError| cause.to_string())?;
    if span.0 > ControllerConfig::MOST_COALESCED {
        return Err(
            "it is longer than 1s, for which clients would not hear of new replicas".to_owned(),
        );
    }
    Ok(span)
}

/// Whose signed tokens are believed.
#[derive(Args, Clone, Debug)]
struct JwtOptions {
    /// Believe tokens (JWT) of this issuer; with --jwt-audience, --jwt-algorithm and --jwt-key
    #[arg(long, value_name = "TEXT")]
    jwt_issuer: Option<String>,
    /// For whom they have to be made
    #[arg(long, value_name = "TEXT")]
    jwt_audience: Option<String>,
    /// How they have to be signed: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA; what a token says of
    /// itself does not count
    #[arg(long, value_name = "NAME")]
    jwt_algorithm: Option<JwtAlgorithm>,
    /// The issuer's public key, PEM; a change holds within 5s, and what another key signed ends
    #[arg(long, value_name = "FILE")]
    jwt_key: Option<PathBuf>,
    /// Which claim names the account
    #[arg(long, value_name = "NAME", default_value = JwtConfig::USER_CLAIM)]
    jwt_user_claim: String,
    /// Which claim names its groups
    #[arg(long, value_name = "NAME", default_value = JwtConfig::GROUPS_CLAIM)]
    jwt_groups_claim: String,
}

impl JwtOptions {
    fn read(self) -> Result<Option<JwtConfig>, Failure> {
        let named = (
            self.jwt_issuer,
            self.jwt_audience,
            self.jwt_algorithm,
            self.jwt_key,
        );
        // Not said by the options themselves: some may stand in the configuration file and some on the command line.
        match named {
            (None, None, None, None) => Ok(None),
            (Some(issuer), Some(audience), Some(algorithm), Some(key)) => Ok(Some(JwtConfig {
                issuer,
                audience,
                algorithm,
                key,
                user_claim: self.jwt_user_claim,
                groups_claim: self.jwt_groups_claim,
            })),
            _ => Err(Failure::new(
                Code::Usage,
                "--jwt-issuer, --jwt-audience, --jwt-algorithm and --jwt-key go together: name all four, or none",
            )),
        }
    }
}

/// What the silence of a host means.
#[derive(Args, Clone, Debug)]
struct SilenceOptions {
    /// After how long a silence a host is suspect: its endpoints stay listed but unconfirmed, and it gets nothing new
    #[arg(long, value_name = "TIME", default_value = "20s")]
    suspect_after: Span,
    /// After how long a silence a host is lost: its endpoints leave, and its replicas are run elsewhere; its ports stay
    /// held until it reports or is booted
    #[arg(long, value_name = "TIME", default_value = "90s")]
    host_grace: Span,
    /// Take the endpoints of suspect hosts off the lists at once
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, action = clap::ArgAction::Set, value_name = "BOOL", hide_possible_values = true)]
    withdraw_suspect: bool,
}

impl SilenceOptions {
    fn read(&self) -> Result<Silence, Failure> {
        let suspects = if self.withdraw_suspect {
            Suspects::AreWithdrawn
        } else {
            Suspects::StayListed
        };
        Silence::new(self.suspect_after.0, self.host_grace.0, suspects).map_err(|cause| {
            let words = format!("--suspect-after and --host-grace: {cause}");
            Failure::new(Code::Usage, words)
        })
    }
}

/// The site's networks; shared by `controller` and `dev`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NetworkOptions {
    /// A network that ports may name, such as data=10.20.0.0/16 (repeatable): a port with `network = "data"` is given
    /// out at the host's address in it, and only on hosts that have one; further parts follow after a comma
    #[arg(long = "network", value_name = "NAME=NETWORK")]
    all: Vec<NamedNetwork>,
}

impl NetworkOptions {
    pub(crate) fn read(&self) -> Result<Networks, Failure> {
        Networks::new(self.all.clone())
            .map_err(|cause| Failure::new(Code::Usage, format!("--network: {cause}")))
    }
}

impl Controller {
    pub(crate) async fn run(self, file: Option<&ConfigFile>) -> Result<(), Failure> {
        let check = self.check_config;
        if !check {
            self.log.begin();
        }
        let config = self.config()?;
        if check {
            ControllerDaemon::check(&config).map_err(Failure::plain)?;
            return say_checked(file);
        }
        portreeve_controller::raise_open_files();
        let mut told = Told::listen()?;
        let controller = ControllerDaemon::start(config)
            .await
            .map_err(Failure::plain)?;
        for address in controller.addresses() {
            output::print(&format!("portreeve controller answers at {address}\n"))?;
        }
        supervised::ready();
        while told.next().await == Word::Reload {
            look_again_at(file);
            controller.reload().await;
        }
        supervised::stopping();
        controller.stop().await;
        Ok(())
    }

    fn config(self) -> Result<ControllerConfig, Failure> {
        let places = Places::here();
        let number = |most: u32| usize::try_from(most).unwrap_or(usize::MAX);
        let data = self.data.unwrap_or(places.data);
        let audit = match self.audit_log {
            Some(path) => AuditPlace::File(path),
            None => AuditPlace::InParts(data.join("audit.log")),
        };
        Ok(ControllerConfig {
            max_connections: self.max_connections.map(number),
            max_streams: self.max_streams.map(number),
            requests_per_second: Some(self.max_requests),
            limits: self.limits,
            rights: self.rights,
            jwt: self.jwt.read()?,
            audit: Some(audit),
            data,
            socket: places::socket(&self.run_dir.unwrap_or(places.run)),
            listen: self.listen,
            tls: tls_of(self.tls_cert, self.tls_key, self.tls_client_ca)?,
            insecure: self.insecure,
            single_host: self.single_host,
            cooling: self.cooling.0,
            coalesce: self.coalesce.0,
            silence: self.silence.read()?,
            new_epoch: self.new_epoch,
            networks: self.networks.read()?,
            site_profiles: places::site_profiles(self.site_profiles),
        })
    }
}

/// The files of TLS: a certificate with its key, or nothing.
fn tls_of(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> Result<Option<ServerTls>, Failure> {
    // Not by rules of the options: a part may stand in the file, and another on the command line.
    let words = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            return Ok(Some(ServerTls {
                certificate,
                key,
                client_ca,
            }));
        }
        (None, None) if client_ca.is_none() => return Ok(None),
        (None, None) => {
            "--tls-client-ca asks for certificates over TLS, which needs --tls-cert and --tls-key"
        }
        _ => "a certificate is shown with its key: name both --tls-cert and --tls-key, or neither",
    };
    Err(Failure::new(Code::Usage, words))
}
