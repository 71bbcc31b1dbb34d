//! Taking a host out of service: its replicas are moved one by one, and nothing new comes.

use crate::identity::HostId;
use crate::rights::Caller;

use super::machine::Registry;
use super::{Answer, DrainPace, Refusal};

impl Registry {
    pub(super) fn drain_host(
        &mut self,
        _by: &Caller,
        host: HostId,
        _pace: DrainPace,
    ) -> Result<Answer, Refusal> {
        Err(self.unfit_host(host, "draining is not built yet"))
    }

    pub(super) fn undrain_host(&mut self, _by: &Caller, host: HostId) -> Result<Answer, Refusal> {
        Err(self.unfit_host(host, "draining is not built yet"))
    }

    pub(super) fn remove_host(&mut self, _by: &Caller, host: HostId) -> Result<Answer, Refusal> {
        Err(self.unfit_host(host, "removing is not built yet"))
    }

    pub(super) fn unfit_host(&self, host: HostId, reason: &str) -> Refusal {
        Refusal::HostUnfit {
            host: self.host_name(host),
            reason: reason.to_owned(),
        }
    }
}
