//! Taking the same numbers for replicas on several hosts.

use std::collections::BTreeMap;

use crate::allocator::{GangError, GangMember, SameNumbers};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::context::{Context, Cycle};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::Handle;
use crate::plugin_abi::memory::Input;
use crate::plugin_abi::register::{Key, Register, replica_id};
use crate::plugin_abi::reserve::{
    Answer, Failed, Looked, Wish, does_not_fit, numbers, plain, refusal,
};
use crate::plugin_abi::types::PrWant;
use crate::port_pool::PortGrant;

impl Cycle {
    /// All or none, with each "any" number or block the same on all hosts.
    ///
    /// A key that has its numbers already is a failure here, unless all have theirs and they are the
    /// same: numbers that were drawn for some cannot be promised to the others.
    pub(super) fn reserve_same(
        &mut self,
        context: &Context,
        wants: &Input<PrWant>,
    ) -> Result<Failed, Failure> {
        let mut register = context.register();
        let mut seen = BTreeMap::new();
        let mut wishes: Vec<(Handle, Wish)> = Vec::new();
        let mut answers: Vec<Option<Answer>> = Vec::new();
        for want in wants.iter() {
            let looked = match beside(&mut seen, &want) {
                Ok(()) => self.look(&register, &want),
                Err(failure) => Err(plain(failure)),
            };
            // Below 2^24, the most that there may be of them.
            let before = u32::try_from(wishes.len()).unwrap_or(u32::MAX);
            answers.push(match looked {
                Ok(Looked::Known(handle)) => Some(Answer::Known(handle)),
                Ok(Looked::New(wish)) => match register.next_after(before) {
                    Ok(handle) => {
                        wishes.push((handle, wish));
                        None
                    }
                    Err(failure) => Some(plain(failure)),
                },
                Err(refused) => Some(refused),
            });
        }
        if answers.iter().any(Option::is_some) {
            let (answers, failed) = settled(&register, answers);
            self.scratch.answers = answers;
            return Ok(failed);
        }
        let gang = self.take_same(&register, &wishes)?;
        let grants = match gang {
            Ok(grants) => grants,
            Err(refused) => {
                let (answers, failed) = refused_gang(&refused, wants);
                self.scratch.answers = answers;
                return Ok(failed);
            }
        };
        for ((handle, wish), grant) in wishes.into_iter().zip(grants) {
            let numbers = grant.ports.iter().map(|port| port.numbers);
            self.scratch.numbers.clear();
            self.scratch.numbers.extend(numbers);
            let answer = self.enter(&mut register, handle, wish)?;
            self.scratch.answers.push(answer);
        }
        Ok(None)
    }

    fn take_same(
        &mut self,
        register: &Register,
        wishes: &[(Handle, Wish)],
    ) -> Result<Result<Vec<PortGrant>, GangError>, Failure> {
        let formers = wishes.iter().map(|(_, wish)| {
            let former = register.former(wish.key).filter(|_| wish.prefers);
            former.map(|ended| PortGrant {
                ports: ended.ports().collect(),
            })
        });
        let formers: Vec<Option<PortGrant>> = formers.collect();
        let members: Vec<GangMember<'_>> = wishes
            .iter()
            .zip(&formers)
            .map(|((handle, wish), former)| GangMember {
                host: wish.host,
                replica: replica_id(&wish.profile, *handle),
                request: &wish.profile.request,
                former: former.as_ref(),
            })
            .collect();
        self.within(|trial| trial.reserve_gang(&members, SameNumbers::Yes))
    }
}

/// Notes a want of one call; whether it can stand beside those before it.
fn beside(seen: &mut BTreeMap<Key, u32>, want: &PrWant) -> Result<(), Failure> {
    let key = Key::from(want);
    match seen.get(&key) {
        Some(before) if *before == want.incarnation => {
            let words = "two wants of a gang with the same numbers have one key";
            return Err(Failure::said(PR_EINVAL, words));
        }
        Some(before) if *before > want.incarnation => {
            let newest = u64::from(*before);
            return Err(Failure::value(PR_ESTALE, "the newest incarnation", newest));
        }
        _ => {}
    }
    seen.insert(key, want.incarnation);
    Ok(())
}

/// The answers where not every want was new: nothing is taken.
fn settled(register: &Register, answers: Vec<Option<Answer>>) -> (Vec<Answer>, Failed) {
    let of = |wanted: fn(&Answer) -> bool| {
        let answers = answers.iter().map(Option::as_ref);
        answers.map(|it| it.is_some_and(wanted)).position(|it| it)
    };
    // What is refused by itself comes before what only has its numbers already.
    let failed = of(|answer| !matches!(answer, Answer::Known(_))).or_else(|| of(|_| true));
    let all_known = answers
        .iter()
        .all(|answer| matches!(answer, Some(Answer::Known(_))));
    let answers: Vec<Answer> = answers
        .into_iter()
        .map(|answer| answer.unwrap_or_else(Answer::given_back))
        .collect();
    if all_known && have_the_same(register, &answers) {
        return (answers, None);
    }
    (answers, failed)
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

/// The answers to a gang that was refused whole.
fn refused_gang(refused: &GangError, wants: &Input<PrWant>) -> (Vec<Answer>, Failed) {
    let host = |place: usize| {
        let want = u32::try_from(place).ok().and_then(|place| wants.get(place));
        want.map_or(PR_ANY, |want| want.host)
    };
    let (member, answer) = match refused {
        GangError::Member { member, error } => (*member, refusal(error, &[], host(*member))),
        GangError::NothingInCommon { why } => {
            // Every host may fit by itself, so that each of them is what is in the way.
            let answers = wants.iter().map(|want| does_not_fit(why, want.host));
            return (answers.collect(), Some(0));
        }
        GangError::Unlike { member } => {
            let words =
                "a want of a gang with the same numbers asks for other ports than the first";
            (*member, plain(Failure::said(PR_EINVAL, words)))
        }
        GangError::SharedHost { member, host } => {
            let words = "two wants of a gang with the same numbers name host";
            let failure = Failure::value(PR_EINVAL, words, u64::from(host.0));
            (*member, plain(failure))
        }
    };
    let mut answers: Vec<Answer> = wants.iter().map(|_| Answer::given_back()).collect();
    if let Some(place) = answers.get_mut(member) {
        *place = answer;
    }
    (answers, Some(member))
}
