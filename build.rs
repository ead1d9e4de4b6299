//! Bakes what the library ships: the scan kernel for each number of levels.
//!
//! The pure modules are included by path, so what is baked here is what the library would lower at run time.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context as _;

#[path = "src/ir/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the library's own module: the build script uses a part of it")]
mod ir;
#[path = "src/protocol/mod.rs"]
#[expect(dead_code, reason = "the library's own module: the build script uses a part of it")]
mod protocol;
#[path = "src/scheduler/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the library's own module: the build script uses a part of it")]
mod scheduler;
#[path = "src/spirv/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the library's own module: the build script uses a part of it")]
mod spirv;

fn main() -> anyhow::Result<()> {
    // The modules above are sources of this script: cargo builds and runs it anew when one of them changes.
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set: cargo sets it for build scripts")?);
    bake_scan(&out)
}

/// Writes `scan.rs`: the expression of an array of kernels, by levels.
fn bake_scan(out: &Path) -> anyhow::Result<()> {
    let mut text = String::from("[\n");
    for levels in 1..=protocol::MAX_LEVELS {
        let lowered = spirv::lower(&scheduler::kernel(levels, None))
            .with_context(|| format!("the scan kernel for {levels} levels can't be lowered"))?;
        let spirv::Interface { dispatch, task, local_index } =
            lowered.interface.with_context(|| format!("the scan kernel for {levels} levels calls no handlers"))?;
        writeln!(text, "Baked {{ levels: {levels},")?;
        writeln!(
            text,
            "interface: Interface {{ dispatch: {dispatch}, task: {task}, local_index: {local_index} }}, words: &["
        )?;
        for line in lowered.words.chunks(12) {
            for word in line {
                write!(text, "{word:#x},")?;
            }
            text.push('\n');
        }
        text.push_str("] },\n");
    }
    text.push_str("]\n");
    let path = out.join("scan.rs");
    fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
}
