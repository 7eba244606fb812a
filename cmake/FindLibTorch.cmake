# Finds LibTorch in the order in which third_party/libtorch/libtorch_configure.bzl does:
#
#   1. LIBTORCH_HOME (variable or environment): a directory with include/ and lib/, an unpacked LibTorch archive or
#      .../site-packages/torch. The same, said in CMake's words: a find_package(Torch) before this one, or an entry of
#      CMAKE_PREFIX_PATH.
#   2. the torch package of $PYTHON (default python3), not imported, if it is the pinned version
#   3. the pinned wheel in ${AC2_CACHE:-${XDG_CACHE_HOME:-~/.cache}/ac2}; in ac2's own source tree it is fetched
#
# Defines LibTorch::cpu, LibTorch_FOUND, LibTorch_VERSION, and LIBTORCH_HOME in the cache; LibTorch_REASON says what is
# wrong if it was not found.
#
# Not TorchConfig.cmake: that of the CUDA wheel fails without a CUDA toolkit, puts architectures into CMAKE_CUDA_FLAGS, and
# links libtorch.so, whose NVSHMEM, cuSPARSELt and cuFile dependencies must then be present.
set(_pinned 2.11.0)
set(LibTorch_REASON "")

function(_libtorch_usable home result)
  if(home AND EXISTS "${home}/include/ATen/ATen.h" AND EXISTS "${home}/lib/libtorch_cpu.so")
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(_libtorch_from_prefixes result)
  foreach(home IN LISTS TORCH_INSTALL_PREFIX CMAKE_PREFIX_PATH)
    _libtorch_usable("${home}" usable)
    if(usable)
      set(${result} "${home}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(_libtorch_from_python result)
  set(python "$ENV{PYTHON}")
  if(NOT python)
    find_program(python3 python3 NO_CACHE)
    set(python "${python3}")
  endif()
  if(NOT python)
    return()
  endif()
  execute_process(
    COMMAND "${python}" -c "import importlib.util as u, os, re
s = u.find_spec('torch')
home = list(s.submodule_search_locations)[0]
print(home + '|' + re.search(\"__version__ = '([^'+]+)\", open(os.path.join(home, 'version.py')).read()).group(1))"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT found MATCHES "^(.*)\\|(.*)$")
    return()
  endif()
  if(NOT CMAKE_MATCH_2 VERSION_EQUAL _pinned)
    message(STATUS "ignoring torch ${CMAKE_MATCH_2} in ${CMAKE_MATCH_1}: ${_pinned} is pinned")
    return()
  endif()
  set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

function(_libtorch_from_cache result)
  set(fetch "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../third_party/libtorch/fetch_libtorch.sh")
  if(EXISTS "${fetch}")
    message(STATUS "LibTorch ${_pinned}: the pinned wheel, fetched if it is not there yet (545 MB)")
    execute_process(COMMAND bash "${fetch}" OUTPUT_VARIABLE home OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX REPLACE ".*\n" "" home "${home}")
  else()
    set(cache "$ENV{AC2_CACHE}")
    if(NOT cache AND DEFINED ENV{XDG_CACHE_HOME})
      set(cache "$ENV{XDG_CACHE_HOME}/ac2")
    elseif(NOT cache)
      set(cache "$ENV{HOME}/.cache/ac2")
    endif()
    set(home "${cache}/libtorch-${_pinned}-cpu/torch")
  endif()
  set(${result} "${home}" PARENT_SCOPE)
endfunction()

if(NOT LIBTORCH_HOME)
  set(_home "$ENV{LIBTORCH_HOME}")
  foreach(_from prefixes python cache)
    if(NOT _home)
      cmake_language(CALL _libtorch_from_${_from} _home)
    endif()
  endforeach()
  _libtorch_usable("${_home}" _usable)
  # What is unusable is not kept, so that the next attempt looks again; but it was asked for.
  if(_usable)
    file(REAL_PATH "${_home}" _home)
    set(LIBTORCH_HOME "${_home}" CACHE PATH "LibTorch: directory with include/ and lib/" FORCE)
  elseif(DEFINED ENV{LIBTORCH_HOME})
    set(LibTorch_REASON "LIBTORCH_HOME=$ENV{LIBTORCH_HOME} has no include/ATen/ATen.h or no lib/libtorch_cpu.so.")
  else()
    set(LibTorch_REASON "No LibTorch was found. Set LIBTORCH_HOME to a directory with include/ and lib/ (an unpacked \
LibTorch, or .../site-packages/torch), or pip install torch==${_pinned}.")
  endif()
else()
  _libtorch_usable("${LIBTORCH_HOME}" _usable)
  if(NOT _usable)
    set(LibTorch_REASON "LIBTORCH_HOME=${LIBTORCH_HOME} has no include/ATen/ATen.h or no lib/libtorch_cpu.so.")
  endif()
endif()

set(LibTorch_LIBRARY "")
set(LibTorch_VERSION "")
if(_usable)
  set(LibTorch_LIBRARY "${LIBTORCH_HOME}/lib/libtorch_cpu.so")
  foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS "${LIBTORCH_HOME}/include/${_header}")
      file(STRINGS "${LIBTORCH_HOME}/include/${_header}" _numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE "[^0-9;]" "" _numbers "${_numbers}")
      list(JOIN _numbers "." LibTorch_VERSION)
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_LIBRARY
  VERSION_VAR LibTorch_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "${LibTorch_REASON}")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  foreach(_name torch_cpu c10)
    add_library(LibTorch::${_name} SHARED IMPORTED)
    set_target_properties(LibTorch::${_name} PROPERTIES IMPORTED_LOCATION "${LIBTORCH_HOME}/lib/lib${_name}.so")
  endforeach()
  # The CPU part only: libtorch.so would pull in libtorch_cuda.so.
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LIBTORCH_HOME}/include;${LIBTORCH_HOME}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1"
    # libtorch_cpu's own dependencies (CUPTI, cudart) are found by its RPATH when it is loaded; linking needs none.
    INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined;LINKER:--unresolved-symbols=ignore-in-shared-libs"
    INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10")
endif()
