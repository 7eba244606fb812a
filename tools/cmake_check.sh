#!/usr/bin/env bash
# What CI runs of the CMake build: the library, a few tests, and the installed package with a program that uses it.
#
#   tools/cmake_check.sh RESULT.xml     CTest's results as JUnit XML; not written if something does not build
#
# All tests build with -DAC2_BUILD_TESTS=ON, but compiling them a second time would take CI longer than all else. That
# CMake knows every test that Bazel knows is compared by name.
set -euo pipefail
result="$(realpath -m "${1:?usage: tools/cmake_check.sh RESULT.xml}")"
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
. tools/install_packages.sh

# Quick to compile and to run; what they link covers the library, the policies and the tests' own libraries.
tests=(
  tests/benchmarks/budget_simulator_test
  tests/eviction/evictor_test
  tests/policy/policies_test
  tests/replay/replay_test
)

install_packages cmake_check "cmake: the build system" "ninja-build: the same"
command -v cmake >/dev/null || { echo "cmake_check: no CMake found; install cmake and ninja-build" >&2; exit 1; }

build="$(mktemp -d)"
trap 'rm -rf "$build"' EXIT
# Nothing here waits for an optimiser. Rejected: the library file by file, and all files without precompiled headers, which
# finds a forgotten #include and took 15 of CI's 90 minutes. That is checked before a release (CONTRIBUTING.md).
cmake -G Ninja -S . -B "$build" -DAC2_BUILD_TESTS=ON -DAC2_UNITY_BUILD=ON \
  -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -DNDEBUG"

diff <(./bazelw query 'tests(//tests/...)' 2>/dev/null | sed 's|^//||; s|:|/|' | sort) \
  <(ctest --test-dir "$build" -N | sed -n 's|^ *Test *#[0-9]*: \(tests/.*\)|\1|p' | sort) ||
  { echo "cmake_check: Bazel (<) and CMake (>) know different tests" >&2; exit 1; }

# What pip compiles besides the library, which is below. Two files that give different things the same name do not compile
# there. Rejected: to link it, for which the library would be compiled once more; tools/wheel does before a release.
if ./bazelw query //python:binding >/dev/null 2>&1; then  # there is a Python for this LibTorch
  cmake -G Ninja -S . -B "$build/unity" -DAC2_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$(command -v "${PYTHON:-python3}")" \
    -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -DNDEBUG"
  cmake --build "$build/unity" --target python/CMakeFiles/ac2_python.dir/Unity/unity_python_binding_cxx.cxx.o
fi

cmake --build "$build" --target ac2 ac2_run ac2_linked "${tests[@]##*/}"
chosen="$(printf '%s|' "${tests[@]}")"
ctest --test-dir "$build" --output-on-failure --output-junit "$result" -R "^(${chosen}package/.*)\$"
