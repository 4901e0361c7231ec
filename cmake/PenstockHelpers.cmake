# Targets of Penstock: one way to make each, so that warnings, include paths and
# sanitizers are the same everywhere.

add_library(penstock_options INTERFACE)
target_compile_options(penstock_options INTERFACE -Wall -Wextra)
if(PENSTOCK_SANITIZE)
  target_compile_options(penstock_options INTERFACE
    -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(penstock_options INTERFACE
    -fsanitize=${PENSTOCK_SANITIZE})
endif()

if(PENSTOCK_FUZZ)
  target_compile_options(penstock_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# penstock_add_library(Name sources... LINK libs...): static library
# Penstock<Name> without LLVM.
function(penstock_add_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(Penstock${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_library(Penstock::${name} ALIAS Penstock${name})
  target_include_directories(Penstock${name} PUBLIC
    ${PENSTOCK_SOURCE_DIR}/include)
  target_link_libraries(Penstock${name} PUBLIC ${ARG_LINK}
    PRIVATE penstock_options)
endfunction()

# penstock_add_cuda_object(source arch depends...): the object of nvcc, a file
# with the name of the source and .o. The language CUDA of CMake would want a
# compiler where there is none.
function(penstock_add_cuda_object source arch)
  cmake_path(GET source STEM name)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O2 -arch=${arch}
      -cudart none -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -fPIC
      -I${NCCL_INCLUDE_DIR} -I${PENSTOCK_SOURCE_DIR}/runtime/models
      -I${PENSTOCK_SOURCE_DIR}/runtime/test/standin
      -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${source} ${ARGN}
    COMMENT "Compiling ${source} with nvcc"
    VERBATIM)
endfunction()

# Gives the code of a program or a test, whose work is done in the libraries, no
# more optimisation than it needs: its compile time is most of a build's.
function(penstock_optimise_little name)
  if(PENSTOCK_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# penstock_add_executable(name sources... [OPTIMISE] LINK libs...)
function(penstock_add_executable name)
  cmake_parse_arguments(ARG "OPTIMISE" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} penstock_options)
  if(NOT ARG_OPTIMISE)
    penstock_optimise_little(${name})
  endif()
endfunction()

# What penstock_add_unittest gives each target.
function(penstock_unittest_options name)
  target_link_libraries(${name} PRIVATE GTest::gtest_main penstock_options)
  target_compile_definitions(${name} PRIVATE
    PENSTOCK_SOURCE_DIR="${PENSTOCK_SOURCE_DIR}")
  # A precompiled header serves only code compiled with the same options, and
  # position-independent libraries and programs differ in theirs.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endfunction()

# penstock_add_unittest(Name sources... [OPTIMISE] LINK libs...): a GoogleTest
# program, run by CTest as a whole.
function(penstock_add_unittest name)
  cmake_parse_arguments(ARG "OPTIMISE" "" "LINK" ${ARGN})
  if(NOT TARGET PenstockTestHeaders)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/TestHeaders.cpp CONTENT "")
    add_library(PenstockTestHeaders OBJECT
      ${PROJECT_BINARY_DIR}/TestHeaders.cpp)
    penstock_unittest_options(PenstockTestHeaders)
    penstock_optimise_little(PenstockTestHeaders)
    target_precompile_headers(PenstockTestHeaders PRIVATE
      <gtest/gtest.h> <algorithm> <filesystem> <fstream> <map> <random> <set>
      <sstream>)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  penstock_unittest_options(${name})
  if(NOT ARG_OPTIMISE)
    penstock_optimise_little(${name})
    target_precompile_headers(${name} REUSE_FROM PenstockTestHeaders)
  endif()
  add_test(NAME ${name} COMMAND ${name})
endfunction()
