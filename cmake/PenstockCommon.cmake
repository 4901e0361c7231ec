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
set(PENSTOCK_ENABLE_CUDA AUTO CACHE STRING
    "Build the CUDA/NCCL back end: AUTO (if both are found), ON or OFF")
set_property(CACHE PENSTOCK_ENABLE_CUDA PROPERTY STRINGS AUTO ON OFF)

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

# Sets PENSTOCK_WITH_CUDA, and makes CUDA::cudart and NCCL::NCCL, and
# Penstock::CudaHeaders for what is linked with another implementation of both:
# the stand-in of the tests. No compiler for CUDA is needed for that. The model
# on GPUs wants cuBLAS (PENSTOCK_WITH_CUBLAS), and a compiler where it is not to
# run on the stand-in (PENSTOCK_WITH_NVCC).
set(PENSTOCK_WITH_CUDA OFF)
set(PENSTOCK_WITH_CUBLAS OFF)
set(PENSTOCK_WITH_NVCC OFF)
set(PENSTOCK_CUDA_ARCH all-major CACHE STRING
    "The GPUs for which nvcc compiles, as its -arch")
if(NOT PENSTOCK_ENABLE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.4 QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{NCCL_HOME}/include)
  find_library(NCCL_LIBRARY nccl
    HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{NCCL_HOME}/lib)
  if(CUDAToolkit_FOUND AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    set(PENSTOCK_WITH_CUDA ON)
    if(TARGET CUDA::cublas)
      set(PENSTOCK_WITH_CUBLAS ON)
    endif()
    if(CUDAToolkit_NVCC_EXECUTABLE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      set(PENSTOCK_WITH_NVCC ON)
    endif()
    add_library(PenstockCudaHeaders INTERFACE)
    add_library(Penstock::CudaHeaders ALIAS PenstockCudaHeaders)
    target_include_directories(PenstockCudaHeaders SYSTEM INTERFACE
      ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
    add_library(NCCL::NCCL UNKNOWN IMPORTED)
    set_target_properties(NCCL::NCCL PROPERTIES
      IMPORTED_LOCATION ${NCCL_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
  elseif(NOT PENSTOCK_ENABLE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "PENSTOCK_ENABLE_CUDA is ${PENSTOCK_ENABLE_CUDA}, but "
      "CUDA (12.4 or later) or NCCL was not found: install them, set "
      "CUDAToolkit_ROOT and NCCL_HOME, or set PENSTOCK_ENABLE_CUDA to AUTO or "
      "OFF")
  endif()
endif()
