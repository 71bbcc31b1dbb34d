//! Acts that befall the controller.

use super::super::table::Table;
use super::{Kind, Lasting, jump};
use crate::cluster::act::{Act, ControllerAct};

pub(super) fn of_controller(table: &Table<'_, '_>, kind: Kind) -> Option<Lasting> {
    let (begin, end) = match kind {
        Kind::KillController => {
            let after = table.number("after_effects", 0..=1_000_u64);
            let ways = [("written", true), ("lost", false)];
            let commit = table.word("in_commit", &ways);
            if after.is_some() && commit.is_some() {
                table.wrong(
                    "in_commit",
                    "there is also after_effects",
                    "write one of them",
                );
            }
            let begin = match (after, commit) {
                (_, Some(written)) => ControllerAct::DiesInCommit { written },
                (Some(count), None) => ControllerAct::DiesAfter(count),
                (None, None) => ControllerAct::Killed,
            };
            (begin, Some(ControllerAct::Starts))
        }
        Kind::StartController => (ControllerAct::Starts, None),
        Kind::HaltController => (ControllerAct::Halted, Some(ControllerAct::Continued)),
        Kind::ContinueController => (ControllerAct::Continued, None),
        Kind::ControllerDiskFull => (
            ControllerAct::DiskFull(true),
            Some(ControllerAct::DiskFull(false)),
        ),
        Kind::ControllerDiskFree => (ControllerAct::DiskFull(false), None),
        Kind::ControllerClockJump => {
            let by = jump(table)?;
            (
                ControllerAct::ClockJumps(by),
                Some(ControllerAct::ClockJumps(-by)),
            )
        }
        Kind::Backup => (ControllerAct::Backup, None),
        _ => (ControllerAct::Restore, None),
    };
    Some(Lasting {
        begin: Act::Controller(begin),
        end: end.map(Act::Controller),
    })
}
