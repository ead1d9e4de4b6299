#!/usr/bin/env bash
# Packs the release binary, the driver tests, the benchmarks, a Vulkan loader and the tools that tests use into one
# folder, to be run on a GPU machine that has no Rust: copy the folder there and start its run.sh (scripts/gpu-run.sh,
# which says what it runs).
#
# Usage: scripts/gpu.sh pack DIR     DIR is made, or emptied if an earlier pack made it
#
# A test that is to run there must not need the source tree: env!("CARGO_MANIFEST_DIR") and
# env!("CARGO_BIN_EXE_abide") name paths of this machine. run.sh sets CARGO_MANIFEST_DIR to DIR and ABIDE_BIN to the
# packed binary. The machine needs glibc of this machine's version or newer.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
limit_mb=80

if [ $# -ne 2 ] || [ "$1" != pack ]; then
  echo 'usage: scripts/gpu.sh pack DIR' >&2
  exit 2
fi
mkdir -p "$2"
directory=$(cd "$2" && pwd)
if [ -n "$(ls -A "$directory")" ] && [ ! -e "$directory/run.sh" ]; then
  echo "gpu: $directory holds something else; name an empty folder" >&2
  exit 2
fi

cd "$root"
scripts/setup.sh tools
cargo build --locked --release --features cli
messages=$(cargo test --locked --release --features cli --tests --benches --no-run --message-format=json-render-diagnostics)

rm -rf "${directory:?}"/*
mkdir "$directory/bin" "$directory/lib" "$directory/tests" "$directory/benches"
tools=${ABIDE_DRIVERS_DIR:-$root/target/drivers}/tools/usr
cp -L "$tools/lib/x86_64-linux-gnu/libvulkan.so.1" "$directory/lib"
cp "$tools"/bin/{glslangValidator,spirv-as,spirv-val} "$directory/bin" # some tests compile or check with them
cp target/release/abide "$directory"
cp scripts/gpu-run.sh "$directory/run.sh"
while read -r kind name path; do
  case $kind:$name in
    test:driver_*) cp "$path" "$directory/tests/$name" ;;
    bench:*) cp "$path" "$directory/benches/$name" ;;
  esac
done < <(test_executables <<<"$messages")
find "$directory/abide" "$directory/tests" "$directory/benches" -type f -exec strip {} +

megabytes=$(du -sm "$directory" | cut -f 1)
find "$directory" -type f -printf '%P\n' | sort
echo "gpu: $megabytes MB in $directory"
if [ "$megabytes" -gt $limit_mb ]; then
  echo "gpu: more than $limit_mb MB" >&2
  exit 1
fi
