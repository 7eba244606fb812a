# What ac2_run_test starts and ac2_programs() does not make: programs and libraries of more than one file, or of none of ac2's.
set(automatic_dir "${CMAKE_CURRENT_BINARY_DIR}/tests/automatic")

add_executable(trains_linked EXCLUDE_FROM_ALL tests/automatic/trains.cc)
set_target_properties(trains_linked PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${automatic_dir}")
target_link_libraries(trains_linked PRIVATE ac2_tests_automatic_library ac2::auto)

add_library(ac2_test_plugin MODULE EXCLUDE_FROM_ALL tests/automatic/library/plugin.cc tests/automatic/library/training.cc)
set_target_properties(ac2_test_plugin PROPERTIES OUTPUT_NAME plugin LIBRARY_OUTPUT_DIRECTORY "${automatic_dir}/plugins")
target_include_directories(ac2_test_plugin PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(ac2_test_plugin PRIVATE LibTorch::cpu)

add_library(ac2_test_other_libtorch MODULE EXCLUDE_FROM_ALL tests/automatic/library/other_libtorch.cc)
set_target_properties(ac2_test_other_libtorch PROPERTIES
  OUTPUT_NAME torch_cpu LIBRARY_OUTPUT_DIRECTORY "${automatic_dir}/other")
target_link_options(ac2_test_other_libtorch PRIVATE "LINKER:-soname,libtorch_cpu.so")

target_link_options(opens_library PRIVATE "LINKER:-rpath,$ORIGIN/plugins" "LINKER:--as-needed")
add_dependencies(ac2_run_test trains trains_linked opens_library ac2_test_plugin ac2_test_other_libtorch ac2_run)
add_dependencies(programs_test dcgan mnist regression scripted ac2_run)
