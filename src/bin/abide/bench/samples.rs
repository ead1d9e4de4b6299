//! Measured times, kept whole, and what is reported of them.

use std::time::Duration;

use serde_json::{Value, json};

/// Times of one kind of round trip.
#[derive(Debug, Default)]
pub struct Samples(Vec<Duration>);

/// Percentiles of samples, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median.
    pub p50: f64,
    /// 99% took no longer.
    pub p99: f64,
    /// 99.9% took no longer.
    pub p999: f64,
    /// Number of samples.
    pub n: usize,
}

impl Samples {
    /// Adds a sample.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Percentiles; none of no samples.
    pub fn summary(mut self) -> Option<Summary> {
        self.0.sort_unstable();
        let n = self.0.len();
        // The sample that so many in 1,000 don't exceed.
        let rank = |thousandths: usize| (n * thousandths).div_ceil(1_000).saturating_sub(1);
        let at = |thousandths| Some(self.0.get(rank(thousandths))?.as_nanos() as f64 / 1e3);
        Some(Summary { p50: at(500)?, p99: at(990)?, p999: at(999)?, n })
    }
}

impl Summary {
    /// The percentiles as a JSON object.
    pub fn to_json(self) -> Value {
        json!({ "p50": self.p50, "p99": self.p99, "p999": self.p999, "n": self.n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(nanoseconds: impl Iterator<Item = u64>) -> Option<Summary> {
        let mut samples = Samples::default();
        nanoseconds.for_each(|time| samples.push(Duration::from_nanos(time)));
        samples.summary()
    }

    #[test]
    fn percentiles_are_samples() {
        let thousand = Summary { p50: 0.5, p99: 0.99, p999: 0.999, n: 1_000 };
        assert_eq!(summary((1..=1_000).rev()), Some(thousand));
        assert_eq!(summary([7].into_iter()), Some(Summary { p50: 0.007, p99: 0.007, p999: 0.007, n: 1 }));
        assert_eq!(summary([3_000, 1_000].into_iter()), Some(Summary { p50: 1.0, p99: 3.0, p999: 3.0, n: 2 }));
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(summary([].into_iter()), None);
    }
}
