#!/usr/bin/env bash
# Runs the driver tests that count at full size: a million tasks exactly once, a million raced against parking, and
# results under load (on a GPU a million tasks, which tests on CPU drivers would take hours for). Takes minutes a driver.
#
# Usage: scripts/bars.sh [swiftshader|mesa|mesa-stock|system]...     without one: all three CPU drivers
#
# On a GPU machine without Rust, with what scripts/gpu.sh packed: ABIDE_TEST_SCALE=50 ./run.sh OUT driver_exactly_once,
# and so on with the scales below.
set -uo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root" || exit 1

[ $# -gt 0 ] || set -- swiftshader mesa mesa-stock

messages=$(cargo --locked test --features cli --test 'driver_*' --no-run --message-format=json-render-diagnostics) || exit 1
declare -A executable=()
while read -r _ name path; do executable[$name]=$path; done < <(test_executables <<<"$messages")

bad=0
for driver; do
  results=50
  [ "$driver" != system ] || results=3334
  # test, the tests of it that count, scale
  for bar in 'driver_exactly_once many_producers 50' 'driver_parking no_task_waits 500' "driver_results no_result $results"; do
    read -r name filter scale <<<"$bar"
    echo "== $name, scale $scale, on $driver"
    ABIDE_TEST_SCALE=$scale timeout -k 10 1200 scripts/with-driver.sh "$driver" "${executable[$name]}" "$filter" \
      --nocapture --test-threads=1 </dev/null || bad=1
  done
done
exit $bad
