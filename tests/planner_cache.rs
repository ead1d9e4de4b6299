//! The planner's caches: 128 answers a thread, the least recently used goes first, errors are not kept.

use abide::planner::cache::{CAPACITY, LeastRecentlyUsed, stats};
use abide::planner::{GridLimits, GridPlan, GridRequest};
use proptest::prelude::*;

const LIMITS: GridLimits =
    GridLimits { max_workgroup_size_x: 256, max_workgroups_per_dimension: 65_535, max_invocations_per_workgroup: 256 };

fn plan(queue_length: u32) -> GridPlan {
    GridPlan::recommend(GridRequest { queue_length, worker_groups: 0 }, LIMITS).expect("it fits")
}

/// Runs on a thread of its own, whose caches are empty.
fn fresh(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(test).join().expect("the test thread passed"));
}

#[test]
fn a_thread_keeps_at_most_128_plans_and_128_geometries() {
    fresh(|| {
        for queue_length in 0..1000 {
            plan(queue_length);
            assert!(stats().plans <= 128 && stats().geometries <= 128);
        }
        assert_eq!((CAPACITY, stats().plans, stats().geometries), (128, 128, 128));
    });
}

#[test]
fn a_hit_refreshes_a_plan() {
    fresh(|| {
        let first = plan(0);
        for queue_length in 1..1000 {
            plan(queue_length);
            let hits = stats().plan_hits;
            assert_eq!(plan(0), first);
            assert_eq!(stats().plan_hits, hits + 1, "plan 0 was lost after {queue_length} others");
        }
    });
}

#[test]
fn errors_are_not_kept() {
    fresh(|| {
        let broken = GridLimits { max_workgroup_size_x: 0, ..LIMITS };
        for _ in 0..3 {
            assert!(GridPlan::recommend(GridRequest { queue_length: 1, worker_groups: 0 }, broken).is_err());
            let too_many = GridRequest { queue_length: 1, worker_groups: u32::MAX };
            assert!(GridPlan::recommend(too_many, LIMITS).is_err());
        }
        assert_eq!((stats().plans, stats().plan_hits), (0, 0));
    });
}

#[test]
fn threads_share_nothing() {
    fresh(|| {
        plan(5);
        fresh(|| assert_eq!(stats().plans, 0));
        assert_eq!(stats().plans, 1);
    });
}

proptest! {
    /// Against a list in order of use, with clocks that start just under the wrap.
    #[test]
    fn the_least_recently_used_goes_first_across_the_wrap_of_the_clock(
        before_wrap in 0u64..600,
        keys in prop::collection::vec(0u32..200, 1..800),
    ) {
        let mut cache = LeastRecentlyUsed::with_clock(u64::MAX - before_wrap);
        let mut by_use: Vec<u32> = Vec::new();
        for key in keys {
            let known = by_use.contains(&key);
            let mut made = false;
            let value = cache.get_or_try_insert(key, || { made = true; Ok::<_, ()>(key * 3) });
            prop_assert_eq!(value, Ok(key * 3));
            prop_assert_eq!(made, !known);
            by_use.retain(|&other| other != key);
            by_use.push(key);
            if by_use.len() > CAPACITY {
                by_use.remove(0);
            }
            prop_assert_eq!(cache.len(), by_use.len());
            prop_assert!(by_use.iter().all(|key| cache.contains(key)));
        }
    }
}
