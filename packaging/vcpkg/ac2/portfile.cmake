# An overlay port: vcpkg install ac2 --overlay-ports=packaging/vcpkg, with LIBTORCH_HOME in the environment and in
# VCPKG_KEEP_ENV_VARS. It builds the source tree that it lies in; a port of vcpkg's registry has vcpkg_from_github() here.
# docs/releasing.md says what was tried.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DAC2_WARNINGS_AS_ERRORS=OFF
    -DAC2_BUILD_RUN=OFF  # ac2-run looks for its libraries beside bin/, and vcpkg moves programs elsewhere
    "-DLIBTORCH_HOME=$ENV{LIBTORCH_HOME}"
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/ac2)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
