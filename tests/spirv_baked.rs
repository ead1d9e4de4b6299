//! The baked kernels are what lowering at run time gives, valid, and as their snapshots show.
//!
//! After a change of the kernel or the lowering that is meant, `INSTA_UPDATE=always cargo test --test spirv_baked`
//! writes the snapshots anew; read their difference before it is committed.

#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::protocol::MAX_LEVELS;
use abide::scheduler::Fences;
use abide::scheduler::fast::Lanes;
use abide::{baked, scheduler, spirv};

/// The kernels of a policy: its name, the baked ones, and what they are lowered from.
type Kernels = (&'static str, fn(u32) -> Option<&'static baked::Baked>, fn(u32) -> abide::ir::Module);

const POLICIES: [Kernels; 3] = [
    ("scan", baked::scan, |levels| scheduler::kernel(levels, Fences::Full, None)),
    (
        "fast_wide",
        |levels| baked::fast(levels, Lanes::Wide),
        |levels| scheduler::fast::kernel(levels, Lanes::Wide, Fences::Full, None),
    ),
    (
        "fast_few",
        |levels| baked::fast(levels, Lanes::Few),
        |levels| scheduler::fast::kernel(levels, Lanes::Few, Fences::Full, None),
    ),
];

#[test]
fn lowering_at_run_time_gives_the_baked_words() {
    for (name, kernel, module) in POLICIES {
        for levels in 1..=MAX_LEVELS {
            let baked = kernel(levels).unwrap();
            let lowered = spirv::lower(&module(levels)).expect("the kernel is well-formed");
            assert_eq!(baked.levels, levels);
            assert_eq!(Some(baked.interface), lowered.interface, "{name}, {levels} levels");
            assert!(baked.words == lowered.words, "{name}, {levels} levels: the words differ");
        }
        assert_eq!(kernel(0), None);
        assert_eq!(kernel(MAX_LEVELS + 1), None);
    }
}

#[test]
fn every_baked_kernel_is_valid() {
    for (name, kernel, _) in POLICIES {
        for levels in 1..=MAX_LEVELS {
            spirv_val::validate(&format!("{name}, {levels} levels"), kernel(levels).unwrap().words);
        }
    }
}

#[test]
fn some_kernels_read_as_before() {
    for (name, kernel, _) in [POLICIES[0], POLICIES[1]] {
        insta::assert_snapshot!(format!("{name}_5_levels"), spirv_val::disassemble(kernel(5).unwrap().words));
    }
    insta::assert_snapshot!("scan_1_level", spirv_val::disassemble(baked::scan(1).unwrap().words));
}

#[test]
fn all_kernels_hash_as_before() {
    let hash = |(name, kernel, _): Kernels| {
        (1..=MAX_LEVELS)
            .map(move |levels| format!("{name}, {levels} levels: {:016x}", fnv(kernel(levels).unwrap().words)))
    };
    let hashes: Vec<String> = POLICIES.into_iter().flat_map(hash).collect();
    insta::assert_snapshot!("hashes", hashes.join("\n"));
}

/// FNV-1a over the words' bytes: a hash that no release of a crate changes.
fn fnv(words: &[u32]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
