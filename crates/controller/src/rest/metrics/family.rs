//! Families of samples, and how they are handed to the writer of a format.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;

/// Everything that is told, in this order.
#[derive(Debug, Default)]
pub(super) struct Families(Vec<Family>);

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    samples: Samples,
}

/// The samples of one family.
#[derive(Debug)]
enum Samples {
    /// What rises and falls.
    Gauges(Vec<Sample>),
    /// What only rises; the format adds `_total` to the name.
    Counters(Vec<Sample>),
    Histogram(Histogram),
}

/// One number, by its labels.
#[derive(Debug)]
pub(super) struct Sample {
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Sample {
    pub(super) fn new(labels: Vec<(&'static str, String)>, value: f64) -> Self {
        Self { labels, value }
    }

    /// By one label.
    pub(super) fn by(label: &'static str, word: impl Into<String>, count: u64) -> Self {
        Self::new(vec![(label, word.into())], number(count))
    }
}

impl Families {
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.gauges(name, help, vec![Sample::new(Vec::new(), value)]);
    }

    pub(super) fn gauges(&mut self, name: &'static str, help: &'static str, all: Vec<Sample>) {
        self.add(name, help, Samples::Gauges(all));
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.counters(name, help, vec![Sample::new(Vec::new(), value)]);
    }

    pub(super) fn counters(&mut self, name: &'static str, help: &'static str, all: Vec<Sample>) {
        self.add(name, help, Samples::Counters(all));
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str, of: &Histogram) {
        self.add(name, help, Samples::Histogram(of.clone()));
    }

    /// A thing that is told by its labels alone.
    pub(super) fn info(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        word: impl Into<String>,
    ) {
        self.gauges(name, help, vec![Sample::by(label, word, 1)]);
    }

    fn add(&mut self, name: &'static str, help: &'static str, samples: Samples) {
        self.0.push(Family {
            name,
            help,
            samples,
        });
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = match &family.samples {
                Samples::Gauges(_) => MetricType::Gauge,
                Samples::Counters(_) => MetricType::Counter,
                Samples::Histogram(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            match &family.samples {
                Samples::Gauges(all) => {
                    each(&mut metric, all, |it, value| it.encode_gauge(&value))?;
                }
                Samples::Counters(all) => each(&mut metric, all, |it, value| {
                    it.encode_counter::<NoLabelSet, _, f64>(&value, None)
                })?,
                Samples::Histogram(of) => of.encode(metric)?,
            }
        }
        Ok(())
    }
}

fn each(
    metric: &mut MetricEncoder<'_>,
    samples: &[Sample],
    tell: impl Fn(&mut MetricEncoder<'_>, f64) -> fmt::Result,
) -> fmt::Result {
    for sample in samples {
        if sample.labels.is_empty() {
            tell(metric, sample.value)?;
        } else {
            tell(&mut metric.encode_family(&sample.labels)?, sample.value)?;
        }
    }
    Ok(())
}

/// A count as the formats know numbers: exact up to 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "the formats know no other numbers; counts above 2^53 do not come up"
)]
pub(super) const fn number(count: u64) -> f64 {
    count as f64
}
