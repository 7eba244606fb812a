#!/usr/bin/env bash
# Prints how many instructions a link of a chain takes, in forward and in backward, without a region and under policies:
#
#   benchmarks/count_instructions.sh [FOLDER]     keeps callgrind's files there, for callgrind_annotate
#
# Unlike times these are the same on every run, whatever else the machine does; only another LibTorch, compiler or kernel
# for another processor changes them. See chain_sections.cc. About two minutes.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=tools/install_packages.sh
. tools/install_packages.sh
install_packages count_instructions "valgrind: callgrind counts instructions"
command -v valgrind >/dev/null || { echo "count_instructions: no valgrind found" >&2; exit 1; }

if [ $# -gt 0 ]; then
  folder="$1"
  mkdir -p "$folder"
else
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
fi
rm -f "$folder"/callgrind.*

./bazelw build //benchmarks:chain_sections
valgrind --tool=callgrind --callgrind-out-file="$folder/callgrind" --toggle-collect=counted_section \
  --dump-after=counted_section bazel-bin/benchmarks/chain_sections >"$folder/sections" 2>"$folder/log" ||
  { cat "$folder/log" >&2; exit 1; }

# Section N is in callgrind.N.
awk '
  FNR == NR { op[NR] = $1; policy[NR] = $2; part[NR] = $3; length_of[NR] = $4; sections = NR; next }
  /^totals:/ { n = FILENAME; sub(/.*\./, "", n); per_link[n] = $2 / length_of[n] }
  END {
    printf "%-4s %-15s %9s %7s %9s %7s\n", "op", "policy", "forward", "+", "backward", "+"
    for (n = 1; n < sections; n += 2) {
      if (policy[n] == "none") { forward = per_link[n]; backward = per_link[n + 1] }
      printf "%-4s %-15s %9d %+7d %9d %+7d\n", op[n], policy[n], per_link[n], per_link[n] - forward, \
        per_link[n + 1], per_link[n + 1] - backward
    }
  }' "$folder/sections" $(printf "$folder/callgrind.%d\n" $(seq "$(wc -l <"$folder/sections")"))
