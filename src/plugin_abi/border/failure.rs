//! Why a call was refused: a code for the program, words for its log.
//!
//! A hot call that refuses keeps numbers and static words only; they become text when `last_error` asks.

use std::cell::RefCell;
use std::ffi::c_char;
use std::fmt;

use crate::plugin_abi::border::entry::guarded;
use crate::plugin_abi::border::injected;
use crate::plugin_abi::border::memory::{Output, Room, write_bytes};
use crate::plugin_abi::constants::{
    PR_E2BIG, PR_EINVAL, PR_ELIMIT, PR_ENOPORT, PR_ENOSPC, PR_ESTALE,
};
use crate::plugin_abi::state::contexts;
use crate::plugin_abi::words;

/// A refusal.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    code: i32,
    detail: Detail,
}

#[derive(Clone, Debug)]
enum Detail {
    None,
    Said(&'static str),
    Missing(&'static str),
    Absent(&'static str),
    Misaligned(&'static str),
    Value(&'static str, u64),
    NoneOf(&'static str, u64, &'static str),
    Flags(&'static str, u32),
    Limited(&'static str, u64, u64),
    Long(&'static str, u64, usize),
    Room(u64, u64),
    Size(&'static str, u64, usize),
    Grown(&'static str, u32),
    Id(&'static str, u64),
    Host(u32, u32),
    Told(Box<str>),
}

impl Failure {
    const NONE: Self = Self {
        code: 0,
        detail: Detail::None,
    };

    /// With fixed words.
    pub(crate) const fn said(code: i32, words: &'static str) -> Self {
        Self {
            code,
            detail: Detail::Said(words),
        }
    }

    /// With the value that was refused.
    pub(crate) const fn value(code: i32, what: &'static str, value: u64) -> Self {
        Self {
            code,
            detail: Detail::Value(what, value),
        }
    }

    /// A number that is none of those which may stand there.
    pub(crate) const fn none_of(what: &'static str, value: u32, these: &'static str) -> Self {
        Self {
            code: PR_EINVAL,
            detail: Detail::NoneOf(what, value as u64, these),
        }
    }

    /// Flag bits of which at least one may not be set.
    pub(crate) const fn flags(what: &'static str, bits: u32) -> Self {
        Self {
            code: PR_EINVAL,
            detail: Detail::Flags(what, bits),
        }
    }

    /// An id that is not what it should be.
    pub(crate) const fn id(what: &'static str, id: u64) -> Self {
        Self {
            code: PR_ESTALE,
            detail: Detail::Id(what, id),
        }
    }

    /// A host that cannot give what is asked for, and the first reason.
    pub(crate) const fn no_port(host: u32, reason: u32) -> Self {
        Self {
            code: PR_ENOPORT,
            detail: Detail::Host(host, reason),
        }
    }

    /// A buffer that is too small.
    pub(crate) const fn room(needed: u64, cap: u64) -> Self {
        Self {
            code: PR_ENOSPC,
            detail: Detail::Room(needed, cap),
        }
    }

    /// With a value and what it may be at most.
    pub(crate) const fn limited(code: i32, what: &'static str, value: u64, most: u64) -> Self {
        Self {
            code,
            detail: Detail::Limited(what, value, most),
        }
    }

    /// More than there is room for.
    pub(crate) const fn limit(what: &'static str, value: u64, most: u64) -> Self {
        Self::limited(PR_ELIMIT, what, value, most)
    }

    /// A null pointer.
    pub(crate) const fn missing(what: &'static str) -> Self {
        Self {
            code: PR_EINVAL,
            detail: Detail::Missing(what),
        }
    }

    /// A text of 0 bytes where one must stand.
    pub(crate) const fn absent(what: &'static str) -> Self {
        Self {
            code: PR_EINVAL,
            detail: Detail::Absent(what),
        }
    }

    /// A text of too many bytes.
    pub(crate) const fn long(what: &'static str, bytes: u64, most: usize) -> Self {
        Self {
            code: PR_EINVAL,
            detail: Detail::Long(what, bytes, most),
        }
    }

    /// A pointer that no C compiler makes for this type.
    pub(crate) const fn misaligned(what: &'static str) -> Self {
        Self {
            code: PR_EINVAL,
            detail: Detail::Misaligned(what),
        }
    }

    /// A struct of a size we cannot read.
    pub(crate) const fn size(what: &'static str, size: u64, known: usize) -> Self {
        Self {
            code: PR_EINVAL,
            detail: Detail::Size(what, size, known),
        }
    }

    /// A struct with something behind what we know of it.
    pub(crate) const fn grown(what: &'static str, size: u32) -> Self {
        Self {
            code: PR_E2BIG,
            detail: Detail::Grown(what, size),
        }
    }

    /// Words made for the occasion; not from a hot call, as it allocates.
    pub(crate) fn told(code: i32, words: impl fmt::Display) -> Self {
        Self {
            code,
            detail: Detail::Told(words.to_string().into()),
        }
    }

    /// A malformed argument with the reason; not from a hot call.
    pub(crate) fn malformed(what: &'static str, reason: impl fmt::Display) -> Self {
        Self::told(PR_EINVAL, format_args!("{what}: {reason}"))
    }

    /// The same of one element of an array; not from a hot call.
    pub(crate) fn of_element(self, array: &'static str, place: usize) -> Self {
        Self::told(self.code, format_args!("{array}[{place}]{}", self.detail))
    }

    pub(crate) const fn code(&self) -> i32 {
        self.code
    }

    /// Keeps it as this thread's last.
    pub(crate) fn remember(self) {
        // A thread that ends has nobody to ask for its last failure.
        let _ended = LAST.try_with(|last| {
            // A signal's handler may come in between; it must not panic, so its own failure has no words.
            let Ok(mut last) = last.try_borrow_mut() else {
                return Self::NONE;
            };
            std::mem::replace(&mut *last, self)
        });
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == 0 {
            return Ok(());
        }
        f.write_str(words::of_code(self.code).to_str().unwrap_or_default())?;
        self.detail.fmt(f)
    }
}

/// As it stands behind the words of the code.
impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Said(words) => write!(f, ": {words}"),
            Self::Missing(what) => write!(f, ": {what} is NULL"),
            Self::Misaligned(what) => write!(f, ": {what} is misaligned"),
            Self::Absent(what) => write!(f, ": {what} is absent"),
            Self::Value(what, value) => write!(f, ": {what}: {value}"),
            Self::NoneOf(what, value, these) => {
                write!(f, ": {what}: {value}, where {these} can stand")
            }
            Self::Flags(what, bits) => {
                write!(f, ": {what}: {bits:#x} has a bit that is unknown here")
            }
            Self::Long(what, bytes, most) => {
                write!(f, ": {what} has {bytes} bytes, where {most} is the most")
            }
            Self::Room(needed, cap) => {
                write!(f, ": it has room for {cap}, and {needed} are needed")
            }
            Self::Grown(what, size) => {
                write!(
                    f,
                    ": {what} has size {size} and is not 0 behind what is known here"
                )
            }
            Self::Id(_, 0) => f.write_str(": the id is 0, which is nothing's"),
            Self::Id(what, id) => write!(f, ": {what}: {id:#x}"),
            Self::Host(host, reason) => {
                let reason = words::of_reason(*reason).to_str().unwrap_or_default();
                write!(f, ": host {host}: {reason}")
            }
            Self::Limited(what, value, most) => {
                write!(f, ": {what}: {value}, where {most} is the most")
            }
            Self::Size(what, size, known) => {
                write!(
                    f,
                    ": {what} has size {size}: write its sizeof, {known} to 4096"
                )
            }
            Self::Told(words) => write!(f, ": {words}"),
        }
    }
}

thread_local! {
    static LAST: RefCell<Failure> = const { RefCell::new(Failure::NONE) };
}

/// See `last_error` in the header.
pub(crate) unsafe extern "C" fn last_error(buf: *mut c_char, cap: u32, need: *mut u32) -> i32 {
    let answered = guarded(|| {
        injected::point();
        contexts::warm();
        // SAFETY: null, or writable by C's promise, for the duration of the call.
        let need = unsafe { Output::new(need, "need") }?;
        // SAFETY: null, or room for `cap` by C's promise, for the duration of the call.
        let room = unsafe { Room::new(buf, cap, "buf") }?;
        let mut text = LAST.with_borrow(ToString::to_string).into_bytes();
        text.push(0);
        write_bytes(&text, &room, &need)
    });
    match answered {
        Ok(code) => code,
        // Its own refusals must not replace what was asked for.
        Err(failure) => failure.code(),
    }
}
