#!/usr/bin/env bash
# Prints how many instructions a link of a chain takes, in forward and in backward, without a region and under policies;
# or how many a whole step of train_gpt's model takes, in one region and in a region a block:
#
#   benchmarks/count_instructions.sh [FOLDER]     keeps callgrind's files there, for callgrind_annotate
#   benchmarks/count_instructions.sh --gpt [FOLDER]     a step of GPT, its optimizer included
#   AC2_OPS=cos AC2_POLICIES="none recompute_all" benchmarks/count_instructions.sh     only these
#   AC2_CHAIN_SECTIONS=/a/chain_sections benchmarks/count_instructions.sh     of that program, instead of building it
#                                                (AC2_GPT_SECTIONS with --gpt)
#   AC2_GPT_SEQUENCES=8 benchmarks/count_instructions.sh --gpt     a step of 8 sequences, as train_gpt has; by default 1
#
# Unlike times these hardly differ from run to run, whatever else the machine does; another LibTorch, compiler or processor
# changes them. See chain_sections.cc and gpt_sections.cc. About three minutes.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=tools/install_packages.sh
. tools/install_packages.sh
install_packages count_instructions "valgrind: callgrind counts instructions"
command -v valgrind >/dev/null || { echo "count_instructions: no valgrind found" >&2; exit 1; }

gpt=
if [ "${1-}" = --gpt ]; then
  gpt=1
  shift
fi
if [ $# -gt 0 ]; then
  folder="$1"
  mkdir -p "$folder"
else
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
fi

# program NAME VARIABLE: that in the variable, or the one of this folder.
program() {
  if [ -z "${!2-}" ]; then
    ./bazelw build "//benchmarks:$1" >&2
    printf 'bazel-bin/benchmarks/%s\n' "$1"
  else
    printf '%s\n' "${!2}"
  fi
}

# count PROGRAM ARGUMENT ARGUMENT [ARGUMENT]: the instructions of each section, per link. A process each: what the heap looks like
# costs, too.
count() {
  local files="$folder/$2.$3"
  rm -f "$files".*
  valgrind --tool=callgrind --callgrind-out-file="$files" --toggle-collect=counted_section \
    --dump-after=counted_section "$1" "${@:2}" >"$files.sections" 2>"$files.log" ||
    { cat "$files.log" >&2; exit 1; }
  # Section N is in FILES.N.
  local section=0 name length
  while read -r name length; do
    section=$((section + 1))
    awk -v length_of="$length" '/^totals:/ { printf "%d\n", $2 / length_of }' "$files.$section"
  done <"$files.sections"
}

if [ -n "$gpt" ]; then
  sections="$(program gpt_sections AC2_GPT_SECTIONS)"
  printf '%-6s %-15s %14s %8s\n' region policy step '+ %'
  for region in step block; do
    for policy in ${AC2_POLICIES-none auto 1024GiB must_save_all}; do
      # Without a region there is nothing for it to lie around.
      [ "$policy" = none ] && [ -n "${plain-}" ] && continue
      counted="$(count "$sections" "$policy" "$region" "${AC2_GPT_SEQUENCES-1}")"
      [ -n "$counted" ] || exit 1
      [ "$policy" = none ] && plain="$counted"
      printf '%-6s %-15s %14d %8s\n' "$region" "$policy" "$counted" \
        "$(awk -v a="$counted" -v b="${plain:?none has to be the first policy}" 'BEGIN { printf "%+.2f", 100 * (a - b) / b }')"
    done
  done
  exit
fi

sections="$(program chain_sections AC2_CHAIN_SECTIONS)"
printf '%-4s %-15s %9s %7s %9s %7s\n' op policy forward + backward +
# `none` is first: what the others add is counted from it.
for op in ${AC2_OPS-cos mul}; do
  for policy in ${AC2_POLICIES-none recompute_all must_save_all 1024GiB}; do
    mapfile -t counts < <(count "$sections" "$op" "$policy")
    [ "${#counts[@]}" = 2 ] || exit 1
    [ "$policy" = none ] && plain=("${counts[@]}")
    printf '%-4s %-15s %9d %+7d %9d %+7d\n' "$op" "$policy" "${counts[0]}" $((counts[0] - plain[0])) \
      "${counts[1]}" $((counts[1] - plain[1]))
  done
done
