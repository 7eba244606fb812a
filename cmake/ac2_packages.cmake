# ac2_find_packages(): finds the libraries that ac2 uses besides LibTorch, or names all that are missing in one error.
#
# A macro, because find_package() sets variables of its caller's.
macro(ac2_find_packages)
  set(ac2_missing "")
  foreach(entry absl:libabsl-dev nlohmann_json:nlohmann-json3-dev ZLIB:zlib1g-dev)
    string(REPLACE ":" ";" entry "${entry}")
    list(GET entry 0 package)
    list(GET entry 1 debian)
    find_package(${package} QUIET)
    if(NOT ${package}_FOUND)
      string(APPEND ac2_missing " ${debian}")
      string(APPEND ac2_missing_names ", ${package}")
    endif()
  endforeach()
  if(ac2_missing)
    string(SUBSTRING "${ac2_missing_names}" 2 -1 ac2_missing_names)
    message(FATAL_ERROR "ac2 needs libraries that are not installed: ${ac2_missing_names}. On Debian or Ubuntu:\n"
      "  sudo apt-get install -y${ac2_missing}\n"
      "Where they are installed elsewhere, name the folder: -DCMAKE_PREFIX_PATH=FOLDER (for pip: CMAKE_PREFIX_PATH=FOLDER pip install ...).")
  endif()
endmacro()
