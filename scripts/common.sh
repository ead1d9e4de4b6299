# shellcheck shell=bash
# Sourced by the scripts that build: a cargo, the repository's root, one target folder whatever the user's settings say.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export CARGO_TARGET_DIR=$root/target
[ ! -d "${HOME:-/root}/.cargo/bin" ] || PATH=$PATH:${HOME:-/root}/.cargo/bin
if ! command -v cargo >/dev/null; then
  echo "${0##*/}: cargo is not installed; get Rust from https://rustup.rs and run this again" >&2
  exit 1
fi

# From cargo's JSON messages on stdin, a line "KIND NAME PATH" for each test, bench or unit-test executable.
test_executables() {
  sed -nE '/"overflow_checks":[a-z]+,"test":true/s/.*"target":\{"kind":\["([a-z-]+)".*"name":"([^"]+)","src_path".*"executable":"([^"]+)".*/\1 \2 \3/p'
}
