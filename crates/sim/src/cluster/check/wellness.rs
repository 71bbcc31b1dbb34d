//! Which copies can be ready for good by their scripts: only of those it is asked that they are.

use portreeve::supervision::ProbeOutcome;

use super::super::spec::{ServiceSpec, Spec};
use crate::scenario::{Answer, Binds, RunScript, Scripts};

/// Whether no run of the copy ever ends or fails by its script.
pub(crate) fn is_well(service: &ServiceSpec, index: u32) -> bool {
    let scripts = service.scripts.get(&Some(index));
    let scripts = scripts.or_else(|| service.scripts.get(&None));
    scripts.is_none_or(|it| is_well_by(it))
}

/// Whether nothing happens by itself in the cluster: every copy of every service is well.
pub(crate) fn is_at_rest(spec: &Spec) -> bool {
    let mut all = spec.services.iter().flat_map(|it| it.scripts.values());
    all.all(|scripts| is_well_by(scripts))
}

fn is_well_by(scripts: &Scripts) -> bool {
    scripts.each().all(is_well_in)
}

fn is_well_in(script: &RunScript) -> bool {
    let is_ok = |answer: Answer| matches!(answer, Answer::After(takes, ProbeOutcome::Ok) if takes.is_zero());
    let pre_exec_ends = script
        .pre_exec
        .is_none_or(|(_, status)| status == portreeve::supervision::ExitStatus::Code(0));
    script.spawn_error.is_none()
        && pre_exec_ends
        && script.exit.is_none()
        && script.killable
        && script.leftover.is_some()
        && script.hangs.is_none()
        && script.binds == Binds::Granted
        && script.probes.iter().all(|probe| is_ok(probe.answer))
}
