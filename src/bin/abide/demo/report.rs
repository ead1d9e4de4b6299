//! What the demo says at its end, as text and as JSON.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use abide::protocol::PRIORITY_LEVELS;
use serde_json::{Value, json};

use super::pyramid::Product;
use super::stream::{Timing, percentile};

const LEVEL_NAMES: [&str; PRIORITY_LEVELS as usize] = ["CRITICAL", "HIGH", "NORMAL", "LOW", "IDLE"];

/// What became of one image.
pub struct ImageReport {
    /// Its name.
    pub name: String,
    /// Width and height in texels.
    pub size: [u32; 2],
    /// Mip levels.
    pub mips: usize,
    /// Through abide.
    pub tasks: Timing,
    /// A submission for each tile.
    pub submissions: Timing,
    /// A dispatch for each product of each level.
    pub batched: Duration,
    /// Tiles that the others made differently than abide, of both.
    pub differing: u64,
    /// Noise ratios of the two formats in decibels; none where nothing was lost.
    pub psnr: [(Product, Option<f64>); 2],
    /// Files that were written.
    pub files: Vec<PathBuf>,
}

/// What became of all of them.
#[derive(Default)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// Resident or epochs.
    pub mode: &'static str,
    /// Images that were streamed.
    pub images: Vec<ImageReport>,
    /// What went wrong with others.
    pub errors: Vec<String>,
}

impl Report {
    /// Whether every image was streamed, and every tile was the same on all ways.
    pub fn is_good(&self) -> bool {
        self.errors.is_empty() && self.images.iter().all(|image| image.differing == 0)
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        json!({
            "device": self.device,
            "driver": self.driver,
            "mode": self.mode,
            "images": self.images.iter().map(ImageReport::json).collect::<Vec<_>>(),
            "errors": self.errors,
        })
    }
}

impl ImageReport {
    fn tiles(&self) -> usize {
        self.tasks.latencies.iter().map(Vec::len).sum()
    }

    /// The report as lines of text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let [width, height] = self.size;
        let tiles = self.tiles();
        // Writing to a string can't fail.
        let _ = writeln!(text, "{}: {width} x {height}, {} mip levels, {tiles} tiles", self.name, self.mips);
        let _ = writeln!(text, "  {:10}{:>8}{:>14}{:>14}", "level", "tasks", "p50", "p99");
        for (name, latencies) in LEVEL_NAMES.iter().zip(&self.tasks.latencies) {
            if !latencies.is_empty() {
                let [p50, p99] = [0.5, 0.99].map(|share| micros(percentile(latencies, share)));
                let _ = writeln!(text, "  {name:10}{:>8}{p50:>14}{p99:>14}", latencies.len());
            }
        }
        let ways = [
            ("abide tasks", self.tasks.total),
            ("a submission each", self.submissions.total),
            ("a dispatch per mip", self.batched),
        ];
        for (way, time) in ways {
            let _ = writeln!(text, "  {way:18}{:>14}", micros(time.as_secs_f64() * 1e6));
        }
        for (product, psnr) in &self.psnr {
            let psnr = psnr.map_or_else(|| "exact".into(), |psnr| format!("{psnr:.2} dB"));
            let _ = writeln!(text, "  {:18}{psnr:>14}", product.name().to_uppercase());
        }
        let _ = match self.differing {
            0 => writeln!(text, "  all {tiles} tiles are the same, byte for byte, in all three ways"),
            differing => writeln!(text, "  WRONG: {differing} of 2 x {tiles} tiles differ from abide's"),
        };
        for file in &self.files {
            let _ = writeln!(text, "  wrote {}", file.display());
        }
        text
    }

    fn json(&self) -> Value {
        let levels = LEVEL_NAMES.iter().zip(&self.tasks.latencies).zip(&self.submissions.latencies);
        let levels = levels.map(|((name, tasks), submissions)| {
            json!({
                "level": name,
                "tasks": tasks.len(),
                "p50_us": percentile(tasks, 0.5),
                "p99_us": percentile(tasks, 0.99),
                "submission_p50_us": percentile(submissions, 0.5),
                "submission_p99_us": percentile(submissions, 0.99),
            })
        });
        json!({
            "name": self.name,
            "width": self.size[0],
            "height": self.size[1],
            "mips": self.mips,
            "tiles": self.tiles(),
            "levels": levels.collect::<Vec<_>>(),
            "tasks_ms": self.tasks.total.as_secs_f64() * 1e3,
            "submissions_ms": self.submissions.total.as_secs_f64() * 1e3,
            "batched_ms": self.batched.as_secs_f64() * 1e3,
            "differing": self.differing,
            "psnr": self.psnr.iter().map(|(p, psnr)| (p.name().to_owned(), json!(psnr))).collect::<serde_json::Map<_, _>>(),
            "files": self.files,
        })
    }
}

/// A time in microseconds with a unit that suits it.
fn micros(time: f64) -> String {
    match time {
        ..1e3 => format!("{time:.1} µs"),
        ..1e6 => format!("{:.2} ms", time / 1e3),
        _ => format!("{:.2} s", time / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_that_suit_them() {
        assert_eq!([2.04, 2_500.0, 3e6].map(micros), ["2.0 µs", "2.50 ms", "3.00 s"]);
    }
}
