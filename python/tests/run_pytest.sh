#!/usr/bin/env bash
# Runs one file of tests with the package that Bazel has built. Writes what test_summary.py counts.
set -euo pipefail
root="$PWD"
python="$root/external/local_python/python"
[ -e "$python" ] || python="$root/../local_python/python"
test="$1"
export AC2_PACKAGES="$root/python"  # see conftest.py
cd "${TEST_TMPDIR:-/tmp}"
exec "$python" -B -m pytest -q -p no:cacheprovider --rootdir "$root/python/tests" \
  ${XML_OUTPUT_FILE:+--junitxml="$XML_OUTPUT_FILE"} "$root/$test"
