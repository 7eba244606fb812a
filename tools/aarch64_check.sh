#!/usr/bin/env bash
# Builds for aarch64 on another machine and runs there by qemu-user what must hold: slow, and not a part of CI.
#
#   tools/aarch64_check.sh                   all parts
#   tools/aarch64_check.sh codes tests       these
#
#   codes       what quantize_ops packs: written here and read there, written there and read here, and both are equal
#   tests       tests of recording, replay, regions, policies, memory, modules, faults, packing
#   random      random programs, and such on several threads
#   programs    quickstart; train_gpt has with regions the losses that it has without
#   wheel       a wheel of the Python package, made by CMake's toolchain, and imported by Debian's Python for arm64
#
# Ends with "N passed, N failed, N skipped" of the tests if they ran, and fails if anything failed. CONTRIBUTING.md says how
# long it takes. Environment:
#   AC2_TESTS="//tests/replay/..."    other tests, as Bazel's patterns
#   AC2_SEEDS=2000                    random programs of each kind
#   AC2_QEMU=max                      the processor (third_party/aarch64/run.sh)
#   WHEELS=/somewhere                 where the wheel is put, by default nowhere
#   BUILDS=/somewhere                 where the wheel's CMake tree is kept, so that the next one compiles less
#   CMAKE_BUILD_TYPE=Debug            compiles the wheel's library without optimising it
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
. tools/install_packages.sh
install_packages aarch64_check "g++-aarch64-linux-gnu: the cross compiler" "qemu-user: runs what it makes" \
  "cmake: the wheel's build system" "ninja-build: the same"

parts=("$@")
[ $# -gt 0 ] || parts=(codes tests random programs wheel)
for part in "${parts[@]}"; do
  case "$part" in
    codes | tests | random | programs | wheel) ;;
    *) echo "aarch64_check: no part \"$part\"; there are codes, tests, random, programs and wheel" >&2; exit 2 ;;
  esac
done

here=(--config=quick)                     # compiles in the least time
there=(--config=quick --config=aarch64)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

emulated() { third_party/aarch64/run.sh "$@"; }
# Whether an emulated program can start another: the dynamic loader is a program that needs no library.
kernel_runs_aarch64() { "$(third_party/aarch64/sysroot.sh)/lib/ld-linux-aarch64.so.1" --version >/dev/null 2>&1; }
# built LABEL: builds it for aarch64 and prints the program's path.
built() {
  ./bazelw build "${there[@]}" "$1" >&2
  local bin label="${1#//}"
  bin="$(./bazelw info "${there[@]}" bazel-bin 2>/dev/null)"
  echo "$bin/${label/://}"
}

codes() {
  local test=//tests/packing:packed_bytes_test
  ./bazelw build "${here[@]}" "$test" >&2
  cp "$(./bazelw info "${here[@]}" bazel-bin 2>/dev/null)/tests/packing/packed_bytes_test" "$work/packed_bytes_test"
  "$work/packed_bytes_test" "--write=$work/from_here"
  emulated "$(built "$test")" "--read=$work/from_here" "--write=$work/from_there"
  "$work/packed_bytes_test" "--read=$work/from_there"
  cmp "$work/from_here" "$work/from_there"
  echo "codes: $(stat -c %s "$work/from_here") bytes, the same from both machines, and each reads the other's"
}

tests() {
  local patterns
  read -ra patterns <<<"${AC2_TESTS:-//tests/record/... //tests/replay/... //tests/region/... //tests/policy/... //tests/memory/... \
//tests/allocator/... //tests/benchmarks/... //tests/budget/... //tests/eviction/... //tests/following/... //tests/libtorch/... \
//tests/locks/... //tests/planning/... //tests/nn/... //tests/faults/... //tests/packing/...}"
  local chosen all="tests(set(${patterns[*]}))" left_out
  left_out="attr(tags, 'not_emulated', $all)"
  if ! kernel_runs_aarch64; then
    local starting="attr(data, '\[.+\]', $all)"
    echo "aarch64_check: left out, for they start other programs and this kernel runs none for aarch64" \
      "(Debian: qemu-user-static):" >&2
    ./bazelw query "$starting" >&2 2>/dev/null
    left_out+=" union $starting"
  fi
  mapfile -t chosen < <(./bazelw query "$all except ($left_out)" 2>/dev/null)
  [ "${#chosen[@]}" -gt 0 ] || { echo "aarch64_check: no tests in ${patterns[*]}" >&2; return 1; }
  ./bazelw test --keep_going "${there[@]}" "--build_event_json_file=$work/events" "${chosen[@]}" </dev/null || true
  python3 tools/test_summary.py "$work/events" >"$work/summary" || { cat "$work/summary"; return 1; }
}

random() {
  local name program
  for name in random_programs_test random_threads_test; do
    program="$(built "//tests/fuzz:$name")"
    emulated "$program" "--seeds=${AC2_SEEDS:-2000}"
  done
}

programs() {
  local program policy
  emulated "$(built //examples:quickstart)"
  program="$(built //examples:train_gpt)"
  for policy in none recompute_all save_compute_intensive; do
    # Small: the emulator computes some hundred million floating-point operations in a second.
    emulated "$program" --steps=20 --sample=0 --layers=2 --dim=32 --heads=2 --context=32 --batch=4 "--policy=$policy" |
      tee "$work/$policy"
    grep -oE 'loss [0-9.]+' "$work/$policy" >"$work/$policy.losses"  # of each step, three digits of it
    cmp "$work/none.losses" "$work/$policy.losses"
    # The table's last column has all digits, after the last step, with this policy and without.
    awk '/^\| (none|recompute_all|save_compute_intensive) .*MiB/ {print $(NF - 1)}' "$work/$policy" >>"$work/exact"
  done
  [ "$(wc -l <"$work/exact"):$(sort -u "$work/exact" | wc -l)" = 5:1 ] || { echo "aarch64_check: losses differ:" >&2; cat "$work/exact" >&2; return 1; }
  echo "programs: quickstart runs, and train_gpt has the losses of plain training"
}

wheel() {
  local home version packages wheels="${WHEELS:-$work/wheels}"
  home="$(AC2_MACHINE=aarch64 third_party/libtorch/find_libtorch.sh | sed -n 1p)"
  version="$(sed -n "s/^__version__ = '\([^+']*\).*/\1/p" "$home/version.py")"
  packages="$(third_party/aarch64/python_packages.sh "$home")"
  # The build backend runs in the Python for arm64, so that the wheel is named for it; the compiler that it starts does not.
  mkdir -p "$wheels"
  PYTHONPATH="$(dirname "$home"):$packages" LIBTORCH_HOME="$home" \
    CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE:-Release} -DCMAKE_CXX_FLAGS_DEBUG=-DNDEBUG" \
    third_party/aarch64/python.sh -c "
import scikit_build_core.build as backend
print(backend.build_wheel('$wheels', {'build-dir': '${BUILDS:-$work}/aarch64', 'cmake.build-type': '${CMAKE_BUILD_TYPE:-Release}'}))"
  mkdir "$work/site"
  python3 -m zipfile -e "$wheels"/*.whl "$work/site"
  local libraries
  libraries="$(compgen -G "$packages/nvidia/*/lib" | paste -sd: || true)"
  PYTHONPATH="$work/site:$(dirname "$home"):$packages" LD_LIBRARY_PATH="$libraries" third_party/aarch64/python.sh -W ignore -c "
import platform, torch, ac2
assert platform.machine() == 'aarch64' and torch.__version__.startswith('$version')
assert ac2.__file__.startswith('$work/site'), ac2.__file__
x = torch.randn(64, requires_grad=True)
with ac2.PolicyScope('recompute_all') as scope:
    loss = x.sin().cos().exp().sum()
loss.backward()
plain, = torch.autograd.grad(x.sin().cos().exp().sum(), x)
assert torch.equal(x.grad, plain) and scope.trace.stats().recomputed_ops == 3, scope.trace.stats()
print('wheel: imported by Python', platform.python_version(), 'on', platform.machine(), 'with torch', torch.__version__)"
  ls "$wheels"
}

for part in "${parts[@]}"; do
  start="$SECONDS"
  echo "=== $part" >&2
  "$part"
  echo "=== $part: $((SECONDS - start)) s" >&2
done
[ ! -e "$work/summary" ] || cat "$work/summary"
