# ac2_warnings(TARGET): the warnings of .bazelrc. LibTorch, abseil and GoogleTest are system includes, which are silent.
function(ac2_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra "$<$<BOOL:${AC2_WARNINGS_AS_ERRORS}>:-Werror>")
  # GCC 12 at -O3 sees overlapping and overlong copies inside std::string's own operator+ and move constructor (its bugs
  # 105651 and 105329).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
      -Wno-stringop-overread)
  endif()
endfunction()
