//! The figures of `abide bench latency`, as JSON and as text.

use abide::protocol::PRIORITY_LEVELS;
use serde_json::{Value, json};

use crate::bench::samples::Summary;

/// What was measured, and on what.
#[derive(Debug)]
pub struct Figures {
    /// The device's name.
    pub device: String,
    /// Its driver, with version.
    pub driver: String,
    /// How the kernel of the tasks stayed on the device.
    pub mode: &'static str,
    /// How it claimed them.
    pub policy: &'static str,
    /// What the admission test says of the device.
    pub reason: String,
    /// Workers that ran tasks.
    pub workers: u32,
    /// Invocations of a worker.
    pub width: u32,
    /// Slots of the ring.
    pub slots: u32,
    /// Round trips of a bare resident kernel; none where no launch of it stayed long enough for one.
    pub floor: Option<Summary>,
    /// Dispatches waited for on the semaphore.
    pub submit_wait: Option<Summary>,
    /// Dispatches waited for by reading the semaphore's counter.
    pub submit_poll: Option<Summary>,
    /// Tasks published and waited for.
    pub abide: Option<Summary>,
}

impl Figures {
    /// As a JSON object; what was not measured is null.
    pub fn to_json(&self) -> Value {
        let summary = |of: Option<Summary>| of.map_or(Value::Null, Summary::to_json);
        json!({
            "device": self.device,
            "driver": self.driver,
            "mode": self.mode,
            "policy": self.policy,
            "reason": self.reason,
            "workers": self.workers,
            "width": self.width,
            "levels": PRIORITY_LEVELS,
            "slots": self.slots,
            "floor_us": summary(self.floor),
            "submit_wait_us": summary(self.submit_wait),
            "submit_poll_us": summary(self.submit_poll),
            "abide_us": summary(self.abide),
            "abide_over_floor": self.abide_over_floor(),
            "submit_wait_over_abide": self.submit_wait_over_abide(),
        })
    }

    /// As a table for people.
    pub fn to_text(&self) -> String {
        let Self { device, driver, mode, policy, workers, width, slots, .. } = self;
        let mut text = format!(
            "{device} ({driver}), {mode}, {policy}: {workers} workers of {width} invocations, {PRIORITY_LEVELS} levels, \
             {slots} slots\n\n{:<48}{:>10}{:>10}{:>10}{:>9}\n",
            "round trip in µs", "p50", "p99", "p99.9", "n"
        );
        let rows = [
            ("the floor: a bare resident kernel replies", self.floor),
            ("vkQueueSubmit, then vkWaitSemaphores", self.submit_wait),
            ("vkQueueSubmit, then polling the counter", self.submit_poll),
            ("a task published and waited for", self.abide),
        ];
        for (name, summary) in rows {
            text += &match summary {
                Some(Summary { p50, p99, p999, n }) => format!("{name:<48}{p50:>10.2}{p99:>10.2}{p999:>10.2}{n:>9}\n"),
                None => format!("{name:<48}not measured: {}\n", self.reason),
            };
        }
        if let (Some(floors), Some(times)) = (self.abide_over_floor(), self.submit_wait_over_abide()) {
            text += &format!("\nA task takes {floors:.2} floors; submit and wait takes {times:.1} times as long.\n");
        }
        text
    }

    fn abide_over_floor(&self) -> Option<f64> {
        Some(self.abide?.p50 / self.floor?.p50)
    }

    fn submit_wait_over_abide(&self) -> Option<f64> {
        Some(self.submit_wait?.p50 / self.abide?.p50)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(floor: Option<Summary>) -> Figures {
        let summary = |p50| Some(Summary { p50, p99: 2.0 * p50, p999: 3.0 * p50, n: 10 });
        Figures {
            device: "Card".into(),
            driver: "driver 1.0".into(),
            mode: "resident",
            policy: "scan",
            reason: "loops are cut short".into(),
            workers: 33,
            width: 32,
            slots: 4096,
            floor,
            submit_wait: summary(40.0),
            submit_poll: summary(30.0),
            abide: summary(4.0),
        }
    }

    #[test]
    fn json_has_figures_and_ratios() {
        let json = figures(Some(Summary { p50: 2.0, p99: 2.5, p999: 3.0, n: 5 })).to_json();
        assert_eq!(json["floor_us"], json!({ "p50": 2.0, "p99": 2.5, "p999": 3.0, "n": 5 }));
        assert_eq!((&json["abide_over_floor"], &json["submit_wait_over_abide"]), (&json!(2.0), &json!(10.0)));
        assert_eq!((&json["levels"], &json["workers"]), (&json!(5), &json!(33)));
    }

    #[test]
    fn a_floor_that_was_not_measured_is_null_and_says_why() {
        let figures = figures(None);
        let json = figures.to_json();
        assert_eq!((&json["floor_us"], &json["abide_over_floor"]), (&Value::Null, &Value::Null));
        assert!(figures.to_text().contains("not measured: loops are cut short"), "{}", figures.to_text());
    }
}
