#!/usr/bin/env bash
# Brings software Vulkan drivers, a loader, validation layers and SPIR-V tools as Debian packages, checked against the
# distribution's signed SHA256 sums and unpacked under target/drivers. Nothing outside that folder changes, and no
# rights are needed.
#
# Usage: scripts/setup.sh [SET]... | --supported
#   tools        loader, validation layers, spirv-val, glslangValidator
#   swiftshader  the driver inside Debian's chromium-common
#   mesa         lavapipe of Mesa 25, from the backports suite
#   mesa-stock   lavapipe of Mesa 22.3
#   Without SET: all. What is there already is left alone. --supported only says by its exit status, 0 or 3, whether
#   this system can have them.
#
# ABIDE_DRIVERS_DIR  where the sets live instead of target/drivers, so that several checkouts can share them
#
# Exit status: 0 all there; 1 at least one set failed (the others are still made); 2 usage;
#              3 not Debian 12 on x86-64, where nothing can be brought: use the system's own driver.
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
drivers=${ABIDE_DRIVERS_DIR:-$root/target/drivers}
libdir=usr/lib/x86_64-linux-gnu

# A set is unpacked anew when its line here changes. mesa-libs is what both Mesa sets stand on.
declare -A packages=(
  [tools]='libvulkan1 vulkan-validationlayers spirv-tools glslang-tools'
  [swiftshader]='chromium-common'
  [mesa]='mesa-vulkan-drivers/bookworm-backports libdrm2/bookworm-backports'
  [mesa-stock]='mesa-vulkan-drivers libdrm2'
  [mesa-libs]='libllvm15 libedit2 libbsd0 libz3-4 libxml2 libicu72 libexpat1 libxcb1 libxau6 libxdmcp6
    libxcb-dri3-0 libxcb-present0 libxcb-randr0 libxcb-shm0 libxcb-sync1 libxcb-xfixes0 libx11-xcb1 libxshmfence1
    libwayland-client0'
)
declare -A library=(
  [tools]=$libdir/libvulkan.so.1
  [swiftshader]=usr/lib/chromium/libvk_swiftshader.so
  [mesa]=$libdir/libvulkan_lvp.so
  [mesa-stock]=$libdir/libvulkan_lvp.so
)

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$2"; exit "$1"; }

supported() {
  local system
  # shellcheck disable=SC1091
  system=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_CODENAME:-}") || true
  [ "$system $(uname -m)" = 'debian bookworm x86_64' ] && command -v apt-get dpkg-deb >/dev/null
}

is_there() { [ "$(cat "$drivers/$1/.recipe" 2>/dev/null)" = "${packages[$1]}" ]; }

missing() { # SET...: prints those that are not there
  local set
  for set; do is_there "$set" || echo "$set"; done
}

# The private apt: own lists, cache and sources, the machine's mirror, proxies, credentials and package status.
prepare_apt() {
  local uris main security keyring=/usr/share/keyrings/debian-archive-keyring.gpg options='arch=amd64 target=Packages'
  uris=$(apt-get update --print-uris 2>/dev/null) || true
  mirror_of() { sed -nE "s#^'([^']+)/dists/(bookworm|oldstable|stable)$1/InRelease' .*#\1#p" <<<"$uris" | head -n 1; }
  main=$(mirror_of '') security=$(mirror_of -security)
  if [ -z "$main" ]; then
    say "apt names no mirror for Debian 12 (bookworm) on this machine. Add one to /etc/apt/sources.list, such that" \
      "'apt-get update --print-uris' shows a line with dists/bookworm/InRelease, and run this again."
    return 1
  fi
  [ ! -r $keyring ] || options+=" signed-by=$keyring"
  {
    echo "deb [$options] $main bookworm main"
    [ -z "$security" ] || echo "deb [$options] $security bookworm-security main"
  } >"$work/main.list"
  { cat "$work/main.list" && echo "deb [$options] $main bookworm-backports main"; } >"$work/backports.list"

  mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
  local suites
  for suites in main backports; do
    cat >"$work/$suites.conf" <<CONF
Dir::State "$work/state";
Dir::State::Lists "$work/state/lists";
Dir::State::Status "$(apt-config shell f Dir::State::Status/f | sed "s/^f='\(.*\)'$/\1/")";
Dir::Cache "$work/cache";
Dir::Cache::Archives "$work/cache/archives";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Etc::SourceList "$work/$suites.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
#clear APT::Default-Release;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
  done
}

apt_get() { # SUITES ARGUMENT...
  timeout --foreground -k 5 300 apt-get -qq -c "$work/$1.conf" "${@:2}"
}

update() { # SUITES: fetches the lists of packages
  apt_get "$1" --error-on=any update && return
  say "the package lists ($1) cannot be fetched: see apt's message above. Check the network, the proxy and the mirror" \
    "in /etc/apt, and run this again."
  return 1
}

fetch() { # SET: downloads its packages, checks them, unpacks them
  local set=$1 new=$work/$1 suites=main deb started=$SECONDS
  local -a names
  read -rd '' -a names <<<"${packages[$set]}" || true
  if [ "$set" = mesa ]; then # their end or failure costs this set alone
    suites=backports
    update $suites || return 1
  fi
  mkdir -p "$new/debs" "$new/root" && cd "$new/debs" || return 1
  apt_get $suites download --print-uris "${names[@]}" |
    sed -nE "s/^'[^']*' ([^ ]+) [0-9]+ SHA256:([0-9a-f]{64})$/\2  \1/p" >"$new/root/SHA256SUMS" || return 1
  if [ "$(wc -l <"$new/root/SHA256SUMS")" -ne ${#names[@]} ]; then
    say "$set: the mirror does not have all of: ${names[*]}"
    return 1
  fi
  if ! apt_get $suites download "${names[@]}" || ! sha256sum --quiet --strict -c "$new/root/SHA256SUMS"; then
    say "$set: a download failed or does not have its signed SHA256 sum; run this again."
    return 1
  fi
  for deb in *.deb; do
    if [ "$set" = swiftshader ]; then # 5 MB of chromium's 65
      dpkg-deb --fsys-tarfile "$deb" | tar -x --no-same-owner -C "$new/root" "./${library[$set]}"
    else
      dpkg -x "$deb" "$new/root"
    fi || { say "$set: $deb cannot be unpacked (disk full?)"; return 1; }
  done
  if [ "${library[$set]:-}" ] && [ ! -e "$new/root/${library[$set]}" ]; then
    say "$set: the packages no longer hold ${library[$set]}"
    return 1
  fi
  case $set in swiftshader | mesa | mesa-stock)
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "./%s", "api_version": "1.3.0"}}\n' \
      "${library[$set]}" >"$new/root/icd.json" || return 1
    ;;
  esac
  # The stamp is written last and the set moved as a whole: an interrupted run leaves nothing half made.
  printf '%s\n' "${packages[$set]}" >"$new/root/.recipe" || return 1
  rm -rf "${drivers:?}/$set" && mv "$new/root" "$drivers/$set" || return 1
  rm -rf "$new"
  say "$set: ready ($((SECONDS - started)) s)"
}

[[ $drivers = /* ]] || die 2 "ABIDE_DRIVERS_DIR must be an absolute path: $drivers"
if [ "${1:-}" = --supported ]; then
  supported || exit 3
  exit 0
fi
[ $# -gt 0 ] || set -- tools swiftshader mesa mesa-stock
sets=()
for set; do
  case $set in
    tools | swiftshader) sets+=("$set") ;;
    mesa | mesa-stock) sets+=(mesa-libs "$set") ;;
    *) die 2 "no such set: $set (tools, swiftshader, mesa, mesa-stock)" ;;
  esac
done
mapfile -t sets < <(missing "${sets[@]}")
[ ${#sets[@]} -gt 0 ] || exit 0

supported || die 3 "this is not Debian 12 on x86-64; skipped: ${sets[*]}"
case $drivers in
  *[:\"]*) die 1 "the path $drivers has a colon or a quotation mark in it, which library search paths cannot hold; move the checkout or set ABIDE_DRIVERS_DIR" ;;
esac
mkdir -p "$drivers" || die 1 "cannot make $drivers; set ABIDE_DRIVERS_DIR to a folder that you may write"
exec 9>"$drivers/.lock"
if ! flock -n 9; then
  say 'another setup is at work here; waiting for it'
  flock -w 900 9 || die 1 'the other setup has not ended within 15 minutes; end it and run this again'
fi
mapfile -t sets < <(missing "${sets[@]}" | awk '!seen[$0]++')
[ ${#sets[@]} -gt 0 ] || exit 0

work=$drivers/.work # names the mirror, so it does not stay
trap 'cd / && rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
rm -rf "$work"
mkdir -p "$work"
say "bringing ${sets[*]} into $drivers"
prepare_apt && update main || exit 1
failed=()
for set in "${sets[@]}"; do fetch "$set" || failed+=("$set"); done
[ ${#failed[@]} -eq 0 ] || die 1 "failed: ${failed[*]}"
