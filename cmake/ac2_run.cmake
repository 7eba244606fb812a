# What runs programs without a line of ac2's code: ac2-run with the two libraries that it loads into a program, and ac2::auto,
# which programs link. The sources are in ac2/run; its BUILD says more.
set(run_dir "${CMAKE_CURRENT_BINARY_DIR}/ac2/run")

# A program that links it has its member, which nothing refers to.
add_library(ac2_linked STATIC ac2/run/auto.cc)
add_library(ac2::auto ALIAS ac2_linked)
set_target_properties(ac2_linked PROPERTIES EXPORT_NAME auto POSITION_INDEPENDENT_CODE ON)
target_link_libraries(ac2_linked PUBLIC ac2)
target_link_options(ac2_linked INTERFACE "LINKER:--undefined=ac2_is_linked")

# Needs nothing but libc. Its last calls are jumps, in every configuration.
add_library(ac2_preload MODULE ac2/run/preload.cc)
target_include_directories(ac2_preload SYSTEM PRIVATE "$<TARGET_PROPERTY:LibTorch::cpu,INTERFACE_INCLUDE_DIRECTORIES>")
target_include_directories(ac2_preload PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_compile_options(ac2_preload PRIVATE -O2 -fno-exceptions -fno-rtti -fno-threadsafe-statics)
target_link_options(ac2_preload PRIVATE "LINKER:--as-needed")
target_link_libraries(ac2_preload PRIVATE ${CMAKE_DL_LIBS})

# The whole of ac2, for a process that has LibTorch. Its own functions are called, whatever the program has of the same names.
add_library(ac2_loaded MODULE ac2/run/entry.cc)
set_target_properties(ac2_loaded PROPERTIES OUTPUT_NAME ac2_auto INSTALL_RPATH "$ORIGIN/..")
target_link_libraries(ac2_loaded PRIVATE ac2)
target_link_options(ac2_loaded PRIVATE "LINKER:-Bsymbolic")

add_executable(ac2_run ac2/run/ac2_run.cc ac2/internal/automatic/settings.cc ac2/internal/bytes/parse_bytes.cc)
file(RELATIVE_PATH libraries "/at/${CMAKE_INSTALL_BINDIR}" "/at/${CMAKE_INSTALL_LIBDIR}/ac2")
target_compile_definitions(ac2_run PRIVATE "AC2_RUN_LIBRARIES=\"${libraries}\"")
target_include_directories(ac2_run PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
set_target_properties(ac2_run PROPERTIES OUTPUT_NAME ac2-run)
add_dependencies(ac2_run ac2_preload ac2_loaded)

foreach(target ac2_linked ac2_preload ac2_loaded ac2_run)
  ac2_warnings(${target})
endforeach()
set_target_properties(ac2_preload ac2_loaded ac2_run PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${run_dir}" LIBRARY_OUTPUT_DIRECTORY "${run_dir}")

install(TARGETS ac2_linked EXPORT ac2Targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS ac2_preload ac2_loaded LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/ac2")
install(TARGETS ac2_run RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
