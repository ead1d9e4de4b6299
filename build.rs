//! Bakes what the library ships: the kernels of each policy for each number of levels; and for the binary its shaders.
//!
//! The pure modules are included by path, so what is baked here is what the library would lower at run time.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context as _;

#[cfg(feature = "cli")]
#[path = "shaders/compile.rs"]
mod compile;
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
    let fences = scheduler::Fences::Full;
    bake_kernels(&out, "scan", |levels| scheduler::kernel(levels, fences, None))?;
    for (name, lanes) in [("fast_wide", scheduler::fast::Lanes::Wide), ("fast_few", scheduler::fast::Lanes::Few)] {
        bake_kernels(&out, name, |levels| scheduler::fast::kernel(levels, lanes, fences, None))?;
    }
    #[cfg(feature = "cli")]
    bake_shaders(&out)?;
    Ok(())
}

/// Writes an array of kernels, by levels, as an expression.
fn bake_kernels(out: &Path, name: &str, kernel: impl Fn(u32) -> ir::Module) -> anyhow::Result<()> {
    let mut text = String::from("[\n");
    for levels in 1..=protocol::MAX_LEVELS {
        let lowered = spirv::lower(&kernel(levels))
            .with_context(|| format!("the kernel {name} for {levels} levels can't be lowered"))?;
        let spirv::Interface { dispatch, task, local_index } =
            lowered.interface.with_context(|| format!("the kernel {name} for {levels} levels calls no handlers"))?;
        writeln!(text, "Baked {{ levels: {levels},")?;
        writeln!(
            text,
            "interface: Interface {{ dispatch: {dispatch}, task: {task}, local_index: {local_index} }}, words: &["
        )?;
        write_words(&mut text, &lowered.words)?;
        text.push_str("] },\n");
    }
    text.push_str("]\n");
    let path = out.join(name).with_extension("rs");
    fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
}

/// Writes `shaders.rs`: the expression of an array of shaders, by file and entry point.
#[cfg(feature = "cli")]
fn bake_shaders(out: &Path) -> anyhow::Result<()> {
    println!("cargo:rerun-if-changed=shaders");
    let mut files = Vec::new();
    for entry in fs::read_dir("shaders").context("the folder shaders can't be read")? {
        files.push(entry.context("the folder shaders can't be read")?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
    // The order of a folder is the file system's affair; the words must not depend on it.
    files.sort();
    let mut text = String::from("[\n");
    for path in files {
        let source = fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let compiled = compile::compile(&path.to_string_lossy(), &source)?;
        for (entry, workgroup_size) in compiled.entries {
            writeln!(
                text,
                "Shader {{ name: {name:?}, entry: {entry:?}, workgroup_size: {workgroup_size:?}, words: &["
            )?;
            write_words(&mut text, &compiled.words)?;
            text.push_str("] },\n");
        }
    }
    text.push_str("]\n");
    let path = out.join("shaders.rs");
    fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
}

fn write_words(text: &mut String, words: &[u32]) -> std::fmt::Result {
    for line in words.chunks(12) {
        for word in line {
            write!(text, "{word:#x},")?;
        }
        text.push('\n');
    }
    Ok(())
}
