#!/usr/bin/env bash
# Finds the LibTorch to build with and prints two lines, its directory and its version ("2.15.0", "2.11.0+cu130"):
#
#   find_libtorch.sh [--series 2.15] [--no-fetch] [PREFIX...]
#
#   1. $LIBTORCH_HOME: a directory with include/ and lib/, an unpacked LibTorch archive or .../site-packages/torch;
#      else the first PREFIX that is one
#   2. the torch package of $PYTHON (default python3), not imported, if it is in the range of versions.txt
#   3. the pinned wheel in ${AC2_CACHE:-${XDG_CACHE_HOME:-~/.cache}/ac2}, fetched if it is not there
#
# AC2_LIBTORCH_VERSION=2.11.0, or 2.11, is the only one to take in 2 and 3, by default any in 2 and the newest in 3.
# AC2_MACHINE=aarch64 is the machine to build for, by default this one: a LibTorch for another is not taken.
# --series takes no other minor release; --no-fetch fetches nothing. What is wrong is said on standard error. Bazel
# (libtorch_configure.bzl) and CMake (FindLibTorch.cmake) both call this.
set -euo pipefail
here="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"

series=""
fetch=1
while [ $# -gt 0 ]; do
  case "$1" in
    --series) series="$2"; shift ;;
    --no-fetch) fetch="" ;;
    *) break ;;
  esac
  shift
done

mapfile -t versions < <(grep -v '^#' "$here/versions.txt")
newest="${versions[-1]}"
range="ac2 works with LibTorch ${versions[0]%.*} to ${newest%.*}, and with 2.6 built with the C++11 ABI"

machine="${AC2_MACHINE:-$(uname -m)}"

fail() { echo "$*" >&2; exit 1; }
series_of() { sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$1"; }

# The pinned version that $AC2_LIBTORCH_VERSION or --series names.
asked="${AC2_LIBTORCH_VERSION:-}"
pinned="$newest"
if [ -n "$asked$series" ]; then
  pinned=""
  for version in "${versions[@]}"; do
    [ "$version" = "${asked:-$series}" ] || [ "${version%.*}" = "${asked:-$series}" ] || continue
    pinned="$version"
  done
  [ -n "$pinned" ] || [ -z "$asked" ] ||
    fail "AC2_LIBTORCH_VERSION=$asked is none of the versions that ac2 can fetch: ${versions[*]}. Ask for one of them, or" \
      "set LIBTORCH_HOME to a directory with include/ and lib/."
fi

usable() { [ -n "$1" ] && [ -e "$1/include/ATen/ATen.h" ] && [ -e "$1/lib/libtorch_cpu.so" ]; }

# version HOME: with what follows the numbers, if that is known.
version_in() {
  local home="$1" header numbers
  if [ -e "$home/version.py" ]; then
    sed -n "s/^__version__ = '\(.*\)'/\1/p" "$home/version.py"
  elif [ -e "$home/build-version" ]; then
    head -n 1 "$home/build-version"
  else
    for header in torch/headeronly/version.h torch/csrc/api/include/torch/version.h; do
      [ -e "$home/include/$header" ] || continue
      numbers="$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$home/include/$header" | paste -sd.)"
      [ -z "$numbers" ] || { echo "$numbers"; return; }
    done
  fi
}

in_range() {
  local its_series
  its_series="$(series_of "$1")"
  [ "$(printf '%s\n' "${versions[0]%.*}" "$its_series" "${newest%.*}" | sort -V | sed -n 2p)" = "$its_series" ]
}
# machine_of HOME: as `uname -m` names it; nothing if the library does not say, or says one that ac2 has not been tried on.
machine_of() {
  case "$(od -An -tx1 -j18 -N2 "$1/lib/libtorch_cpu.so" 2>/dev/null | tr -d ' ' || true)" in
    3e00) echo x86_64 ;;
    b700) echo aarch64 ;;
  esac
}
# The wheels of PyPI have it from 2.7 on; 2.6 can be built with it.
has_cxx11_abi() { grep -q '_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string' "$1/lib/libc10.so"; }

# why_not HOME: what speaks against it, as an error says it; nothing if nothing does.
why_not() {
  local home="$1" version its_series its_machine
  usable "$home" || { echo "has no include/ATen/ATen.h or no lib/libtorch_cpu.so"; return; }
  version="$(version_in "$home")"
  its_series="$(series_of "$version")"
  its_machine="$(machine_of "$home")"
  if [ -n "$its_machine" ] && [ "$its_machine" != "$machine" ]; then
    echo "is LibTorch $version for $its_machine: this build is for $machine"
  elif ! in_range "$version" && [ "$its_series" != 2.6 ]; then
    echo "is LibTorch $version: $range"
  elif [ -n "$series" ] && [ "$its_series" != "$series" ]; then
    echo "is LibTorch $version: ac2 was built with LibTorch $series, and needs one of that. Take a LibTorch $series, or the" \
      "package of ac2 for LibTorch $its_series"
  elif [ -n "$asked" ] && [[ $version != "$pinned" && $version != "$pinned"+* ]]; then
    echo "is LibTorch $version: AC2_LIBTORCH_VERSION asks for $pinned"
  elif ! has_cxx11_abi "$home"; then
    echo "is LibTorch $version built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), which ac2 cannot be linked to. The" \
      "wheels of PyPI have the new one from 2.7 on: $range"
  fi
}

found() {
  readlink -f "$1"
  version_in "$1"
  exit 0
}

# What the user has named is taken, or an error.
for home in "${LIBTORCH_HOME:-}" "$@"; do
  [ -n "$home" ] || continue
  [ "$home" = "${LIBTORCH_HOME:-}" ] || usable "$home" || continue
  reason="$(why_not "$home")"
  [ -z "$reason" ] || fail "LIBTORCH_HOME=$home $reason."
  found "$home"
done

python="${PYTHON:-$(command -v python3 || true)}"
if [ -n "$python" ]; then
  home="$("$python" -c 'import importlib.util as u; print(list(u.find_spec("torch").submodule_search_locations)[0])' \
    2>/dev/null || true)"
  if [ -n "$home" ]; then
    reason="$(why_not "$home")"
    [ -n "$reason" ] || found "$home"
    echo "not taken: the torch of $python, $home $reason." >&2
  fi
fi

if [ -n "$pinned" ] && home="$(bash "$here/fetch_libtorch.sh" ${fetch:+--fetch} "$pinned")"; then
  found "$home"
fi
[ -z "$series" ] || range="this ac2 was built with LibTorch $series, and needs one of that"
fail "No LibTorch was found. Set LIBTORCH_HOME to a directory with include/ and lib/ (an unpacked LibTorch, or" \
  ".../site-packages/torch), or pip install torch==${pinned:-$series.*}: $range."
