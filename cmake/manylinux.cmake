# A toolchain whose results run wherever torch's own wheels do: with glibc 2.28 and the libstdc++ of GCC 8 (manylinux_2_28). The
# compiler is this machine's g++.
#
#   cmake -B build -DCMAKE_TOOLCHAIN_FILE=cmake/manylinux.cmake -DBUILD_SHARED_LIBS=ON && cmake --build build -j2
#
# Headers are this machine's too. A function that they have and glibc 2.28 has not is an undefined symbol when a program is
# linked; tools/symbol_versions.py finds it in a library. abseil, zlib and what GCC 8's libstdc++ lacks become parts of the
# shared library, whose users need none of them.
get_filename_component(_glibc "${CMAKE_CURRENT_LIST_DIR}/../third_party/glibc" ABSOLUTE)
# It is read once for the project, and again for each check that CMake compiles.
if(NOT DEFINED ENV{AC2_GLIBC_ABSEIL})
  execute_process(COMMAND "${_glibc}/stubs.sh" OUTPUT_VARIABLE _stubs RESULT_VARIABLE _failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT _failed)
    execute_process(COMMAND "${_glibc}/abseil.sh" "${_stubs}" OUTPUT_VARIABLE _abseil RESULT_VARIABLE _failed
      OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(_failed)
    message(FATAL_ERROR "cmake/manylinux.cmake: there is no glibc 2.28, or no abseil for it, to link with; see above")
  endif()
  set(ENV{AC2_GLIBC_STUBS} "${_stubs}")
  set(ENV{AC2_GLIBC_ABSEIL} "${_abseil}")
endif()
set(_stubs "$ENV{AC2_GLIBC_STUBS}")

set(CMAKE_CXX_COMPILER g++)
set(CMAKE_CXX_FLAGS_INIT "-include ${_glibc}/older.h")
set(_linking "-B${_stubs} -L${_stubs}")
# libgcc_s.so.1 of this machine is linked to its glibc.
set(CMAKE_EXE_LINKER_FLAGS_INIT "${_linking} -Wl,--allow-shlib-undefined")
# A program may have another abseil, zlib or libstdc++ beside what is linked in here.
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${_linking} -Wl,--exclude-libs,ALL")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "${_linking} -Wl,--exclude-libs,ALL")
# Before LibTorch, whose libraries have parts of libstdc++ in them.
link_libraries(stdc++)

set(absl_ROOT "$ENV{AC2_GLIBC_ABSEIL}")
execute_process(COMMAND g++ -print-file-name=libz.a OUTPUT_VARIABLE _zlib OUTPUT_STRIP_TRAILING_WHITESPACE)
set(ZLIB_LIBRARY "${_zlib}" CACHE FILEPATH "zlib as a static library" FORCE)
