#!/usr/bin/env bash
# Prints how many instructions a link of a chain takes, in forward and in backward, without a region and under policies:
#
#   benchmarks/count_instructions.sh [FOLDER]     keeps callgrind's files there, for callgrind_annotate
#   AC2_OPS=cos AC2_POLICIES="none recompute_all" benchmarks/count_instructions.sh     only these
#   AC2_CHAIN_SECTIONS=/a/chain_sections benchmarks/count_instructions.sh     of that program, instead of building it
#
# Unlike times these hardly differ from run to run, whatever else the machine does; another LibTorch, compiler or processor
# changes them. See chain_sections.cc. About three minutes.
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

if [ -z "${AC2_CHAIN_SECTIONS-}" ]; then
  ./bazelw build //benchmarks:chain_sections
  AC2_CHAIN_SECTIONS=bazel-bin/benchmarks/chain_sections
fi

# count OP POLICY: the instructions of each section, per link. A process each: what the heap looks like costs, too.
count() {
  local files="$folder/$1.$2"
  rm -f "$files".*
  valgrind --tool=callgrind --callgrind-out-file="$files" --toggle-collect=counted_section \
    --dump-after=counted_section "$AC2_CHAIN_SECTIONS" "$1" "$2" >"$files.sections" 2>"$files.log" ||
    { cat "$files.log" >&2; exit 1; }
  # Section N is in FILES.N.
  local section=0 name length
  while read -r name length; do
    section=$((section + 1))
    awk -v length_of="$length" '/^totals:/ { printf "%d\n", $2 / length_of }' "$files.$section"
  done <"$files.sections"
}

printf '%-4s %-15s %9s %7s %9s %7s\n' op policy forward + backward +
# `none` is first: what the others add is counted from it.
for op in ${AC2_OPS-cos mul}; do
  for policy in ${AC2_POLICIES-none recompute_all must_save_all 1024GiB}; do
    mapfile -t counts < <(count "$op" "$policy")
    [ "${#counts[@]}" = 2 ] || exit 1
    [ "$policy" = none ] && plain=("${counts[@]}")
    printf '%-4s %-15s %9d %+7d %9d %+7d\n' "$op" "$policy" "${counts[0]}" $((counts[0] - plain[0])) \
      "${counts[1]}" $((counts[1] - plain[1]))
  done
done
