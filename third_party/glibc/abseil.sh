#!/usr/bin/env bash
# Prints the prefix of an abseil that can become a part of a library which runs with glibc 2.28:
#
#   third_party/glibc/abseil.sh STUBS      STUBS: what stubs.sh prints
#
# It is the distribution's abseil, built from the distribution's source package as a static library, once, into ~/.cache/ac2. The
# archives of libabsl-dev are not made for shared libraries, and use functions of this machine's glibc. Root is not needed, and
# nothing of this machine's packages is changed. Safe to run twice or in parallel.
# Environment: AC2_CACHE.
set -euo pipefail
here="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
stubs="${1:?usage: abseil.sh STUBS}"
fail() {
  echo "glibc abseil: $*" >&2
  exit 1
}
version="$(dpkg-query -W -f '${Version}' libabsl-dev 2>/dev/null)" || fail "libabsl-dev is not installed. On Debian or Ubuntu:" \
  "sudo apt-get install -y libabsl-dev"
cache="${AC2_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/ac2}"
dest="$cache/abseil-$version-$(basename "$stubs")"
wanted="$(cat "${BASH_SOURCE[0]}" "$stubs/.complete" "$here/older.h" | sha256sum)"
mkdir -p "$cache"
exec 9>"$dest.lock"
flock 9
if [ "$(cat "$dest/.complete" 2>/dev/null)" != "$wanted" ]; then
  echo "building abseil $version into $dest" >&2
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  # The places that this machine's packages come from, asked for their sources, with a state of its own.
  mkdir -p "$work/apt/state/lists/partial" "$work/apt/cache/archives/partial" "$work/apt/sources"
  apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Identifier: Packages' 'Component: main' \
    'Origin: Debian' | sort -u >"$work/apt/sources.list"
  apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Identifier: Packages' 'Origin: Ubuntu' |
    sort -u >>"$work/apt/sources.list"
  cat >"$work/apt.conf" <<END
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
Dir::State "$work/apt/state";
Dir::Cache "$work/apt/cache";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "$work/apt/sources";
END
  export APT_CONFIG="$work/apt.conf"
  apt-get -qq update </dev/null >&2 || echo "glibc abseil: apt-get update had errors, see above" >&2
  (cd "$work" && apt-get -qq source "abseil=$version" </dev/null >&2) || fail "apt has no source of abseil $version"
  unset APT_CONFIG
  source="$(echo "$work"/abseil-*/CMakeLists.txt)"
  cmake -S "$(dirname "$source")" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 -DCMAKE_CXX_EXTENSIONS=OFF \
    "-DCMAKE_CXX_FLAGS=-include $here/older.h" -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    "-DCMAKE_EXE_LINKER_FLAGS=-B$stubs -L$stubs -Wl,--allow-shlib-undefined" -DABSL_ENABLE_INSTALL=ON -DABSL_PROPAGATE_CXX_STD=ON \
    -DBUILD_TESTING=OFF -DCMAKE_INSTALL_LIBDIR=lib "-DCMAKE_INSTALL_PREFIX=$dest.part" >&2
  cmake --build "$work/build" -j2 >&2
  rm -rf "$dest.part"
  cmake --install "$work/build" >/dev/null
  echo "$wanted" >"$dest.part/.complete"
  rm -rf "$dest"
  mv "$dest.part" "$dest"
fi
echo "$dest"
