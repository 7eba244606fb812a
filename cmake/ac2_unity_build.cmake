# ac2_unity_build(TARGET [FOLDERS...]): compiles the files of several folders as one. Most of a compilation is LibTorch's
# headers, and templates of theirs that the compiler makes anew for each file.
#
# Each further argument is a group: folders below the source tree, separated by spaces. A folder that is in no group is one of
# its own. No two files of a group give different things the same name. Headers are not precompiled besides: that would take
# as long as it saves, and the groups would wait for it.
function(ac2_unity_build target)
  foreach(folders IN LISTS ARGN)
    separate_arguments(folders)
    list(GET folders 0 first)
    string(MAKE_C_IDENTIFIER "${first}" group)
    foreach(folder IN LISTS folders)
      set("group_of_${folder}" "${group}")
    endforeach()
  endforeach()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" DIRECTORY)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${folder}")
    if(DEFINED "group_of_${folder}")
      set(group "${group_of_${folder}}")
    else()
      string(MAKE_C_IDENTIFIER "${folder}" group)
    endif()
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A class with members of a type of its file alone. To GCC that file is an included one here.
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
endfunction()
