# cmake -D... -P package_test.cmake NAME: one of the tests of package_tests.cmake.
cmake_minimum_required(VERSION 3.22)
math(EXPR last "${CMAKE_ARGC} - 1")
set(test "${CMAKE_ARGV${last}}")
# With ALONE, neither abseil nor zlib is found.
if(ALONE)
  set(alone -DCMAKE_DISABLE_FIND_PACKAGE_absl=ON -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON)
endif()
# Beside the build tree: from here nothing leads into it.
set(work "${BUILD}/package_test")
set(prefix "${work}/moved")

# Fails the test unless the command succeeds (`expected` "") or fails and its output matches `expected`. Its output is in
# `output`.
function(run expected)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${work}" RESULT_VARIABLE failed
    OUTPUT_VARIABLE out ERROR_VARIABLE err)
  # CMake breaks messages into lines.
  string(REGEX REPLACE "[ \n]+" " " output "${out}${err}")
  set(output "${output}" PARENT_SCOPE)
  if(expected STREQUAL "" AND failed)
    message(FATAL_ERROR "${ARGN}: ${failed}\n${out}${err}")
  elseif(NOT expected STREQUAL "" AND NOT failed)
    message(FATAL_ERROR "${ARGN}: succeeded, but should fail with: ${expected}\n${out}${err}")
  elseif(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${ARGN}: does not say: ${expected}\n${out}${err}")
  endif()
endfunction()

set(consumer_source "${SOURCE}/examples/cmake_consumer")

function(configure_consumer expected build)
  file(REMOVE_RECURSE "${work}/${build}")
  run("${expected}" "${CMAKE_COMMAND}" -E env --unset=LIBTORCH_HOME ${ENVIRONMENT}
    "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${consumer_source}" -B "${work}/${build}"
    "-DCMAKE_PREFIX_PATH=${prefix};${PREFIX_PATH}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_BUILD_TYPE=${CONFIG}" ${alone} ${ARGN})
endfunction()

if(test STREQUAL "installs_what_can_be_moved")
  file(REMOVE_RECURSE "${work}")
  file(MAKE_DIRECTORY "${work}")
  run("" "${CMAKE_COMMAND}" --install "${BUILD}" --config "${CONFIG}" --prefix "${work}/installed")
  file(RENAME "${work}/installed" "${prefix}")
  file(GLOB in_include RELATIVE "${prefix}/include" "${prefix}/include/*")
  if(NOT in_include STREQUAL "ac2")
    message(FATAL_ERROR "include/ has ${in_include}, but should have the folder ac2 and nothing else.")
  endif()
  file(GLOB_RECURSE package "${prefix}/*.cmake")
  list(LENGTH package files)
  if(files LESS 5)  # Config, ConfigVersion, Targets, Targets-<config>, FindLibTorch
    message(FATAL_ERROR "Too few files in the package: ${package}")
  endif()
  foreach(file IN LISTS package)
    file(READ "${file}" text)
    foreach(path "${BUILD}" "${SOURCE}" "${LIBTORCH_HOME}" "${work}")
      string(FIND "${text}" "${path}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${file} names a path of this machine: ${path}")
      endif()
    endforeach()
  endforeach()
elseif(test STREQUAL "consumer_builds_and_runs")
  configure_consumer("" consumer "-DLIBTORCH_HOME=${LIBTORCH_HOME}")
  run("" "${CMAKE_COMMAND}" --build "${work}/consumer" --config "${CONFIG}")
  find_program(consumer consumer PATHS "${work}/consumer" "${work}/consumer/${CONFIG}" NO_DEFAULT_PATH REQUIRED)
  run("" "${consumer}")
  if(NOT output MATCHES "weights equal, [1-9][0-9]* ops recomputed")
    message(FATAL_ERROR "The consumer printed: ${output}")
  endif()
  message("${output}")
elseif(test STREQUAL "consumer_knows_policies_by_name")
  # The program names no function of ac2::policies: the linker must take the table of names out of the archive anyway.
  set(consumer_source "${work}/by_name_source")
  file(WRITE "${consumer_source}/main.cc" "#include <c10/util/Exception.h>\n\n#include <iostream>\n\n#include \"ac2/scope.h\"\n
int main() {
  { ac2::PolicyScope scope(\"speed\"); }
  try {
    ac2::Policy(\"sped\");
  } catch (const c10::Error& error) {
    std::cout << error.what_without_backtrace() << std::endl;
  }
}\n")
  file(WRITE "${consumer_source}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.22)
project(by_name LANGUAGES CXX)
find_package(ac2 0.1 REQUIRED)
add_executable(by_name main.cc)
target_link_libraries(by_name PRIVATE ac2::ac2)\n")
  configure_consumer("" by_name "-DLIBTORCH_HOME=${LIBTORCH_HOME}")
  run("" "${CMAKE_COMMAND}" --build "${work}/by_name" --config "${CONFIG}")
  find_program(by_name by_name PATHS "${work}/by_name" "${work}/by_name/${CONFIG}" NO_DEFAULT_PATH REQUIRED)
  run("" "${by_name}")
  if(NOT output MATCHES "Unknown policy .sped.. Choose one of: recompute_all, .*speed, .*dots_saveable")
    message(FATAL_ERROR "The consumer printed: ${output}")
  endif()
  message("${output}")
elseif(test STREQUAL "programs_without_a_line_of_code_train_in_regions")
  # One program, linked to LibTorch alone and started by the installed ac2-run, and linked to ac2::auto.
  set(consumer_source "${work}/automatic_source")
  file(WRITE "${consumer_source}/main.cc" "#include <ATen/ATen.h>\n#include <torch/csrc/autograd/autograd.h>\n\n#include <cstdio>\n
int main() {
  const at::Tensor x = at::linspace(-1, 1, 100000).requires_grad_();
  const at::Tensor y = x.sin().exp().mul(x).tanh().sum();
  std::printf(\"%.17g\\n\", torch::autograd::grad({y}, {x})[0].sum().item<double>());
}\n")
  file(WRITE "${consumer_source}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.22)
project(automatic LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(ac2 0.1 REQUIRED COMPONENTS auto)
add_library(compiled OBJECT main.cc)
target_link_libraries(compiled PUBLIC LibTorch::cpu)
add_executable(plain)
target_link_libraries(plain PRIVATE compiled)
add_executable(linked)
target_link_libraries(linked PRIVATE compiled ac2::auto)\n")
  configure_consumer("" automatic "-DLIBTORCH_HOME=${LIBTORCH_HOME}")
  run("" "${CMAKE_COMMAND}" --build "${work}/automatic" --config "${CONFIG}")
  foreach(name plain linked)
    find_program(${name} ${name} PATHS "${work}/automatic" "${work}/automatic/${CONFIG}" NO_DEFAULT_PATH REQUIRED)
  endforeach()
  set(words "ac2: the policy .recompute_all. did not save all that backward needed: [0-9]+ ops were computed again")
  run("" "${plain}")
  string(STRIP "${output}" number)
  set(linked_command "${CMAKE_COMMAND}" -E env "AC2_POLICY=recompute_all" "${linked}")
  set(started_command "${prefix}/bin/ac2-run" --policy recompute_all "${plain}")
  foreach(command linked_command started_command)
    run("" ${${command}})
    string(FIND "${output}" "${number} " at)
    if(number STREQUAL "" OR NOT at EQUAL 0 OR NOT output MATCHES "${words}")
      message(FATAL_ERROR "A program that prints ${number} without ac2 printed: ${output}")
    endif()
    message("${output}")
  endforeach()
elseif(test STREQUAL "consumer_is_told_what_is_missing")
  set(missing "${work}/missing")
  configure_consumer("ac2 needs LibTorch. LIBTORCH_HOME=${missing} has no include" refused "-DLIBTORCH_HOME=${missing}")
  # No LibTorch anywhere: no Python, an empty cache.
  set(ENVIRONMENT "PYTHON=${missing}" "AC2_CACHE=${missing}")
  configure_consumer("ac2 needs LibTorch. No LibTorch was found. Set LIBTORCH_HOME" refused)
  set(ENVIRONMENT "")
  configure_consumer("ac2 needs abseil. Install it" refused "-DLIBTORCH_HOME=${LIBTORCH_HOME}"
    -DCMAKE_DISABLE_FIND_PACKAGE_absl=ON)
  configure_consumer("ac2 needs zlib. Install it" refused "-DLIBTORCH_HOME=${LIBTORCH_HOME}"
    -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON)
  # A LibTorch of another series.
  file(WRITE "${work}/other/include/torch/headeronly/version.h"
    "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 6\n#define TORCH_VERSION_PATCH 0\n")
  file(WRITE "${work}/other/include/ATen/ATen.h" "")
  file(WRITE "${work}/other/lib/libtorch_cpu.so" "")
  configure_consumer("LIBTORCH_HOME=${work}/other is LibTorch 2.6.0: ac2 was built with LibTorch [0-9.]+, and needs" refused
    "-DLIBTORCH_HOME=${work}/other")
else()
  message(FATAL_ERROR "No test is called \"${test}\".")
endif()
