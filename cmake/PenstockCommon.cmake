# What every part of Penstock is built with, whether as a whole (the root) or as
# the runtime alone (runtime/): options, language, and libraries other than
# MLIR.

get_filename_component(PENSTOCK_SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)

option(PENSTOCK_FUZZ "Build libFuzzer programs (needs clang)" OFF)
set(PENSTOCK_SANITIZE "" CACHE STRING
    "Sanitizers for all targets: empty, address,undefined or thread")
set(PENSTOCK_ENABLE_MPI AUTO CACHE STRING
    "Build the transport mpi: AUTO (if MPI is found), ON or OFF")
set_property(CACHE PENSTOCK_ENABLE_MPI PROPERTY STRINGS AUTO ON OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

include(PenstockHelpers)

find_package(Threads REQUIRED)
find_path(FLATBUFFERS_INCLUDE_DIR flatbuffers/flatbuffers.h REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

# Sets PENSTOCK_WITH_MPI, and makes MPI::MPI_CXX. The sanitizer presets do
# without: the MPI of a distribution is not instrumented.
set(PENSTOCK_WITH_MPI OFF)
if(NOT PENSTOCK_ENABLE_MPI STREQUAL "OFF")
  # The C interface is all that is used; the one for C++ is long gone.
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI 3.1 QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(PENSTOCK_WITH_MPI ON)
  elseif(NOT PENSTOCK_ENABLE_MPI STREQUAL "AUTO")
    message(FATAL_ERROR "PENSTOCK_ENABLE_MPI is ${PENSTOCK_ENABLE_MPI}, but no "
      "MPI was found: install libopenmpi-dev, or set PENSTOCK_ENABLE_MPI to "
      "AUTO or OFF")
  endif()
endif()
