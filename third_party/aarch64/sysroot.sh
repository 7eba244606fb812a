#!/usr/bin/env bash
# Prints the directory with what a build for aarch64 needs of the distribution and LibTorch has not: abseil, zlib, GoogleTest,
# Google Benchmark, nlohmann-json, Python, and the libraries with which a program starts.
#
#   third_party/aarch64/sysroot.sh
#
# They are packages of Debian for arm64, fetched once with apt's own signatures and dependencies and unpacked into
# ~/.cache/ac2 (60 MB to download, 120 MB on disk). Nothing of this machine's packages is changed, and root is not needed.
# Headers of C and C++ are not among them: the cross compiler brings its own. Safe to run twice or in parallel.
# Environment: AC2_CACHE.
set -euo pipefail

packages=(
  libabsl-dev
  libbenchmark-dev
  libgmock-dev
  libgtest-dev
  libpython3-dev
  libstdc++6
  nlohmann-json3-dev
  python3
  zlib1g-dev
)
# What they depend on and must not be found before the cross compiler's own.
left_out='^(libc6-dev|libc-dev-bin|linux-libc-dev|libcrypt-dev|libnsl-dev|libtirpc-dev|rpcsvc-proto|libjs-.*|dpkg|tar)_'

fail() {
  echo "aarch64 sysroot: $*" >&2
  exit 1
}

# shellcheck disable=SC1091
release="$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}")"
cache="${AC2_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/ac2}"
dest="$cache/sysroot-aarch64-${release:-unknown}"
wanted="$(printf '%s\n' "${packages[@]}" "$left_out" "links name files of the directory; a processor")"
mkdir -p "$cache"
exec 9>"$dest.lock"
flock 9
if [ "$(cat "$dest/.complete" 2>/dev/null)" != "$wanted" ]; then
  for program in apt-get dpkg; do
    command -v "$program" >/dev/null ||
      fail "no $program: it is made of packages of Debian or Ubuntu. Elsewhere unpack libraries for aarch64 into $dest" \
        "and write what this script has in \$wanted into $dest/.complete."
  done
  echo "fetching packages for arm64 into $dest" >&2
  rm -rf "$dest.part"
  mkdir -p "$dest.part/.apt/state/lists/partial" "$dest.part/.apt/cache/archives/partial"
  apt="$dest.part/.apt"
  : >"$apt/status"
  # This machine's sources and keys, with a state of its own in which nothing is installed.
  cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Acquire::Languages "none";
APT::Sandbox::User "root";
Debug::NoLocking "true";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
END
  export APT_CONFIG="$apt/apt.conf" DEBIAN_FRONTEND=noninteractive
  apt-get -qq update </dev/null >&2 || echo "aarch64 sysroot: apt-get update had errors, see above" >&2
  apt-get -qq install -y --download-only "${packages[@]}" </dev/null >&2 ||
    fail "apt has no packages for arm64: ${packages[*]}. Ubuntu has them in other sources (ports.ubuntu.com)."
  for deb in "$apt"/cache/archives/*.deb; do
    [[ "$(basename "$deb")" =~ $left_out ]] || dpkg -x "$deb" "$dest.part"
  done
  rm -rf "$apt"
  # Links to files of the root are to name those of this directory.
  find "$dest.part" -type l -lname '/*' | while read -r link; do
    target="$dest.part$(readlink "$link")"
    [ ! -e "$target" ] || ln -srf "$target" "$link"
  done
  # LibTorch asks the kernel about the processor, and dies where it reads of another kind: the emulator shows this machine's
  # files unless the directory has others. A Neoverse N1 with as many cores as this machine has.
  mkdir -p "$dest.part/proc" "$dest.part/sys/devices/system/cpu/cpu0/regs/identification"
  echo 0x00000000413fd0c1 >"$dest.part/sys/devices/system/cpu/cpu0/regs/identification/midr_el1"
  for ((cpu = 0; cpu < $(nproc); ++cpu)); do
    cat <<END
processor	: $cpu
BogoMIPS	: 50.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x3
CPU part	: 0xd0c
CPU revision	: 1

END
  done >"$dest.part/proc/cpuinfo"
  echo "$wanted" >"$dest.part/.complete"
  rm -rf "$dest"
  mv "$dest.part" "$dest"
fi
echo "$dest"
