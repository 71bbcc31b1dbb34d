//! Times at random, so that many who began together do not come back together.

use std::ops::Range;
use std::time::Duration;

/// A time out of `range`, at random. Without randomness its start: all then meet, which is only unkind.
pub(crate) fn spread(range: Range<Duration>) -> Duration {
    let mut random = [0; 4];
    let _ = getrandom::fill(&mut random);
    let part = f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX);
    range.start + range.end.saturating_sub(range.start).mul_f64(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_its_range() {
        let range = Duration::from_secs(1)..Duration::from_secs(10);
        let times: Vec<_> = (0..100).map(|_| spread(range.clone())).collect();
        assert!(
            times
                .iter()
                .all(|time| range.start <= *time && *time <= range.end)
        );
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(
            *most - *least > Duration::from_secs(3),
            "{least:?} to {most:?}"
        );
        let none = Duration::from_secs(5)..Duration::from_secs(5);
        assert_eq!(spread(none.clone()), none.start);
    }
}
