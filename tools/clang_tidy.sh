#!/usr/bin/env bash
# Lints files with the repository's .clang-tidy:   tools/clang_tidy.sh ac2/policy.cc ...
# Needs clang-tidy, and one ./bazelw build before it (that is what finds LibTorch).
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
libtorch="$(./bazelw info output_base 2>/dev/null)/external/libtorch/include"
[ -d "$libtorch" ] || { echo "clang_tidy.sh: run ./bazelw build //ac2 first" >&2; exit 1; }
# "12345 warnings generated" counts those of LibTorch's headers, which are not shown.
clang-tidy --quiet "$@" -- -std=c++20 -I. -isystem "$libtorch" -isystem "$libtorch/torch/csrc/api/include" \
  2> >(grep -v ' warnings generated\.$' >&2)
