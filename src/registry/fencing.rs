//! What an operator says of a host that is gone, and of replicas there that nobody here knows.

use crate::identity::HostId;
use crate::rights::Caller;

use super::host_verbs::HostReplica;
use super::machine::Registry;
use super::{Answer, Refusal};

impl Registry {
    /// Takes the host for lost now; `fenced`: its numbers are freed too.
    pub(super) fn host_down(
        &mut self,
        _by: &Caller,
        host: HostId,
        _fenced: bool,
    ) -> Result<Answer, Refusal> {
        Err(self.unfit_host(host, "taking a host down is not built yet"))
    }

    /// Makes a replica that is not known here ours again.
    pub(super) fn adopt_unknown(
        &mut self,
        _by: &Caller,
        host: HostId,
        _replica: &HostReplica,
    ) -> Result<Answer, Refusal> {
        Err(self.unfit_host(host, "adopting is not built yet"))
    }

    /// Orders the stop of what is not known here; `None`: all of it.
    pub(super) fn fence_unknown(
        &mut self,
        _by: &Caller,
        host: HostId,
        _replica: Option<&HostReplica>,
    ) -> Result<Answer, Refusal> {
        Err(self.unfit_host(host, "fencing is not built yet"))
    }
}
