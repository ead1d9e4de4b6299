//! SPIR-V from other sources than naga: glslang and the assembler.
//!
//! A machine without these tools skips, loudly; with `ABIDE_REQUIRE_TOOLS=1` their absence is a failure.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// SPIR-V 1.0 of a GLSL compute shader, as Vulkan 1.0 wants it: `BufferBlock`, interfaces without buffers.
pub fn glsl(source: &str) -> Option<Vec<u32>> {
    through("glslangValidator", &["--stdin", "-S", "comp", "-V", "--target-env", "vulkan1.0", "-o"], source)
}

/// SPIR-V of assembly text.
pub fn assemble(source: &str) -> Option<Vec<u32>> {
    through("spirv-as", &["--target-env", "spv1.3", "-", "-o"], source)
}

/// Runs a tool that reads text and writes a module into a file.
fn through(tool: &str, arguments: &[&str], source: &str) -> Option<Vec<u32>> {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("abide-{}-{number}.spv", std::process::id()));
    let spawned = Command::new(tool).args(arguments).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var("ABIDE_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
            assert!(!required, "{tool} is not on PATH, and ABIDE_REQUIRE_TOOLS=1 asks for it");
            eprintln!("SKIPPED: {tool} is not on PATH (scripts/with-driver.sh puts it there)");
            return None;
        }
        Err(error) => panic!("{tool} could not be started: {error}"),
    };
    let mut input = child.stdin.take().expect("stdin was piped");
    input.write_all(source.as_bytes()).expect("the tool reads its input");
    drop(input);
    let output = child.wait_with_output().expect("the tool ends");
    assert!(output.status.success(), "{tool}: {}\n{source}", String::from_utf8_lossy(&output.stdout));
    let bytes = std::fs::read(&path).expect("the tool wrote its file");
    std::fs::remove_file(&path).expect("the file is ours");
    Some(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}
