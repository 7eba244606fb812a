# ac2_warnings(TARGET): the warnings of .bazelrc. LibTorch, abseil and GoogleTest are system includes, which are silent.
function(ac2_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra "$<$<BOOL:${AC2_WARNINGS_AS_ERRORS}>:-Werror>")
endfunction()
