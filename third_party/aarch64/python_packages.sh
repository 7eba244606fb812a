#!/usr/bin/env bash
# Prints the directory with the packages that the Python for arm64 needs to import the torch of a LibTorch for aarch64, and
# the build backend of wheels:
#
#   third_party/aarch64/python_packages.sh LIBTORCH_HOME
#
# From PyPI, installed once into ~/.cache/ac2 by this machine's pip. A torch with CUDA, as PyPI's from 2.11 on, loads its
# CUDA libraries even to compute on a CPU: some 3 GB to download. Safe to run twice or in parallel. Environment: PYTHON, AC2_CACHE.
set -euo pipefail
home="${1:?usage: third_party/aarch64/python_packages.sh LIBTORCH_HOME}"
torch="$(sed -n "s/^__version__ = '\([^+']*\).*/\1/p" "$home/version.py")"
python="$("$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/python.sh" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
dest="${AC2_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/ac2}/python-$python-torch${torch%.*}-for-aarch64"
exec 9>"$dest.lock"
flock 9
if [ ! -e "$dest/.complete" ]; then
  rm -rf "$dest"
  mkdir "$dest"
  # Those of its requirements that are not for compiling on a GPU. Markers would be read for this machine.
  { sed -n 's/^Requires-Dist: //p' "$(dirname "$home")/torch-$torch"*.dist-info/METADATA |
      grep -vE 'extra ==|platform_machine == "x86_64"|^(triton|cuda-bindings)\b'
    echo numpy
    echo "scikit-build-core>=0.10"; } >"$dest/requirements.txt"
  platforms=(--platform any --platform manylinux2014_aarch64)
  for minor in {17..28}; do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
  echo "aarch64: installing into $dest what torch $torch needs" >&2
  "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --root-user-action=ignore \
    --target "$dest" --only-binary=:all: --implementation cp --python-version "$python" --abi "cp${python/./}" --abi abi3 --abi none \
    "${platforms[@]}" -r "$dest/requirements.txt" >&2
  touch "$dest/.complete"
fi
echo "$dest"
