//! The figures of `abide bench throughput`, as JSON and as text.

use std::time::Duration;

use serde_json::{Value, json};

/// How many in how long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// How many.
    pub n: u64,
    /// A second.
    pub per_s: f64,
}

impl Rate {
    /// So many in that time.
    pub fn of(n: u64, time: Duration) -> Self {
        Self { n, per_s: n as f64 / time.as_secs_f64().max(1e-9) }
    }

    /// The higher one.
    pub fn best(self, other: Self) -> Self {
        if other.per_s > self.per_s { other } else { self }
    }
}

/// One setting, measured.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// How the kernel claimed tasks.
    pub policy: &'static str,
    /// Workers that ran them.
    pub workers: u32,
    /// Slots of the ring, of all levels.
    pub slots: u32,
    /// Threads that pushed; 0 for the one that took completions.
    pub producers: u32,
    /// Tasks pushed together.
    pub batch: u32,
    /// Tasks that came back.
    pub rate: Rate,
}

impl Row {
    fn to_json(self) -> Value {
        json!({
            "policy": self.policy,
            "workers": self.workers,
            "slots": self.slots,
            "producers": self.producers,
            "batch": self.batch,
            "tasks_per_s": self.rate.per_s,
            "n": self.rate.n,
        })
    }
}

/// What was measured, and on what.
#[derive(Debug)]
pub struct Figures {
    /// The device's name.
    pub device: String,
    /// Its driver, with version.
    pub driver: String,
    /// How the kernel stayed on the device.
    pub mode: &'static str,
    /// Dispatches submitted back to back.
    pub submits: Rate,
    /// Tasks published while nobody reads them.
    pub ceiling: Rate,
    /// Tasks of a full ring that came back, from the launch on.
    pub drain: Rate,
    /// All settings.
    pub rows: Vec<Row>,
}

impl Figures {
    fn best(&self) -> Option<Row> {
        self.rows.iter().copied().max_by(|a, b| a.rate.per_s.total_cmp(&b.rate.per_s))
    }

    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "device": self.device,
            "driver": self.driver,
            "mode": self.mode,
            "throughput": {
                "tasks_per_s": self.best().map(|row| row.rate.per_s),
                "best": self.best().map(Row::to_json),
                "submits_per_s": self.submits.per_s,
                "publish_ceiling_per_s": self.ceiling.per_s,
                "drain_per_s": self.drain.per_s,
                "n": { "submits": self.submits.n, "publish_ceiling": self.ceiling.n, "drain": self.drain.n },
                "sweep": self.rows.iter().map(|row| row.to_json()).collect::<Vec<_>>(),
            },
        })
    }

    /// As a table for people.
    pub fn to_text(&self) -> String {
        let million = |rate: Rate| rate.per_s / 1e6;
        let mut text = format!("{} ({}), {}; in millions a second\n\n", self.device, self.driver, self.mode);
        for (name, rate) in [
            ("vkQueueSubmit, back to back", self.submits),
            ("tasks published, and nobody reads them", self.ceiling),
            ("tasks of a full ring, from the launch on", self.drain),
        ] {
            text += &format!("{name:<44}{:>10.3}{:>12}\n", million(rate), rate.n);
        }
        text += &format!(
            "\n{:<8}{:>8}{:>8}{:>11}{:>7}{:>12}{:>12}\n",
            "policy", "workers", "slots", "producers", "batch", "tasks", "n"
        );
        for row in &self.rows {
            let producers = if row.producers == 0 { "same".into() } else { row.producers.to_string() };
            text += &format!(
                "{:<8}{:>8}{:>8}{:>11}{:>7}{:>12.3}{:>12}\n",
                row.policy,
                row.workers,
                row.slots,
                producers,
                row.batch,
                million(row.rate),
                row.rate.n
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_setting_is_the_figure() {
        let row = |producers, n| {
            let rate = Rate::of(n, Duration::from_secs(2));
            Row { policy: "fast", workers: 33, slots: 20_480, producers, batch: 64, rate }
        };
        let figures = Figures {
            device: "Card".into(),
            driver: "driver 1.0".into(),
            mode: "resident",
            submits: Rate::of(10, Duration::from_secs(1)),
            ceiling: Rate::of(50, Duration::from_secs(1)).best(Rate::of(7, Duration::from_secs(1))),
            drain: Rate::default(),
            rows: vec![row(0, 100), row(1, 300)],
        };
        let json = &figures.to_json()["throughput"];
        assert_eq!((&json["tasks_per_s"], &json["best"]["producers"]), (&json!(150.0), &json!(1)));
        assert_eq!((&json["publish_ceiling_per_s"], &json["n"]["publish_ceiling"]), (&json!(50.0), &json!(50)));
        assert_eq!(json["sweep"].as_array().map(Vec::len), Some(2));
        assert!(figures.to_text().contains("same"), "{}", figures.to_text());
    }
}
