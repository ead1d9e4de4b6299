#!/usr/bin/env bash
# Builds abide and runs its main job: textures streamed through a kernel that stays on the GPU.
#
# Usage: scripts/demo.sh [IMAGE]... [--out DIR]     (everything goes to `abide demo`; see `scripts/demo.sh --help`)
#
# It runs on the machine's GPU where there is one with a Vulkan driver, otherwise on a downloaded software driver.
# ABIDE_DRIVER=(swiftshader|mesa|mesa-stock|system) overrules that choice.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cargo build --locked --release --features cli --manifest-path "$root/Cargo.toml"
abide=$root/target/release/abide

has_gpu() {
  local report
  report=$(timeout -k 5 120 "$root/scripts/with-driver.sh" system "$abide" doctor --json 2>/dev/null) || true
  [[ $report =~ \"device_type\":\ *\"(discrete|integrated|virtual|other)\" ]]
}

choose_driver() { # prints its name
  local driver status
  if has_gpu; then
    echo system
    return
  fi
  for driver in mesa swiftshader; do
    status=0
    "$root/scripts/setup.sh" tools $driver || status=$?
    case $status in
      0) echo $driver && return ;;
      3) echo system && return ;; # nothing can be brought here: whatever is installed
    esac
  done
  echo 'demo: no GPU with a Vulkan driver here, and no software driver could be brought' >&2
  return 1
}

driver=${ABIDE_DRIVER:-}
[ "$driver" ] || driver=$(choose_driver)
echo "demo: on the Vulkan driver '$driver'" >&2
exec "$root/scripts/with-driver.sh" "$driver" "$abide" demo "$@"
