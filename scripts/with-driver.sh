#!/usr/bin/env bash
# Runs a command on one Vulkan driver, with spirv-val and glslangValidator on its PATH.
#
# Usage: scripts/with-driver.sh (swiftshader|mesa|mesa-stock|system) COMMAND [ARGUMENT]...
#
# system is the machine's own driver; if it has no loader (libvulkan.so.1), a downloaded one is used. What is missing of
# the others is downloaded first (scripts/setup.sh). The command sees the driver's name in ABIDE_TEST_DRIVER.
#
# ABIDE_VALIDATION=1      with the Khronos validation layer
# ABIDE_DRIVER_THREADS=N  N threads in a CPU driver instead of one for each core, so that as many workgroups are resident
#                         at once. SwiftShader reads this from a file in the working directory only: there COMMAND
#                         runs in a folder under target, and so do the programs that `cargo test` and `cargo run`
#                         start. Relative paths in its ARGUMENTs don't hold then.
# ABIDE_DRIVERS_DIR       see setup.sh
#
# Exit status: the command's; 1 set-up failed; 2 usage; 3 this driver cannot be had on this system.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
drivers=${ABIDE_DRIVERS_DIR:-$root/target/drivers}
lib=usr/lib/x86_64-linux-gnu
threads=${ABIDE_DRIVER_THREADS:-}

usage() {
  echo 'usage: with-driver.sh (swiftshader|mesa|mesa-stock|system) COMMAND [ARGUMENT]...' >&2
  exit 2
}
[ $# -ge 2 ] || usage
driver=$1
shift
[[ $threads =~ ^[0-9]*$ ]] || { echo "with-driver: ABIDE_DRIVER_THREADS is no number: $threads" >&2; exit 2; }

need() { "$root/scripts/setup.sh" "$@" || exit; }
prepend() { # VARIABLE DIRECTORY...
  local IFS=:
  export "$1=${*:2}${!1:+:${!1}}"
}
loader_there() { [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) == *libvulkan.so.1* ]]; }
layer_there() {
  local file
  for file in {/etc,/usr/share,/usr/local/share,/usr/local/etc}/vulkan/explicit_layer.d/VkLayer_khronos_validation.json; do
    [ ! -e "$file" ] || return 0
  done
  return 1
}
use_tools() {
  prepend LD_LIBRARY_PATH "$drivers/tools/$lib"
  prepend PATH "$drivers/tools/usr/bin"
  export VK_LAYER_PATH=$drivers/tools/usr/share/vulkan/explicit_layer.d
}

case $driver in
  swiftshader)
    need tools swiftshader
    ;;
  mesa | mesa-stock)
    need tools "$driver"
    # libexpat lies in lib, not in usr/lib
    prepend LD_LIBRARY_PATH "$drivers/$driver/$lib" "$drivers/mesa-libs/$lib" "$drivers/mesa-libs/lib/x86_64-linux-gnu"
    ;;
  system)
    if ! loader_there || { [ "${ABIDE_VALIDATION:-}" = 1 ] && ! layer_there; }; then
      if "$root/scripts/setup.sh" tools; then
        use_tools
      else
        echo 'with-driver: going on with what is installed' >&2
      fi
    fi
    ;;
  *) usage ;;
esac
if [ "$driver" != system ]; then
  use_tools
  export VK_DRIVER_FILES=$drivers/$driver/icd.json VK_ICD_FILENAMES=$drivers/$driver/icd.json
  export VK_LOADER_LAYERS_DISABLE='~implicit~' # the system's device-select layer gets in otherwise
  export MESA_SHADER_CACHE_DIR=$root/target/mesa-shader-cache # lavapipe takes seconds to compile a kernel
  unset VK_ADD_DRIVER_FILES VK_INSTANCE_LAYERS VK_ADD_LAYER_PATH DISPLAY WAYLAND_DISPLAY
fi
if [ "${ABIDE_VALIDATION:-}" = 1 ]; then
  export VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation
fi
export ABIDE_TEST_DRIVER=$driver

if [ "$threads" ]; then
  export LP_NUM_THREADS=$threads # lavapipe
  if [ "$driver" = swiftshader ]; then
    directory=$root/target/swiftshader-$threads-threads
    mkdir -p "$directory"
    printf '[Processor]\nThreadCount=%s\n' "$threads" >"$directory/SwiftShader.ini"
    if [ "${1##*/}" = cargo ]; then
      [[ $directory != *[[:space:]]* ]] || { echo "with-driver: cargo's runner cannot hold a path with spaces: $directory" >&2; exit 1; }
      export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env -C $directory"
    else
      [[ $1 != */* ]] || set -- "$(realpath "$1")" "${@:2}"
      cd "$directory"
    fi
  fi
fi
exec "$@"
