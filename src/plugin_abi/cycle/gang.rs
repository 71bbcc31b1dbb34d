//! Taking the same numbers for replicas on several hosts.

use crate::allocator::SameError;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::memory::Input;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::cycle::reserve::{
    Answer, Failed, Looked, Wish, about_host, does_not_fit, numbers, plain,
};
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::state::register::{Key, Register, replica_id};
use crate::plugin_abi::types::PrWant;

impl Cycle {
    /// All or none, with each "any" number or block the same on all hosts.
    ///
    /// A key that has its numbers already is a failure here, unless all have theirs and they are the
    /// same: numbers that were drawn for some cannot be promised to the others.
    pub(crate) fn reserve_same(
        &mut self,
        context: &Context,
        wants: &Input<PrWant>,
    ) -> Result<Failed, Failure> {
        if let Some(settled) = self.look_at_all(&context.register(), wants) {
            return Ok(settled);
        }
        if let Err(refused) = self.take_same()? {
            return Ok(self.refuse_all(refused, wants));
        }
        let mut wishes = std::mem::take(&mut self.scratch.gang.wishes);
        let mut register = context.register();
        for (handle, wish) in wishes.drain(..) {
            let answer = self.enter(&mut register, handle, wish)?;
            self.scratch.answers.push(answer);
        }
        self.scratch.gang.wishes = wishes;
        Ok(None)
    }

    /// Leaves the wishes of all wants where numbers can be looked for. Else answers them: nothing is taken.
    fn look_at_all(&mut self, register: &Register, wants: &Input<PrWant>) -> Option<Failed> {
        let gang = &mut self.scratch.gang;
        gang.keys.clear();
        let keys = wants.iter().map(|want| Key::from(&want));
        gang.keys.extend(keys.zip(0..));
        gang.keys.sort_unstable();
        gang.looked.clear();
        gang.looked.extend(gang.keys.iter().map(|_| None));
        for alike in gang.keys.chunk_by(|one, next| one.0 == next.0) {
            beside(alike, wants, &mut gang.looked);
        }
        gang.wishes.clear();
        gang.members.clear();
        for (place, want) in wants.iter().enumerate() {
            if self.scratch.gang.looked[place].is_some() {
                continue;
            }
            let looked = self.look(register, &want);
            let gang = &mut self.scratch.gang;
            // Below 2^24, the most that there may be of them.
            let before = u32::try_from(gang.wishes.len()).unwrap_or(u32::MAX);
            gang.looked[place] = match looked {
                Ok(Looked::Known(handle)) => Some(Answer::Known(handle)),
                Ok(Looked::New(wish)) => match register.next_after(before) {
                    Ok(handle) => {
                        let replica = replica_id(&wish.profile, handle);
                        gang.members.push((wish.host, replica));
                        gang.wishes.push((handle, wish));
                        None
                    }
                    Err(failure) => Some(plain(failure)),
                },
                Err(refused) => Some(refused),
            };
        }
        if self.scratch.gang.looked.iter().any(Option::is_some) {
            return Some(self.settle(register));
        }
        let former = &mut self.scratch.former.ports;
        former.clear();
        // With one number for all, only that of the first counts.
        if let Some((_, first)) = self.scratch.gang.wishes.first()
            && let Some(ended) = register.former(first.key).filter(|_| first.prefers)
        {
            former.extend(ended.ports());
        }
        None
    }

    /// The answers where not every want was new: nothing is taken.
    fn settle(&mut self, register: &Register) -> Failed {
        let looked = &self.scratch.gang.looked;
        let of = |wanted: fn(&Answer) -> bool| {
            let answers = looked.iter().map(Option::as_ref);
            answers.map(|it| it.is_some_and(wanted)).position(|it| it)
        };
        // What is refused by itself comes before what only has its numbers already.
        let failed = of(|answer| !matches!(answer, Answer::Known(_))).or_else(|| of(|_| true));
        let known = |answer: &Option<Answer>| matches!(answer, Some(Answer::Known(_)));
        let all_known = looked.iter().all(known);
        let looked = self.scratch.gang.looked.drain(..);
        let answers = looked.map(|answer| answer.unwrap_or_else(Answer::given_back));
        self.scratch.answers.extend(answers);
        if all_known && have_the_same(register, &self.scratch.answers) {
            None
        } else {
            failed
        }
    }

    /// Takes numbers for all wishes.
    fn take_same(&mut self) -> Result<Result<(), SameError>, Failure> {
        if let Some(refused) = unlike(&self.scratch.gang.wishes) {
            return Ok(Err(refused));
        }
        self.at_work(|trial, scratch| {
            scratch.numbers.clear();
            scratch.why.clear();
            let Some((_, first)) = scratch.gang.wishes.first() else {
                return Ok(());
            };
            let former = &scratch.former;
            let former = (!former.ports.is_empty()).then_some(former);
            let (members, request) = (&scratch.gang.members, &first.profile.request);
            let (numbers, why) = (&mut scratch.numbers, &mut scratch.why);
            trial.reserve_same_into(members, request, former, numbers, why)
        })
    }

    /// The answers to a gang that was refused whole.
    fn refuse_all(&mut self, refused: SameError, wants: &Input<PrWant>) -> Failed {
        let host = |place: usize| {
            let want = u32::try_from(place).ok().and_then(|place| wants.get(place));
            want.map_or(PR_ANY, |want| want.host)
        };
        let (member, answer) = match refused {
            SameError::Host { member, cause } => (member, about_host(&cause, host(member))),
            SameError::NothingInCommon => {
                // Every host may fit by itself, so that each of them is what is in the way.
                let why = &self.scratch.why;
                let answers = wants.iter().map(|want| does_not_fit(why, want.host));
                self.scratch.answers.extend(answers);
                return Some(0);
            }
            SameError::Unlike { member } => {
                let words =
                    "a want of a gang with the same numbers asks for other ports than the first";
                (member, plain(Failure::said(PR_EINVAL, words)))
            }
            SameError::SharedHost { member, host } => {
                let words = "two wants of a gang with the same numbers name host";
                let failure = Failure::value(PR_EINVAL, words, u64::from(host.0));
                (member, plain(failure))
            }
            SameError::Placed { member, error } => {
                // Every grant has an id of its own here, so no other can be in its way.
                debug_assert!(false, "{error}");
                let failure = Failure::value(PR_ESTATE, "host", u64::from(host(member)));
                (member, plain(failure))
            }
        };
        let answers = wants.iter().map(|_| Answer::given_back());
        self.scratch.answers.extend(answers);
        if let Some(place) = self.scratch.answers.get_mut(member) {
            *place = answer;
        }
        Some(member)
    }
}

/// Refuses of the wants of one key, in their order, those that cannot stand beside one before it.
fn beside(alike: &[(Key, u32)], wants: &Input<PrWant>, looked: &mut [Option<Answer>]) {
    let mut newest: Option<u32> = None;
    for (_, place) in alike {
        let Some(want) = wants.get(*place) else {
            continue;
        };
        let failure = match newest {
            Some(before) if before == want.incarnation => {
                let words = "two wants of a gang with the same numbers have one key";
                Failure::said(PR_EINVAL, words)
            }
            Some(before) if before > want.incarnation => {
                Failure::value(PR_ESTALE, "the newest incarnation", u64::from(before))
            }
            _ => {
                newest = Some(want.incarnation);
                continue;
            }
        };
        if let Some(looked) = looked.get_mut(*place as usize) {
            *looked = Some(plain(failure));
        }
    }
}

/// Whether one asks for something else than the first, so that their numbers cannot be the same.
fn unlike<H>(wishes: &[(H, Wish)]) -> Option<SameError> {
    let ((_, first), others) = wishes.split_first()?;
    let differs = |(_, other): &(H, Wish)| {
        let (first, other) = (&first.profile, &other.profile);
        first.request != other.request || first.service_id != other.service_id
    };
    let member = others.iter().position(differs)? + 1;
    Some(SameError::Unlike { member })
}

fn have_the_same(register: &Register, answers: &[Answer]) -> bool {
    let mut granted = answers.iter().filter_map(|answer| match answer {
        Answer::Known(handle) => register.last_under(*handle),
        _ => None,
    });
    let Some(first) = granted.next() else {
        return true;
    };
    granted.all(|other| numbers(&first.numbers).eq(numbers(&other.numbers)))
}
