# ac2_warnings(TARGET): the warnings of .bazelrc. LibTorch, abseil and GoogleTest are system includes, which are silent.
function(ac2_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra "$<$<BOOL:${AC2_WARNINGS_AS_ERRORS}>:-Werror>"
    # GCC 12 at -O3 sees overlapping copies in std::string's own operator+ (its bug 105651).
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>")
endfunction()
