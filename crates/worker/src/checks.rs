//! The probes of a profile, made ready to be run: numbers for names, values for references.

use std::collections::BTreeMap;
use std::net::IpAddr;

use portreeve::port::{Port, PortName};
use portreeve::profile::{DeclaredPort, Probe};
use portreeve::supervision::ProbeKind;
use portreeve_api::local::Assignment;

use crate::containment::ProbeGroup;
use crate::job::Job;
use crate::limits::Limits;
use crate::probe::owner::Root;
use crate::probe::{
    Check, CommandCheck, HttpCheck, Leftovers, ProbeTarget, SourcePorts, TargetPort,
};

/// Everything the checks of one run are made of.
#[derive(Clone, Copy)]
pub(crate) struct Checks<'a> {
    pub(crate) assignment: &'a Assignment,
    /// The run from the inside, if it could be read.
    pub(crate) job: Option<&'a Job>,
    /// This host's published address.
    pub(crate) address: IpAddr,
    /// Whether that has been an address of this host.
    pub(crate) own_address: bool,
    /// The addresses of ports that name a network.
    pub(crate) port_addresses: &'a BTreeMap<PortName, IpAddr>,
    /// Where the run lives.
    pub(crate) root: Option<&'a Root>,
    /// Where connections of ours begin.
    pub(crate) sources: &'a SourcePorts,
    /// How many processes this host starts.
    pub(crate) limits: &'a Limits,
}

impl<'a> Checks<'a> {
    /// Whom the probe asks.
    pub(crate) fn target(self, kind: ProbeKind) -> ProbeTarget {
        let desired = &self.assignment.desired;
        let ports = desired.profile.ports.iter();
        ProbeTarget {
            kind,
            ports: ports
                .filter(|port| port.protocol.has_tcp())
                .filter_map(|port| self.target_port(port))
                .collect(),
            address: self.address,
            own_address: self.own_address,
            single_host: self.assignment.single_host,
            anywhere: false,
            root: self.root.cloned(),
            sources: self.sources.clone(),
        }
    }

    fn target_port(self, port: &DeclaredPort) -> Option<TargetPort> {
        let granted = self.assignment.desired.grant.port(&port.name)?;
        let own = self.port_addresses.get(&port.name);
        Some(TargetPort {
            numbers: granted.numbers,
            own: own.map(|address| (port.name.clone(), *address)),
            publish: port.publish,
            owner: port.owner,
        })
    }

    /// What the probe of this kind does, or why that cannot be said.
    pub(crate) fn check(self, kind: ProbeKind, leftovers: &Leftovers) -> Result<Check, String> {
        let profile = &self.assignment.desired.profile;
        let probe = match kind {
            ProbeKind::Startup => profile.startup.as_ref(),
            ProbeKind::Liveness => profile.liveness.as_ref(),
            ProbeKind::Readiness => profile.readiness.as_ref(),
        };
        match probe.ok_or_else(|| format!("the profile says nothing about the {kind} probe"))? {
            Probe::Listening => Ok(Check::Listening),
            Probe::Tcp { port, host } => Ok(Check::Tcp {
                port: self.number(port)?,
                host: *host,
            }),
            Probe::Http(http) => {
                let job = self.job()?;
                let fill = |template| {
                    let filled = job.filled(self.assignment, template);
                    filled.map_err(|cause| cause.to_string())
                };
                let path = fill(&http.path)?;
                let mut headers = Vec::new();
                for (name, value) in &http.headers {
                    headers.push((name.clone(), fill(value)?));
                }
                Ok(Check::Http(HttpCheck::new(
                    http,
                    self.number(&http.port)?,
                    path,
                    headers,
                )))
            }
            Probe::Command(command) => {
                let job = self.job()?;
                Ok(Check::Command(CommandCheck {
                    argv: job
                        .argv(self.assignment, command)
                        .map_err(|cause| cause.to_string())?,
                    env: job
                        .probe_env(self.assignment, kind)
                        .into_iter()
                        .map(|(name, value)| (name.into(), value.into()))
                        .collect(),
                    working_dir: job.working_dir().to_owned(),
                    leftovers: leftovers.clone(),
                    group: self
                        .root
                        .and_then(|root| ProbeGroup::of(root.group.as_deref()?, kind)),
                    limits: self.limits.clone(),
                }))
            }
        }
    }

    fn number(self, port: &PortName) -> Result<Port, String> {
        let granted = self.assignment.desired.grant.port(port);
        granted
            .map(|granted| granted.numbers.first())
            .ok_or_else(|| format!("no port {port} was granted"))
    }

    fn job(self) -> Result<&'a Job, String> {
        self.job
            .ok_or_else(|| "its environment could not be read; the worker's log says why".into())
    }
}
