#!/usr/bin/env bash
# Checks and tests everything: each thing is built once, driver tests run on every CPU driver.
#
# Usage: scripts/test.sh [--list] [STEP]...
#   STEP is a step's name or a pattern, such as clippy or '*@mesa'; without one, all run. What a step needs (set-up,
#   build) runs before it.
#   TEST@DRIVER is tests/driver_*.rs under the validation layer; TEST@DRIVER+threads is the same with more driver
#   threads than cores, so that several workgroups are resident at once.
#
# Logs stay in target/test-logs. The last line is "N passed, N failed": tests, and each failed step that counts none.
set -uo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root" || exit 1

cpu_drivers=(swiftshader mesa mesa-stock)
threads=8
# Tests whose bars on time hold only while threads and cores are as many, and those of faults that one worker shows.
not_with_threads=' driver_hang driver_faults '

declare -A limits=( # seconds after which a step is ended; [test] is for each test binary that is not named
  [setup]=300 [fetch]=300 [fmt]=60 [clippy]=600 [clippy-default]=300 [doc]=300 [build]=900 [doctest]=300 [loom]=600
  [test]=300
)

export CARGO_MANIFEST_DIR=$root # as cargo has it for tests, some of which run in another working directory here
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}
export RUST_BACKTRACE=1
drivers_dir=${ABIDE_DRIVERS_DIR:-$root/target/drivers}
PATH=$drivers_dir/tools/usr/bin:$PATH # spirv-val
logs=$root/target/test-logs
mkdir -p "$logs"

integration_tests() {
  local file
  for file in tests/*.rs; do
    [ ! -e "$file" ] || basename "$file" .rs
  done
}

all_steps() {
  local test driver
  printf '%s\n' setup fetch fmt clippy clippy-default doc build lib bin
  integration_tests | grep -v -e '^driver_' -e '_loom$'
  printf '%s\n' doctest loom
  for driver in "${cpu_drivers[@]}"; do
    for test in $(integration_tests | grep '^driver_'); do
      echo "$test@$driver"
      [[ $not_with_threads == *" $test "* ]] || echo "$test@$driver+threads"
    done
  done
}

driver_of() { # TEST@DRIVER[+threads]
  local driver=${1#*@}
  echo "${driver%+threads}"
}

needs() { # STEP: what must run before it
  case $1 in
    setup | fetch | fmt) ;;
    clippy | clippy-default | doc | build) echo fetch ;;
    doctest | loom) echo setup fetch ;;
    *) echo setup fetch build ;;
  esac
}

select_steps() { # sets steps: those that match a wanted pattern, and what they need, in order
  local step pattern take=' '
  for step in $(all_steps); do
    for pattern in "${wanted[@]}"; do
      # shellcheck disable=SC2053
      [[ $step != $pattern ]] || take+="$step $(needs "$step") "
    done
  done
  steps=()
  for step in $(all_steps); do
    [[ $take != *[[:space:]]"$step"[[:space:]]* ]] || steps+=("$step")
  done
}

if ! scripts/setup.sh --supported; then cpu_drivers=(system); fi

wanted=()
for argument; do
  case $argument in
    --list) all_steps && exit ;;
    -*) sed -n '2,/^set /s/^#  \{0,1\}//p' "$0" >&2 && exit 2 ;;
    *) wanted+=("$argument") ;;
  esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=('*')
select_steps
[ ${#steps[@]} -gt 0 ] || { echo "test: no such step: ${wanted[*]} (see scripts/test.sh --list)" >&2; exit 2; }

passed=0 failed=0 child=
summary=()
trap 'kill $child 2>/dev/null; exit 130' INT TERM

report() { # STEP RESULT: one line, kept for the summary
  summary+=("$(printf '%-9s %s' "$2" "$1")${3:+  ($3)}")
}

run() { # STEP COMMAND...: runs it within the step's limit; its log is shown if it fails
  local step=$1 log=$logs/$1.log limit=${limits[$1]:-${limits[${1%@*}]:-${limits[test]}}}
  local began=$SECONDS status=0 why='' took counts ok bad ignored tests
  shift
  printf '%-44s' "$step"
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null &
  child=$!
  wait $child || status=$?
  child=
  took=$((SECONDS - began))
  counts=$(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.*/\1 \2 \3/p' "$log" |
    awk '{ p += $1; f += $2; i += $3; tests = 1 } END { print p + 0, f + 0, i + 0, tests + 0 }')
  read -r ok bad ignored tests <<<"$counts"
  passed=$((passed + ok))
  failed=$((failed + bad))
  case $status in
    0) ;;
    124 | 137) why="step $step was ended at its limit of $limit s" ;;
    *) why="exit status $status" ;;
  esac
  if [ -z "$why" ] && [ "$tests" -gt 0 ] && [ "$((ok + bad + ignored))" -eq 0 ]; then
    why='it ran no tests'
  fi
  if [[ $step == *@* ]] && grep -qE 'Validation Error|VUID-' "$log"; then
    why="${why:+$why; }validation errors"
  fi
  if [ "$why" ]; then
    [ "$bad" -gt 0 ] || failed=$((failed + 1))
    printf 'FAILED %4d s  %s\n' $took "$why"
    printf -- '--- %s\n' "$log"
    tail -n 300 "$log"
    printf -- '\n--- end of %s: %s\n' "$step" "$why"
    report "$step" FAILED "$why"
    [ $status -ne 0 ] || status=1
    return $status
  fi
  printf 'ok     %4d s' $took
  [ "$tests" -eq 0 ] || printf '  %3d passed' "$ok"
  [ "$ignored" -eq 0 ] || printf ', %d ignored' "$ignored"
  echo
  report "$step" ok "$took s"
}

setup() {
  local step sets=(tools)
  if [ "${cpu_drivers[*]}" = system ]; then
    report setup skipped 'not Debian 12 on x86-64: driver tests run on the installed driver only'
    return
  fi
  for step in "${steps[@]}"; do
    [[ $step != *@* ]] || sets+=("$(driver_of "$step")")
  done
  run setup scripts/setup.sh "${sets[@]}"
}

declare -A executable=()
build() { # all test binaries, and notes where they are
  local kind name path
  # shellcheck disable=SC2016
  run build sh -c 'exec cargo --locked test --features cli --no-run --message-format=json-render-diagnostics >"$0"' \
    "$logs/build.json" || return
  while read -r kind name path; do
    case $kind in
      lib | bin) executable[$kind]=$path ;;
      test) executable[$name]=$path ;;
    esac
  done < <(test_executables <"$logs/build.json")
}

test_binary() { # STEP
  local driver more='' path=${executable[${1%@*}]:-}
  if [ -z "$path" ]; then
    report "$1" 'not run' 'not built'
  elif [[ $1 != *@* ]]; then
    run "$1" "$path"
  else
    driver=$(driver_of "$1")
    if [ "$driver" != system ] && [ ! -e "$drivers_dir/$driver/icd.json" ]; then
      report "$1" 'not run' 'its driver could not be brought'
      return
    fi
    [[ $1 != *+threads ]] || more=$threads
    # One test at a time: all devices of a process share the CPU driver's threads.
    ABIDE_VALIDATION=1 ABIDE_DRIVER_THREADS=$more \
      run "$1" scripts/with-driver.sh "$driver" "$path" --test-threads=1
  fi
}

for step in "${steps[@]}"; do
  case $step in
    setup) setup ;;
    fetch) run fetch cargo fetch --locked || break ;;
    fmt) run fmt cargo fmt --check ;;
    # With rust-version set, clippy's incompatible_msrv refuses what the oldest supported Rust lacks.
    clippy) run clippy cargo --locked clippy --all-targets --features cli -- -D warnings ;;
    clippy-default) run clippy-default cargo --locked clippy --all-targets -- -D warnings ;;
    doc) RUSTDOCFLAGS=-Dwarnings run doc cargo --locked doc --no-deps --features cli ;;
    build) build || break ;;
    doctest) run doctest cargo --locked test --doc --features cli ;;
    loom) # everything is built anew for it, so only what it runs is optimised
      RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=$root/target/loom \
        run loom cargo --locked --config 'profile.dev.package."*".opt-level=0' \
        --config 'profile.dev.package.loom.opt-level=2' --config 'profile.dev.package.generator.opt-level=2' \
        test $(integration_tests | sed -n 's/.*_loom$/--test &/p')
      ;;
    *) test_binary "$step" ;;
  esac
done

printf '\n%s steps of %s in %d s\n' ${#summary[@]} ${#steps[@]} $SECONDS
printf '%s\n' "${summary[@]}"
printf '%d passed, %d failed\n' $passed $failed
[ $failed -eq 0 ]
