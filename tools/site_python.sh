#!/usr/bin/env bash
# Prints the path of a Python that has what docs/site/requirements.txt lists:   tools/site_python.sh
# Installs it once, into ~/.cache/ac2/site-pythonVERSION, and again where the list has changed. Safe to run in parallel.
# Environment: PYTHON (default python3, which needs venv), AC2_CACHE.
set -euo pipefail
requirements="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../docs/site/requirements.txt"
python="${PYTHON:-python3}"
version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
environment="${AC2_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/ac2}/site-python$version"
mkdir -p "$(dirname "$environment")"
exec 9>"$environment.lock"
flock 9
if ! cmp --silent "$requirements" "$environment/requirements.txt"; then
  echo "site_python: installing what docs/site/requirements.txt lists into $environment" >&2
  "$python" -m venv --clear "$environment" >&2
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir -r "$requirements" >&2
  cp "$requirements" "$environment/requirements.txt"
fi
echo "$environment/bin/python"
