#!/usr/bin/env bash
# Runs what scripts/gpu.sh packed beside this file on the machine's GPU, each run within its own time limit.
#
# Usage: DIR/run.sh OUT [PATTERN]...     only the runs whose names match a pattern, such as latency or 'driver_*'
#
# OUT gets summary.txt and a few logs. A file that ends in .json has standard output alone; the rest goes to stderr.log.
# What the machine lacks of loader and tools is taken from this folder.
#
# VK_DRIVER_FILES     the driver's manifest; otherwise those that drivers install are tried
# ABIDE_TEST_SECONDS  the most that a test or benchmark binary may take, 300 by default
#
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
for workers in 1 8 33 66 132 528; do
  runs+=("latency-$workers 120 workers.log ./abide bench latency --json --workers $workers")
done
test_seconds=${ABIDE_TEST_SECONDS:-300}
for test in tests/*; do
  [ ! -x "$test" ] || runs+=("${test#*/} $test_seconds tests.log ./$test --test-threads=1")
done
for bench in benches/*; do
  [ ! -x "$bench" ] || runs+=("${bench#*/} $test_seconds benches.log ./$bench --bench")
done

export ABIDE_TEST_DRIVER=system ABIDE_BIN=$here/abide CARGO_MANIFEST_DIR=$here RUST_BACKTRACE=1
PATH=$PATH:$here/bin

# The packed loader stands behind one that is installed, and the packed tools behind theirs.
loader=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | sed -nE 's/.*libvulkan\.so\.1 .*=> //p' | head -n 1)
[ "$loader" ] || export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -d /usr/local/nvidia/lib64 ]; then
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64
fi

rm -f "$out"/{summary.txt,stderr.log,demo.log,tests.log,benches.log,workers.log}
say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }
use_manifest() { # FILE: only if it gives a device
  local -x VK_DRIVER_FILES=$1 VK_ICD_FILENAMES=$1
  timeout -k 10 60 ./abide doctor --json >/dev/null 2>>"$out/stderr.log" </dev/null && manifest=$1
}

# The loader looks into the first two folders of its own accord, but finds software drivers there as well.
manifest=${VK_DRIVER_FILES:-}
for icd in {/usr/share/vulkan,/etc/vulkan,/usr/local/nvidia/share/vulkan}/icd.d/nvidia_icd*.json; do
  if [ -z "$manifest" ] && [ -e "$icd" ] && ! use_manifest "$icd"; then
    say "no device by $icd: see stderr.log"
    # Its library needs GLVND's, which machines without a display lack. The same driver is in one that doesn't.
    egl=$scratch/egl_${icd##*/}
    sed 's/libGLX_nvidia/libEGL_nvidia/' "$icd" >"$egl"
    ! use_manifest "$egl" || say 'but by libEGL_nvidia in place of libGLX_nvidia'
  fi
done
[ -z "$manifest" ] || export VK_DRIVER_FILES=$manifest VK_ICD_FILENAMES=$manifest
say "driver manifest: ${manifest:-as the loader finds it}"
say "loader: ${loader:-the packed one}"

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
