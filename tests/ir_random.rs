//! What the verifier accepts lowers to valid SPIR-V; what it refuses is refused with an error, and nothing panics.

#[path = "common/random_kernel.rs"]
mod random_kernel;
#[path = "common/spirv_val.rs"]
mod spirv_val;

use abide::ir::verify;
use abide::spirv::{LowerError, lower};
use proptest::prelude::*;
use random_kernel::{Choices, breakage, well_formed};

fn choices(length: usize) -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 0..length)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn well_formed_kernels_lower_to_valid_modules(list in choices(600)) {
        let module = well_formed(&mut Choices::new(&list));
        prop_assert_eq!(verify(&module), Ok(()));
        let lowered = lower(&module).expect("the verifier accepts it");
        spirv_val::validate("a well-formed kernel", &lowered.words);
        prop_assert_eq!(lower(&module), Ok(lowered), "the same words again");
    }

    #[test]
    fn broken_kernels_are_refused_or_still_valid(list in choices(300), faults in choices(24)) {
        let mut module = well_formed(&mut Choices::new(&list));
        let mut faults = Choices::new(&faults);
        breakage(&mut module, &mut faults);
        match (verify(&module), lower(&module)) {
            (Ok(()), Ok(lowered)) => spirv_val::validate("a kernel that stayed sound", &lowered.words),
            (Err(error), Err(LowerError::Verify(same))) => {
                prop_assert_eq!(&error, &same);
                prop_assert!(!error.to_string().is_empty());
            }
            (verified, lowered) => prop_assert!(false, "{verified:?}, and then {lowered:?}"),
        }
    }
}

#[test]
fn most_breakages_are_found() {
    // Guards the test above: breakages that break nothing would prove nothing.
    let mut refused = 0;
    for seed in 0..200u32 {
        let list: Vec<u32> = (0..200u32).map(|at| (seed * 977 + at * 131).wrapping_mul(0x9e37_79b9) >> 7).collect();
        let mut module = well_formed(&mut Choices::new(&list));
        breakage(&mut module, &mut Choices::new(&list[50..]));
        refused += u32::from(verify(&module).is_err());
    }
    assert!(refused > 80, "only {refused} of 200 breakages were found");
}
