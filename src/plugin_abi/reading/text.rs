//! The names behind the numbers in answers. Read without a lock.

use std::ffi::c_char;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::identity::{HostName, ServiceName};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{Output, Room, write_bytes};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::types::PrCtx;
use crate::port::PortName;

/// See `text` in the header.
pub(crate) unsafe extern "C" fn text(
    ctx: PrCtx,
    kind: u32,
    number: u32,
    buf: *mut c_char,
    cap: u32,
    need: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise null, or room for `cap`.
        let room = unsafe { Room::new(buf, cap, "buf") }?;
        // SAFETY: by C's promise null, or writable.
        let need = unsafe { Output::new(need, "need") }?;
        let names = context.names();
        let unknown = |what| Failure::value(PR_ENOENT, what, u64::from(number));
        let answer = |name: &str| {
            let mut bytes = name.as_bytes().to_vec();
            bytes.push(0);
            write_bytes(&bytes, &room, &need)
        };
        match kind {
            PR_TEXT_SERVICE => {
                let service = names.services.get(number);
                answer(&service.ok_or(unknown("service"))?.to_string())
            }
            PR_TEXT_PORT => answer(names.ports.get(number).ok_or(unknown("port"))?.as_str()),
            PR_TEXT_HOST => {
                let place = names.hosts.get(number).ok_or(unknown("host"))?;
                let host = place.load();
                answer(host.as_deref().ok_or(unknown("host"))?.as_str())
            }
            other => Err(Failure::none_of(
                "kind of text",
                other,
                "PR_TEXT_SERVICE, _PORT or _HOST",
            )),
        }
    })
}

/// Every name that an answer may give as a number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    services: Numbered<ServiceName>,
    ports: Numbered<PortName>,
    /// By index, as hosts stand now.
    hosts: Numbered<ArcSwapOption<HostName>>,
}

impl Names {
    /// Makes the names of a profile known.
    pub(crate) fn know(&self, profile: &Profile) {
        if let Ok(number) = u32::try_from(profile.service_id.0) {
            self.services.put(number, profile.service.clone());
        }
        let wanted = profile.request.as_slice().iter();
        for (wanted, declared) in wanted.zip(&profile.ports) {
            self.ports.put(declared.name, wanted.name.clone());
        }
    }

    /// Who stands at an index from now on.
    pub(crate) fn stand(&self, index: u32, host: Option<HostName>) {
        if self.hosts.get(index).is_none() {
            self.hosts.put(index, ArcSwapOption::empty());
        }
        if let Some(place) = self.hosts.get(index) {
            place.store(host.map(Arc::new));
        }
    }
}

/// Names that come one after the other and stay: in segments that double, so that none ever moves and
/// who reads waits for nobody.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    segments: [OnceLock<Box<[OnceLock<T>]>>; SEGMENTS],
}

const SEGMENTS: usize = 32 - FIRST_BITS as usize;
/// The first segment has 2^6 places, each later one twice as many as the one before.
const FIRST_BITS: u32 = 6;

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            segments: [const { OnceLock::new() }; SEGMENTS],
        }
    }
}

impl<T> Numbered<T> {
    /// The name of a number; `None` if it has none yet.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (segment, at) = place(number)?;
        self.segments[segment].get()?.get(at)?.get()
    }

    /// Names a number once and for all; again changes nothing.
    pub(crate) fn put(&self, number: u32, name: T) {
        let Some((segment, at)) = place(number) else {
            return;
        };
        let places = self.segments[segment].get_or_init(|| {
            let places = 0..1_usize << (FIRST_BITS as usize + segment);
            places.map(|_| OnceLock::new()).collect()
        });
        if let Some(place) = places.get(at) {
            place.get_or_init(|| name);
        }
    }
}

/// The segment of a number, and its place there.
const fn place(number: u32) -> Option<(usize, usize)> {
    let Some(shifted) = number.checked_add(1 << FIRST_BITS) else {
        return None;
    };
    let top = shifted.ilog2();
    Some(((top - FIRST_BITS) as usize, (shifted - (1 << top)) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_where_it_was_put_first() {
        let names = Numbered::default();
        for number in [0, 1, 63, 64, 100_000] {
            assert_eq!(names.get(number), None);
            names.put(number, number);
            names.put(number, 7);
        }
        for number in [0, 1, 63, 64, 100_000] {
            assert_eq!(names.get(number), Some(&number));
        }
        for never in [2, 65, u32::MAX - 64, u32::MAX - 63, u32::MAX] {
            assert_eq!(names.get(never), None);
        }
    }
}
