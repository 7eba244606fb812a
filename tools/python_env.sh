#!/usr/bin/env bash
# Prints the command that starts a Python which can import the torch of a LibTorch, quoted for the shell:
#
#   tools/python_env.sh LIBTORCH_HOME         env LD_LIBRARY_PATH=... PYTHONPATH=... .../bin/python
#   tools/python_env.sh --check               nothing; fails if there is no Python with venv
#
# What it takes to import torch (some 3 GB where that is the pinned wheel: torch loads its CUDA libraries even to compute
# on a CPU), NumPy, pytest, transformers and torchvision, whose models are tested, and libraries that ac2.integrations is
# tested with are installed once into ~/.cache/ac2/python-VERSION-torchVERSION, never into the repository. What an
# environment lacks is added to it. Safe to run twice or in parallel.
# Exits with 2 if there is no such Python. Environment: PYTHON (default python3, which needs venv), AC2_CACHE.
set -euo pipefail
home="${1:?usage: tools/python_env.sh LIBTORCH_HOME}"

fail() {
  echo "python_env: $*" >&2
  exit 1
}
# There is no Python for this LibTorch, which is no fault of anybody's.
none() {
  echo "python_env: $*" >&2
  exit 2
}

python="${PYTHON:-python3}"
command -v "$python" >/dev/null || none "no Python found as \"$python\"; install python3, or set PYTHON"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  none "$python has no venv; install python3-venv, or set PYTHON to a Python that has it"
[ "$home" != --check ] || exit 0
version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
torch="$(sed -n "s/^__version__ = '\([^+']*\).*/\1/p" "$home/version.py" 2>/dev/null || true)"
minor="${torch#*.}"
minor="${minor%%.*}"
compgen -G "$home/_C.cpython-${version/./}-*.so" >/dev/null ||
  none "$home is no torch for Python $version: set PYTHON to the Python that it is for, or LIBTORCH_HOME to the torch of $python"

environment="${AC2_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/ac2}/python-$version-torch${torch%.*}"
# Machines of two kinds may share a home.
[ "$(uname -m)" = x86_64 ] || environment+="-$(uname -m)"
packages="$(dirname "$home")"
mkdir -p "$(dirname "$environment")"
exec 9>"$environment.lock"
flock 9

"$environment/bin/python" -c '' 2>/dev/null || "$python" -m venv --clear "$environment" >&2 ||
  fail "cannot make a venv in $environment"

with_torch() {
  local libraries site="$environment/lib/python$version/site-packages"
  # cuSPARSELt of CUDA 12.6 lies beside the others.
  libraries="$(compgen -G "$site/nvidia/*/lib"; compgen -G "$site/cusparselt/lib" || true)"
  libraries="${libraries:+${libraries//$'\n'/:}:}"  # none beside a torch without CUDA
  command=(env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH-}" "PYTHONPATH=$packages"
    "PYTHONPYCACHEPREFIX=$environment/pycache" "$environment/bin/python")
}
# It compiles what it installs where Python looks for it, see with_torch.
pip_install() {
  PYTHONPYCACHEPREFIX="$environment/pycache" "$environment/bin/python" -m pip install --quiet \
    --disable-pip-version-check --no-cache-dir "$@" >&2
}
# Of ac2.integrations; with what they need besides. Those are left out that are large or need others of another version:
# datasets (trl's trainers), torchtune, torchtitan, DeepSpeed, Megatron.
libraries="accelerate diffusers lightning peft timm trl"
# Its subclasses of tensors are tested. It was tried with torch 2.11 and 2.15.
[ "$minor" -lt 11 ] || libraries+=" torchao"
helpers="lightning-utilities psutil requests"
works() {
  with_torch
  # To import the libraries would take half a minute.
  "${command[@]}" -W ignore -c "
import importlib.util, numpy, pytest, torch, torchvision, transformers
missing = [name for name in '$libraries lightning_utilities torchmetrics'.split() if not importlib.util.find_spec(name)]
assert not missing, 'not installed: ' + ', '.join(missing)
assert torch.__version__.split('+')[0] == '$torch', 'torch is ' + torch.__version__ + ', LibTorch is $torch'"
}

if ! works 2>/dev/null; then
  # Those of its requirements that are not for compiling on a GPU.
  { sed -n 's/^Requires-Dist: //p' "$packages/torch-$torch"*.dist-info/METADATA |
      grep -vE 'extra ==|^(triton|cuda-bindings)\b'
    echo numpy
    echo pytest
    echo pillow
    echo transformers
    tr ' ' '\n' <<<"$helpers"; } >"$environment/requirements.txt"
  echo "python_env: installing into $environment what torch $torch needs" >&2
  pip_install -r "$environment/requirements.txt" || fail "pip could not install what torch $torch needs"
  # torchvision's newest for this torch or an older one. These require a torch to be installed, which is elsewhere.
  # shellcheck disable=SC2086
  pip_install --no-deps "torchvision<0.$((minor + 16))" torchmetrics $libraries ||
    fail "pip could not install torchvision for torch $torch, or one of torchmetrics $libraries"
  works || fail "torch $torch cannot be imported in $environment; see above"
fi
printf '%q ' "${command[@]}"
echo
