#!/usr/bin/env bash
# Runs what scripts/gpu.sh packed beside this file on the machine's GPU, each run within its own time limit.
#
# Usage: DIR/run.sh OUT [PATTERN]...     only the runs whose names match a pattern, such as latency or 'driver_*'
#
# OUT gets summary.txt and a few logs. A file that ends in .json has standard output alone; the rest goes to stderr.log.
# Exit status: 0 all well; 1 a run failed; 2 usage.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# -eq 0 ]; then
  echo 'usage: run.sh OUT [PATTERN]...' >&2
  exit 2
fi
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$here" || exit 1

# name, seconds at most, file in OUT, command
runs=(
  "doctor   120 doctor.json   ./abide doctor --json"
  "latency  300 latency.json  ./abide bench latency --json"
  "demo     300 demo.log      ./abide demo --out $scratch/demo"
)
test_seconds=300
for test in tests/*; do
  [ ! -x "$test" ] || runs+=("${test#*/} $test_seconds tests.log ./$test --test-threads=1")
done
for bench in benches/*; do
  [ ! -x "$bench" ] || runs+=("${bench#*/} $test_seconds benches.log ./$bench --bench")
done

export ABIDE_TEST_DRIVER=system ABIDE_BIN=$here/abide CARGO_MANIFEST_DIR=$here RUST_BACKTRACE=1
if [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) != *libvulkan.so.1* ]]; then
  export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
# The loader looks into the first two of its own accord, but finds software drivers there as well.
for folder in /usr/share/vulkan /etc/vulkan /usr/local/nvidia/share/vulkan; do
  for icd in "$folder"/icd.d/nvidia_icd*.json; do
    [ -e "$icd" ] || continue
    export VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd
    break 2
  done
done
if [ -d /usr/local/nvidia/lib64 ]; then
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64
fi

wanted() { # NAME PATTERN...
  local pattern
  [ $# -gt 1 ] || return 0
  for pattern in "${@:2}"; do
    # shellcheck disable=SC2053
    [[ $1 != $pattern ]] || return 0
  done
  return 1
}

bad=0
rm -f "$out"/{summary.txt,stderr.log,demo.log,tests.log,benches.log}
say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }
say "driver manifest: ${VK_DRIVER_FILES:-as the loader finds it}"
for run in "${runs[@]}"; do
  read -r name limit file command <<<"$run"
  wanted "$name" "$@" || continue
  read -ra command <<<"$command"
  began=$SECONDS status=0
  case $file in
    *.json)
      echo "== $name" >>"$out/stderr.log"
      timeout -k 10 "$limit" "${command[@]}" >"$out/$file" 2>>"$out/stderr.log" </dev/null || status=$?
      ;;
    *)
      echo "== $name" >>"$out/$file"
      timeout -k 10 "$limit" "${command[@]}" >>"$out/$file" 2>&1 </dev/null || status=$?
      ;;
  esac
  case $status in
    0) result=ok ;;
    124 | 137) result="FAILED: ended at its limit of $limit s" ;;
    *) result="FAILED: exit status $status" ;;
  esac
  [ $status -eq 0 ] || bad=1
  say "$(printf '%-32s %4d s  %s  (%s)' "$name" $((SECONDS - began)) "$result" "$file")"
done
exit $bad
