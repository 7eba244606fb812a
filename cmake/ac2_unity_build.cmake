# ac2_unity_build(TARGET): compiles the files of each folder as one. Most of a compilation is LibTorch's headers.
#
# A folder is a room of the library, in which no two files give different things the same name.
function(ac2_unity_build target)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder "${source}" DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" group)
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
