//! The planner: any limits and any request give a legal launch that covers every slot, or an error that says why.

use abide::planner::{Geometry, GridLimits, GridPlan, GridRequest, PlanError, SizingPolicy};
use proptest::prelude::*;

const H200: GridLimits = limits(1024, 65_535, 1024);

const fn limits(size_x: u32, groups: u32, invocations: u32) -> GridLimits {
    GridLimits {
        max_workgroup_size_x: size_x,
        max_workgroups_per_dimension: groups,
        max_invocations_per_workgroup: invocations,
    }
}

fn request(queue_length: u32) -> GridRequest {
    GridRequest { queue_length, worker_groups: 0 }
}

/// Numbers of all sizes, small ones and the edges as likely as large ones.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..4, 0u32..300, 0u32..70_000, any::<u32>(), Just(u32::MAX)]
}

fn any_limits() -> impl Strategy<Value = GridLimits> {
    (number(), number(), number()).prop_map(|(size_x, groups, invocations)| limits(size_x, groups, invocations))
}

fn assert_legal(plan: GridPlan, request: GridRequest, limits: GridLimits) {
    let Geometry { width, padded_slots, dispatch } = plan.geometry;
    assert!(width >= 1 && width <= limits.max_workgroup_size_x && width <= limits.max_invocations_per_workgroup);
    assert!(dispatch.iter().all(|&groups| groups >= 1 && groups <= limits.max_workgroups_per_dimension));
    assert!(padded_slots >= request.queue_length && padded_slots - request.queue_length < width);
    assert_eq!(padded_slots % width, 0);
    assert!(plan.geometry.invocations() >= u128::from(padded_slots), "{plan:?} leaves slots out");
    assert!(plan.worker_groups >= 1 && plan.worker_groups <= limits.max_workgroups_per_dimension);
    if request.worker_groups != 0 {
        assert_eq!(plan.worker_groups, request.worker_groups);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn fault_b15_any_limits_and_any_request_give_a_legal_launch_or_an_error(
        limits in any_limits(),
        queue_length in number(),
        worker_groups in number(),
        (subgroup, width, cores, workers_at_once) in (number(), number(), number(), number()),
        embedder_share in 0u32..=101,
    ) {
        let policy = SizingPolicy { subgroup, width, cores, workers_at_once, embedder_share };
        let request = GridRequest { queue_length, worker_groups };
        let most_groups = u128::from(limits.max_workgroups_per_dimension);
        match policy.recommend(request, limits) {
            Ok(plan) => {
                assert_legal(plan, request, limits);
                let most = limits.max_workgroup_size_x.min(limits.max_invocations_per_workgroup);
                if most >= subgroup.max(1) {
                    prop_assert_eq!(plan.geometry.width % subgroup.max(1), 0);
                }
                if worker_groups == 0 && workers_at_once != 0 {
                    prop_assert!(plan.worker_groups <= workers_at_once);
                }
            }
            Err(PlanError::ZeroLimit { .. }) => prop_assert!(limits.check().is_err()),
            Err(PlanError::Share { percent }) => prop_assert!(percent > 100),
            Err(PlanError::WorkerGroups { limit, .. }) => prop_assert!(worker_groups > limit),
            Err(PlanError::Slots { limit, .. }) => {
                let width = policy.width_within(&limits);
                prop_assert!(queue_length > limit);
                prop_assert!(Geometry::new(limit, width, &limits).is_ok(), "the limit that the error names fits");
                let groups = u128::from(queue_length.div_ceil(width));
                prop_assert!(groups > most_groups.pow(3) || groups * u128::from(width) > u128::from(u32::MAX));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

#[test]
fn fault_b15_the_width_does_not_come_from_the_group_count() {
    let plan = GridPlan::recommend(request(1024), H200).expect("a common shape");
    assert_eq!(plan.geometry, Geometry { width: 64, padded_slots: 1024, dispatch: [16, 1, 1] });
    let many_groups = GridRequest { worker_groups: 255, ..request(1024) };
    assert_eq!(GridPlan::recommend(many_groups, H200).expect("a common shape").geometry, plan.geometry);
}

#[test]
fn fault_b15_invocations_per_workgroup_bound_the_width() {
    let wide = SizingPolicy { width: 1024, ..SizingPolicy::STANDARD };
    for (limits, width) in
        [(limits(1024, 65_535, 256), 256), (limits(128, 65_535, 1024), 128), (limits(100, 9, 90), 64)]
    {
        assert_eq!(wide.recommend(request(64), limits).expect("it fits").geometry.width, width);
    }
    // Not even one subgroup fits: a part of one still runs.
    assert_eq!(wide.recommend(request(64), limits(24, 9, 24)).expect("it fits").geometry.width, 24);
}

#[test]
fn fault_b15_a_grid_covers_every_slot_in_as_many_dimensions_as_it_takes() {
    let narrow = SizingPolicy { subgroup: 4, width: 4, ..SizingPolicy::STANDARD };
    let plan = narrow.recommend(request(4 * 65_535 + 1), limits(4, 65_535, 4)).expect("two dimensions are enough");
    assert_eq!(plan.geometry.dispatch, [32_768, 2, 1]);
    let error = narrow.recommend(request(4 * 8 + 1), limits(4, 2, 4)).expect_err("three dimensions are not");
    assert_eq!(error, PlanError::Slots { slots: 33, limit: 32 });
}

#[test]
fn fault_b15_each_limit_of_zero_is_named_and_says_how_to_mend_it() {
    let broken = [
        (limits(0, 1, 1), "max_workgroup_size_x"),
        (limits(1, 0, 1), "max_workgroups_per_dimension"),
        (limits(1, 1, 0), "max_invocations_per_workgroup"),
    ];
    for (limits, name) in broken {
        let error = GridPlan::recommend(request(8), limits).expect_err("a limit is 0");
        assert_eq!(error, PlanError::ZeroLimit { limit: name });
        assert!(error.to_string().contains("VkPhysicalDeviceLimits"), "{error}");
    }
}

#[test]
fn workers_are_derived_from_what_the_device_runs_at_once() {
    let workers = |cores, workers_at_once, embedder_share| {
        let policy = SizingPolicy { cores, workers_at_once, embedder_share, ..SizingPolicy::STANDARD };
        policy.recommend(request(4096), H200).expect("a common shape").worker_groups
    };
    assert_eq!(workers(132, 4224, 75), 33, "an H200");
    assert_eq!(workers(0, 4224, 75), 33, "an H200 whose driver doesn't count multiprocessors");
    assert_eq!(workers(132, 0, 75), 33, "an H200 without an admission test");
    assert_eq!(workers(2, 1, 75), 1, "a CPU driver on two cores, one of which the program keeps");
    assert_eq!(workers(2, 2, 75), 1, "a CPU driver on two cores");
    assert_eq!(workers(0, 2, 75), 1, "the same, cores unknown");
    assert_eq!(workers(0, 0, 75), 1, "nothing is known");
    assert_eq!(workers(132, 4224, 0), 132, "the embedder asks for nothing");
    assert_eq!(workers(132, 4224, 100), 1, "the embedder asks for all");
    assert_eq!(workers(132, 20, 75), 20, "no more than run at once");
}

#[test]
fn workers_never_outnumber_slots_unless_they_were_asked_for() {
    let policy = SizingPolicy { cores: 132, ..SizingPolicy::STANDARD };
    assert_eq!(policy.recommend(request(8), H200).expect("it fits").worker_groups, 8);
    let asked = GridRequest { worker_groups: 20, ..request(8) };
    assert_eq!(policy.recommend(asked, H200).expect("it fits").worker_groups, 20);
}

#[test]
fn an_empty_queue_is_still_a_legal_launch() {
    let plan = GridPlan::recommend(request(0), H200).expect("nothing to cover");
    assert_eq!(plan.geometry, Geometry { width: 64, padded_slots: 0, dispatch: [1, 1, 1] });
    assert_eq!(plan.worker_groups, 1);
}
