# A toolchain for aarch64 on another machine: Debian's cross compiler, and the libraries of third_party/aarch64/sysroot.sh.
#
#   cmake -B build -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DAC2_BUILD_TESTS=ON && cmake --build build -j2
#   ctest --test-dir build -R '^tests/replay/'      # by qemu-aarch64
#
# LibTorch is the pinned one for aarch64 (cmake/FindLibTorch.cmake). With -DAC2_BUILD_PYTHON=ON the Python is Debian's for
# arm64, which the emulator runs where it is asked something; tools/aarch64_check.sh makes a wheel so.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

get_filename_component(_aarch64 "${CMAKE_CURRENT_LIST_DIR}/../third_party/aarch64" ABSOLUTE)
find_program(_aarch64_compiler aarch64-linux-gnu-g++)
find_program(_aarch64_emulator qemu-aarch64)
if(NOT _aarch64_compiler OR NOT _aarch64_emulator)
  message(FATAL_ERROR "cmake/aarch64.cmake needs a cross compiler and an emulator. On Debian or Ubuntu:\n"
    "  sudo apt-get install -y g++-aarch64-linux-gnu qemu-user")
endif()
# It is read once for the project, and again for each check that CMake compiles.
if(NOT DEFINED ENV{AC2_AARCH64_SYSROOT})
  execute_process(COMMAND "${_aarch64}/sysroot.sh" OUTPUT_VARIABLE _root RESULT_VARIABLE _failed
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(_failed)
    message(FATAL_ERROR "cmake/aarch64.cmake: no libraries to build with for aarch64; see above")
  endif()
  set(ENV{AC2_AARCH64_SYSROOT} "${_root}")
endif()
set(_root "$ENV{AC2_AARCH64_SYSROOT}")

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR "${_aarch64}/run.sh")
# Not CMAKE_SYSROOT: the compiler has its own headers and libraries of C and C++.
set(CMAKE_FIND_ROOT_PATH "${_root}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)  # LibTorch's are elsewhere
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
set(CMAKE_SYSTEM_PREFIX_PATH /usr)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Also what headers of the distribution include by their folder's name (Python's pyconfig.h).
set(CMAKE_CXX_FLAGS_INIT "-isystem ${_root}/usr/include")
# Libraries that libraries of the distribution are linked to.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${_root}/usr/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,-rpath-link,${_root}/usr/lib/aarch64-linux-gnu")

# What CMake asks the target's Python, the emulator answers.
file(GLOB _include "${_root}/usr/include/python3.*")
list(GET _include 0 _include)
set(Python_EXECUTABLE "${_aarch64}/python.sh" CACHE FILEPATH "The Python for arm64, by the emulator" FORCE)
set(Python_INCLUDE_DIR "${_include}" CACHE PATH "Its headers" FORCE)
