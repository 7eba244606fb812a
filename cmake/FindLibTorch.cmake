# Finds LibTorch as find_libtorch.sh says, which Bazel's build calls too. In CMake's words LIBTORCH_HOME may be a variable, a
# find_package(Torch) before this one, or an entry of CMAKE_PREFIX_PATH. LibTorch_FIND_SERIES=2.15 takes no other minor
# release. Only in ac2's own source tree is a LibTorch fetched.
#
# Defines LibTorch::cpu, LibTorch_FOUND, LibTorch_VERSION, and LIBTORCH_HOME in the cache; LibTorch_REASON says what is
# wrong if it was not found.
#
# Not TorchConfig.cmake: that of the CUDA wheel fails without a CUDA toolkit, puts architectures into CMAKE_CUDA_FLAGS, and
# links libtorch.so, whose NVSHMEM, cuSPARSELt and cuFile dependencies must then be present.
set(LibTorch_REASON "")
set(_arguments "")
if(LibTorch_FIND_SERIES)
  list(APPEND _arguments --series "${LibTorch_FIND_SERIES}")
endif()
set(_find "${CMAKE_CURRENT_LIST_DIR}/../third_party/libtorch/find_libtorch.sh")
if(NOT EXISTS "${_find}")
  set(_find "${CMAKE_CURRENT_LIST_DIR}/find_libtorch.sh")
  list(APPEND _arguments --no-fetch)
endif()
set(_environment "")
if(LIBTORCH_HOME)
  set(_environment "LIBTORCH_HOME=${LIBTORCH_HOME}")
endif()
if(CMAKE_CROSSCOMPILING)
  list(APPEND _environment "AC2_MACHINE=${CMAKE_SYSTEM_PROCESSOR}")
endif()
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env ${_environment} bash "${_find}" ${_arguments} ${TORCH_INSTALL_PREFIX}
          ${CMAKE_PREFIX_PATH}
  OUTPUT_VARIABLE _found ERROR_VARIABLE _said RESULT_VARIABLE _failed)
if(_failed)
  string(STRIP "${_said}" LibTorch_REASON)
  # To find_package_handle_standard_args a text with semicolons is several arguments, quoted or not.
  string(REPLACE ";" "," LibTorch_REASON "${LibTorch_REASON}")
  # What is unusable is not kept, so that the next attempt looks again.
  set(_usable FALSE)
else()
  if(_said)
    string(STRIP "${_said}" _said)
    message(STATUS "LibTorch: ${_said}")
  endif()
  string(REGEX MATCH "([^\n]+)\n([^\n]+)\n$" _lines "${_found}")
  set(LIBTORCH_HOME "${CMAKE_MATCH_1}" CACHE PATH "LibTorch: directory with include/ and lib/" FORCE)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+\\.[0-9]+" _version "${CMAKE_MATCH_2}")
  set(_usable TRUE)
endif()

set(LibTorch_LIBRARY "")
set(LibTorch_VERSION "")
if(_usable)
  set(LibTorch_LIBRARY "${LIBTORCH_HOME}/lib/libtorch_cpu.so")
  set(LibTorch_VERSION "${_version}")
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
