# The installed package, as CTest tests: installed, moved, and used by examples/cmake_consumer.
set(package_test "${CMAKE_COMMAND}"
  "-DBUILD=${CMAKE_BINARY_DIR}" "-DSOURCE=${CMAKE_CURRENT_SOURCE_DIR}" "-DLIBTORCH_HOME=${LIBTORCH_HOME}"
  "-DCONFIG=$<CONFIG>" "-DGENERATOR=${CMAKE_GENERATOR}" "-DCXX=${CMAKE_CXX_COMPILER}" "-DPREFIX_PATH=${CMAKE_PREFIX_PATH}"
  -P "${CMAKE_CURRENT_LIST_DIR}/package_test.cmake")
foreach(name installs_what_can_be_moved consumer_builds_and_runs consumer_knows_policies_by_name
        consumer_is_told_what_is_missing programs_without_a_line_of_code_train_in_regions)
  add_test(NAME package/${name} COMMAND ${package_test} ${name})
  set_tests_properties(package/${name} PROPERTIES TIMEOUT 900)
endforeach()
set_tests_properties(package/installs_what_can_be_moved PROPERTIES FIXTURES_SETUP installed_package)
set_tests_properties(package/consumer_builds_and_runs package/consumer_knows_policies_by_name
  package/consumer_is_told_what_is_missing package/programs_without_a_line_of_code_train_in_regions
  PROPERTIES FIXTURES_REQUIRED installed_package)
