//! The caller's memory: the only place that touches it.
//!
//! Each constructor is unsafe and takes the caller's promise once, for the duration of the call; what it
//! makes is then used safely. Everything is read and written by value, never borrowed: two arguments may
//! be the same memory, and C may hand over bytes it never initialised for an output.

use std::ffi::c_char;
use std::fmt;

use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::injected;
use crate::plugin_abi::constants::{PR_EINVAL, PR_ELIMIT};
use crate::plugin_abi::types::PrStr;

/// A value that any initialised bytes make.
///
/// # Safety
///
/// The type has no invalid bit pattern and no padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: every bit pattern is an integer.
unsafe impl Plain for u16 {}
// SAFETY: every bit pattern is an integer.
unsafe impl Plain for u32 {}
// SAFETY: every bit pattern is an integer.
unsafe impl Plain for u64 {}
// SAFETY: every bit pattern is an integer.
unsafe impl Plain for i32 {}
// SAFETY: every bit pattern is an integer.
unsafe impl Plain for c_char {}

// SAFETY: every bit pattern is a raw pointer.
unsafe impl<T> Plain for *const T {}

/// The largest struct of a newer caller that is looked at: a page, as Linux does for its own.
const MOST_SIZE: u32 = 4096;

/// Reads one frozen struct or number.
///
/// # Safety
///
/// `at` is null or points to memory that may be read as a `T`.
pub(crate) unsafe fn read<T: Plain>(at: *const T, what: &'static str) -> Result<T, Failure> {
    present(at, what)?;
    // SAFETY: not null and aligned (checked), readable (caller), and any bytes are a `T` (`Plain`).
    Ok(unsafe { at.read() })
}

/// Reads one struct that begins with its size.
///
/// # Safety
///
/// `at` is null, or points to a `uint32_t` and to as many readable bytes as that says.
pub(crate) unsafe fn read_sized<T: Plain>(at: *const T, what: &'static str) -> Result<T, Failure> {
    present(at, what)?;
    // SAFETY: not null and aligned for the stricter `T` (checked); the caller lets the size be read.
    let size = unsafe { at.cast::<u32>().read() };
    check_size::<T>(size, what)?;
    // SAFETY: aligned (checked); `size` bytes are readable (caller), and they hold a `T` (checked).
    unsafe { read_known::<T>(at.cast(), size, what) }
}

/// Reads an array of structs that all begin with the same size, which is their stride.
///
/// # Safety
///
/// `at` is null or points to `n` structs of the size that the first one says.
pub(crate) unsafe fn read_sized_array<T: Plain>(
    at: *const T,
    n: u32,
    most: u32,
    what: &'static str,
) -> Result<Vec<T>, Failure> {
    check_count(n, most, what)?;
    if n == 0 {
        return Ok(Vec::new());
    }
    present(at, what)?;
    // SAFETY: not null and aligned (checked); there is a first element (`n` > 0), whose size may be read.
    let stride = unsafe { at.cast::<u32>().read() };
    // SAFETY: the caller promises `n` structs of the first one's size, which is `stride`.
    let elements = unsafe { read_strided::<T>(at, n, stride, what)? };
    for place in 0..n as usize {
        // Cannot overflow: `n` elements of `stride` bytes exist.
        let at = at.cast::<u8>().wrapping_add(place * stride as usize);
        // SAFETY: inside the array, and aligned since the stride keeps the alignment of `T` (checked).
        if unsafe { at.cast::<u32>().read() } != stride {
            return Err(Failure::said(
                PR_EINVAL,
                "elements of one array differ in size",
            ));
        }
    }
    Ok(elements)
}

/// Reads an array of structs whose stride the caller states elsewhere.
///
/// # Safety
///
/// `at` is null or points to `n` structs of `stride` bytes.
pub(crate) unsafe fn read_strided<T: Plain>(
    at: *const T,
    n: u32,
    stride: u32,
    what: &'static str,
) -> Result<Vec<T>, Failure> {
    if n == 0 {
        return Ok(Vec::new());
    }
    present(at, what)?;
    check_size::<T>(stride, what)?;
    let mut elements = Vec::with_capacity(n as usize);
    for place in 0..n as usize {
        let at = at.cast::<u8>().wrapping_add(place * stride as usize);
        // SAFETY: `at` begins one of `n` readable elements of `stride` bytes (caller), which holds a
        // `T` and keeps its alignment (checked).
        elements.push(unsafe { read_known::<T>(at, stride, what)? });
    }
    Ok(elements)
}

/// Reads the `T` we know of a longer struct whose unknown tail must be zero.
///
/// # Safety
///
/// `at` is aligned for `T` and points to `size` readable bytes, at least as many as a `T` has.
unsafe fn read_known<T: Plain>(at: *const u8, size: u32, what: &'static str) -> Result<T, Failure> {
    for place in size_of::<T>()..size as usize {
        // SAFETY: `place` < `size`, all of which may be read.
        if unsafe { at.wrapping_add(place).read() } != 0 {
            return Err(Failure::grown(what, size));
        }
    }
    // SAFETY: aligned and long enough (caller); any bytes are a `T` (`Plain`).
    Ok(unsafe { at.cast::<T>().read() })
}

fn check_size<T>(size: u32, what: &'static str) -> Result<(), Failure> {
    let known = size as usize >= size_of::<T>();
    // A stride must keep the alignment, or the second element would be misaligned.
    let aligned = (size as usize).is_multiple_of(align_of::<T>());
    if known && aligned && size <= MOST_SIZE {
        Ok(())
    } else {
        Err(Failure::size(what, u64::from(size), size_of::<T>()))
    }
}

fn check_count(n: u32, most: u32, what: &'static str) -> Result<(), Failure> {
    if n <= most {
        Ok(())
    } else {
        Err(Failure::limit(what, u64::from(n), u64::from(most)))
    }
}

fn present<T>(at: *const T, what: &'static str) -> Result<(), Failure> {
    if at.is_null() {
        Err(Failure::missing(what))
    } else if at.is_aligned() {
        Ok(())
    } else {
        Err(Failure::misaligned(what))
    }
}

/// Copies a text; `None` if it is absent.
///
/// # Safety
///
/// `text.p` points to `text.n` readable bytes, unless `text.n` is 0 or more than `most`.
pub(crate) unsafe fn read_text(
    text: PrStr,
    most: usize,
    what: &'static str,
) -> Result<Option<String>, Failure> {
    let length = match usize::try_from(text.n) {
        Ok(0) => return Ok(None),
        Ok(length) if length <= most => length,
        _ => return Err(Failure::long(what, text.n, most)),
    };
    present(text.p, what)?;
    let mut bytes = vec![0_u8; length];
    // SAFETY: `length` bytes may be read from `text.p` (caller; not null, checked) and written to a
    // fresh vector of that length, which nothing else overlaps.
    unsafe { std::ptr::copy_nonoverlapping(text.p.cast(), bytes.as_mut_ptr(), length) };
    match String::from_utf8(bytes) {
        Ok(copied) if !copied.contains('\0') => Ok(Some(copied)),
        _ => Err(Failure::malformed(what, "it is not UTF-8 without NUL")),
    }
}

/// Copies bytes of any kind.
///
/// # Safety
///
/// `first` points to `n` readable bytes, unless `n` is 0 or more than `most`.
pub(crate) unsafe fn read_bytes(
    first: *const u8,
    n: u64,
    most: u32,
    what: &'static str,
) -> Result<Vec<u8>, Failure> {
    let length = match u32::try_from(n) {
        Ok(length) if length <= most => length as usize,
        _ => return Err(Failure::limit(what, n, u64::from(most))),
    };
    present(first, what)?;
    let mut bytes = vec![0_u8; length];
    // SAFETY: `length` bytes may be read from `first` (caller; not null, checked) and written to a fresh
    // vector of that length, which nothing else overlaps.
    unsafe { std::ptr::copy_nonoverlapping(first, bytes.as_mut_ptr(), length) };
    Ok(bytes)
}

/// An array of the caller's, read element by element.
pub(crate) struct Input<T> {
    first: *const T,
    n: u32,
}

impl<T: Plain> Input<T> {
    /// # Safety
    ///
    /// `first` is null or points to `n` readable elements, for as long as this value lives.
    pub(crate) unsafe fn new(
        first: *const T,
        n: u32,
        most: u32,
        what: &'static str,
    ) -> Result<Self, Failure> {
        check_count(n, most, what)?;
        if n > 0 {
            present(first, what)?;
        }
        Ok(Self { first, n })
    }

    pub(crate) fn get(&self, place: u32) -> Option<T> {
        injected::point();
        let at = self.first.wrapping_add(place as usize);
        // SAFETY: inside the array (checked), which may be read while `self` lives; any bytes are a `T`.
        (place < self.n).then(|| unsafe { at.read() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.n).filter_map(|place| self.get(place))
    }

    pub(crate) const fn len(&self) -> u32 {
        self.n
    }

    /// Copies the first elements, as many as there are on both sides.
    pub(crate) fn copy_to(&self, to: &mut [T]) {
        injected::point();
        let n = to.len().min(self.n as usize);
        if n > 0 {
            // SAFETY: `n` elements may be read while `self` lives and written to `to`, which is ours, so that nothing
            // of the caller's overlaps it; any bytes are a `T`.
            unsafe { std::ptr::copy_nonoverlapping(self.first, to.as_mut_ptr(), n) };
        }
    }
}

/// One value of the caller's, written at most once, on success.
pub(crate) struct Output<T> {
    at: *mut T,
}

impl<T: Plain> Output<T> {
    /// # Safety
    ///
    /// `at` is null or points to memory that may be written as a `T`, for as long as this value lives.
    pub(crate) unsafe fn new(at: *mut T, what: &'static str) -> Result<Self, Failure> {
        present(at, what)?;
        Ok(Self { at })
    }

    /// # Safety
    ///
    /// As [`Output::new`].
    pub(crate) unsafe fn optional(at: *mut T, what: &'static str) -> Result<Option<Self>, Failure> {
        if at.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise is the same.
        unsafe { Self::new(at, what) }.map(Some)
    }

    pub(crate) fn set(&self, value: T) {
        injected::point();
        // SAFETY: not null and aligned (checked when made), writable while `self` lives. `write` drops
        // nothing, as C may pass uninitialised memory.
        unsafe { self.at.write(value) };
    }
}

/// A struct of the caller's that begins with its size, of which as much is written as there is room for.
pub(crate) struct SizedOutput<T> {
    at: *mut T,
    size: usize,
}

impl<T: Plain> SizedOutput<T> {
    /// # Safety
    ///
    /// `at` is null, or points to a `uint32_t` and to as many readable and writable bytes as that
    /// says, for as long as this value lives.
    pub(crate) unsafe fn new(at: *mut T, what: &'static str) -> Result<Self, Failure> {
        present(at, what)?;
        // SAFETY: not null and aligned for the stricter `T` (checked); the caller lets the size be read.
        let size = unsafe { at.cast::<u32>().read() };
        // Size and flags at least; an older caller's struct may be shorter than ours.
        let known = (8..=MOST_SIZE).contains(&size) && size.is_multiple_of(8);
        if !known {
            return Err(Failure::size(what, u64::from(size), 8));
        }
        for place in size_of::<T>()..size as usize {
            // SAFETY: `place` < `size`, all of which may be read.
            if unsafe { at.cast::<u8>().wrapping_add(place).read() } != 0 {
                return Err(Failure::grown(what, size));
            }
        }
        let size = size as usize;
        Ok(Self { at, size })
    }

    pub(crate) fn set(&self, value: T) {
        let known = self.size.min(size_of::<T>());
        // SAFETY: `known` bytes are in `value`, which has no padding (`Plain`) and is ours, and may be
        // written at `at` while `self` lives.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), self.at.cast(), known);
        }
    }
}

/// A buffer of the caller's with room for `cap` elements.
pub(crate) struct Room<T> {
    first: *mut T,
    cap: u32,
}

impl<T: Plain> Room<T> {
    /// # Safety
    ///
    /// `first` is null or points to room for `cap` elements, for as long as this value lives.
    pub(crate) unsafe fn new(first: *mut T, cap: u32, what: &'static str) -> Result<Self, Failure> {
        if cap > 0 {
            present(first, what)?;
        }
        Ok(Self { first, cap })
    }

    /// As [`Room::new`], and null means that the answer is not wanted.
    ///
    /// # Safety
    ///
    /// As [`Room::new`].
    pub(crate) unsafe fn optional(
        first: *mut T,
        cap: u32,
        what: &'static str,
    ) -> Result<Self, Failure> {
        let cap = if first.is_null() { 0 } else { cap };
        // SAFETY: the caller's promise is the same; no room is used where there is none.
        unsafe { Self::new(first, cap, what) }
    }

    /// Whether `needed` elements fit.
    pub(crate) const fn fits(&self, needed: u32) -> Result<(), Failure> {
        if needed <= self.cap {
            Ok(())
        } else {
            Err(Failure::room(needed as u64, self.cap as u64))
        }
    }

    pub(crate) const fn is_wanted(&self) -> bool {
        !self.first.is_null()
    }

    /// Writes the element at `place`; beyond the room nothing is written.
    pub(crate) fn set(&self, place: u32, value: T) {
        debug_assert!(
            place < self.cap || !self.is_wanted(),
            "written beyond the room"
        );
        if place < self.cap {
            // SAFETY: inside the room (checked), writable while `self` lives.
            unsafe { self.first.wrapping_add(place as usize).write(value) };
        }
    }

    /// Writes `values` from the beginning on, as many as there is room for, and zeroes behind them.
    pub(crate) fn fill_all(&self, values: &[T]) {
        let n = values.len().min(self.cap as usize);
        if !self.is_wanted() {
            return;
        }
        // SAFETY: `n` elements are in `values`, which is ours, so that nothing of the caller's overlaps it, and fit in
        // the room, which is writable while `self` lives.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.first, n) };
        let rest = self.first.wrapping_add(n);
        // SAFETY: the rest of the room, writable while `self` lives; zeroed bytes are a `T` (`Plain`).
        unsafe { rest.write_bytes(0, self.cap as usize - n) };
    }

    /// Writes from the beginning on.
    pub(crate) fn fill(&self, values: impl IntoIterator<Item = T>) {
        for (place, value) in (0..).zip(values) {
            self.set(place, value);
        }
    }
}

/// Answers a text into a buffer that is never anywhere else: `need` always, the text only if all of it fits. `tell`
/// is asked twice, for the length and for the text, and must say the same.
pub(crate) fn write_told(
    room: &Room<c_char>,
    need: &Output<u32>,
    tell: impl Fn(&mut TextRoom<'_>) -> fmt::Result,
) -> Result<i32, Failure> {
    let mut counted = TextRoom {
        room: None,
        written: 0,
    };
    let told = tell(&mut counted);
    let most = u64::from(u32::MAX);
    let (Ok(()), Ok(needed)) = (told, u32::try_from(counted.written)) else {
        return Err(Failure::limit("the text", counted.written, most));
    };
    need.set(needed);
    room.fits(needed)?;
    let mut written = TextRoom {
        room: Some(room),
        written: 0,
    };
    let told = tell(&mut written);
    debug_assert!(told.is_ok() && written.written == counted.written);
    Ok(0)
}

/// Where a text is written, or counted.
pub(crate) struct TextRoom<'a> {
    room: Option<&'a Room<c_char>>,
    written: u64,
}

impl fmt::Write for TextRoom<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if let Some(room) = self.room {
                let place = u32::try_from(self.written).map_err(|_| fmt::Error)?;
                room.set(place, byte.cast_signed());
            }
            self.written += 1;
        }
        Ok(())
    }
}

/// Answers bytes into a buffer: `need` always, the bytes only if they all fit.
pub(crate) fn write_bytes(
    bytes: &[u8],
    room: &Room<c_char>,
    need: &Output<u32>,
) -> Result<i32, Failure> {
    let needed = u32::try_from(bytes.len()).map_err(|_| {
        Failure::limited(
            PR_ELIMIT,
            "the text",
            bytes.len() as u64,
            u64::from(u32::MAX),
        )
    })?;
    need.set(needed);
    room.fits(needed)?;
    room.fill(bytes.iter().map(|byte| byte.cast_signed()));
    Ok(0)
}
