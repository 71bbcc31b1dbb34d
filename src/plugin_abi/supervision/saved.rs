//! The whole state of a machine as bytes: a frame that tells what damaged them, and JSON inside.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | version, little endian |
//! | 4 | length of what follows the frame |
//! | 8 | [`check`] of version, length and what follows |
//!
//! The frame is that of every version, so a newer state is told from a damaged one.

use super::supervised::Supervised;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::constants::{PR_EINVAL, PR_ESTATE, PR_EVERSION};
use crate::supervision::Config;

/// More than any state takes: 10,000 granted restarts and 256 effects included.
pub(super) const MOST: u32 = 1 << 22;

const MAGIC: [u8; 8] = *b"portsup\n";
/// Of the frame's content. A state is read by the version that wrote it and by later ones.
const VERSION: u32 = 1;

/// The bytes of a machine.
pub(super) fn write(machine: &Supervised) -> Result<Vec<u8>, Failure> {
    let content = serde_json::to_vec(machine)
        .map_err(|cause| Failure::told(PR_EINVAL, format_args!("the state: {cause}")))?;
    Ok(framed(VERSION, &content))
}

/// The machine that `bytes` hold, if they are a state of ours under the rules of `config`.
pub(super) fn read(bytes: &[u8], config: &Config) -> Result<Supervised, Failure> {
    let content = content_of(bytes)?;
    let machine: Supervised = serde_json::from_slice(content)
        .map_err(|cause| Failure::malformed("state", format_args!("it does not read: {cause}")))?;
    if machine.config() != config {
        return Err(Failure::said(
            PR_ESTATE,
            "the profile's rules are not those the state was saved under; begin a new machine",
        ));
    }
    Ok(machine)
}

pub(super) fn framed(version: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut checked = Vec::with_capacity(FRAME + content.len());
    checked.extend(MAGIC);
    checked.extend(version.to_le_bytes());
    checked.extend(length.to_le_bytes());
    checked.extend([0; 8]);
    checked.extend(content);
    let sum = check(&checked);
    checked[CHECK].copy_from_slice(&sum.to_le_bytes());
    checked
}

const FRAME: usize = 24;
const CHECK: std::ops::Range<usize> = 16..FRAME;

fn content_of(bytes: &[u8]) -> Result<&[u8], Failure> {
    let damaged = |words| Err(Failure::malformed("state", words));
    let Some((frame, content)) = bytes.split_first_chunk::<FRAME>() else {
        return damaged("it is cut off");
    };
    let number =
        |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let (version, length) = (number(8), number(12));
    if frame[..8] != MAGIC {
        return damaged("it was not written by sup_save");
    }
    if content.len() as u64 != u64::from(length) {
        return damaged("it is cut off, or has something behind it");
    }
    if frame[CHECK] != check(bytes).to_le_bytes() {
        return damaged("it is damaged");
    }
    if version != VERSION {
        return Err(Failure::limited(
            PR_EVERSION,
            "the state's version",
            version.into(),
            VERSION.into(),
        ));
    }
    Ok(content)
}

/// FNV-1a over a state's bytes, those of the check itself left out: each step is a bijection, so a single changed
/// byte always changes it.
fn check(bytes: &[u8]) -> u64 {
    let numbers = &bytes[MAGIC.len()..CHECK.start];
    let all = numbers.iter().chain(&bytes[FRAME..]);
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
