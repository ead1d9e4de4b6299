//! The baked kernels are what lowering at run time gives, valid, and as their snapshots show.
//!
//! After a change of the kernel or the lowering that is meant, `INSTA_UPDATE=always cargo test --test spirv_baked`
//! writes the snapshots anew; read their difference before it is committed.

#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::protocol::MAX_LEVELS;
use abide::{baked, scheduler, spirv};

fn kernel(levels: u32) -> &'static baked::Baked {
    baked::scan(levels).unwrap_or_else(|| panic!("{levels} levels are baked"))
}

#[test]
fn lowering_at_run_time_gives_the_baked_words() {
    for levels in 1..=MAX_LEVELS {
        let baked = kernel(levels);
        let lowered =
            spirv::lower(&scheduler::kernel(levels, scheduler::Fences::Full, None)).expect("the kernel is well-formed");
        assert_eq!(baked.levels, levels);
        assert_eq!(Some(baked.interface), lowered.interface, "{levels} levels");
        assert!(baked.words == lowered.words, "{levels} levels: the words differ");
    }
    assert_eq!(baked::scan(0), None);
    assert_eq!(baked::scan(MAX_LEVELS + 1), None);
}

#[test]
fn every_baked_kernel_is_valid() {
    for levels in 1..=MAX_LEVELS {
        spirv_val::validate(&format!("scan, {levels} levels"), kernel(levels).words);
    }
}

#[test]
fn two_kernels_read_as_before() {
    insta::assert_snapshot!("scan_1_level", spirv_val::disassemble(kernel(1).words));
    insta::assert_snapshot!("scan_5_levels", spirv_val::disassemble(kernel(5).words));
}

#[test]
fn the_other_kernels_hash_as_before() {
    let hashes: Vec<String> = (1..=MAX_LEVELS)
        .filter(|levels| ![1, 5].contains(levels))
        .map(|levels| format!("{levels} levels: {:016x}", fnv(kernel(levels).words)))
        .collect();
    insta::assert_snapshot!("scan_hashes", hashes.join("\n"));
}

/// FNV-1a over the words' bytes: a hash that no release of a crate changes.
fn fnv(words: &[u32]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
