//! Runs spirv-val on a module.
//!
//! A machine without spirv-val skips, loudly; with `ABIDE_REQUIRE_TOOLS=1` its absence is a failure.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// Environments that every module has to be valid in.
const ENVIRONMENTS: [&str; 2] = ["vulkan1.2", "vulkan1.3"];

/// Panics with the validator's words and the module's text where the module is invalid.
pub fn validate(name: &str, words: &[u32]) {
    for environment in ENVIRONMENTS {
        if let Err(message) = run(environment, words) {
            panic!("{name} is invalid for {environment}: {message}\n{}", disassemble(words));
        }
    }
}

/// Readable text of a module.
pub fn disassemble(words: &[u32]) -> String {
    use rspirv::binary::Disassemble;
    rspirv::dr::load_words(words).expect("rspirv reads what it wrote").disassemble()
}

/// The validator's words where the module is invalid; none where there is no validator.
pub fn run(environment: &str, words: &[u32]) -> Result<(), String> {
    let spawned = Command::new("spirv-val")
        .args(["--target-env", environment, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var("ABIDE_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
            assert!(!required, "spirv-val is not on PATH, and ABIDE_REQUIRE_TOOLS=1 asks for it");
            eprintln!("SKIPPED: spirv-val is not on PATH (scripts/with-driver.sh puts it there)");
            return Ok(());
        }
        Err(error) => panic!("spirv-val could not be started: {error}"),
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut input = child.stdin.take().expect("stdin was piped");
    input.write_all(&bytes).expect("spirv-val reads its input");
    drop(input);
    let output = child.wait_with_output().expect("spirv-val ends");
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}
