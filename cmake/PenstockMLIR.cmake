# MLIR from Debian: shared libMLIR and libLLVM. Never link a static MLIR archive
# that is inside the shared library too: options and type ids would register
# twice.

find_package(MLIR REQUIRED CONFIG HINTS /usr/lib/llvm-22)
if(LLVM_VERSION_MAJOR LESS 22)
  message(FATAL_ERROR "Penstock needs MLIR 22, found ${LLVM_VERSION} in "
    "${MLIR_DIR}; set MLIR_DIR or PENSTOCK_ENABLE_COMPILER=OFF")
endif()
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
find_program(PENSTOCK_LIT NAMES lit llvm-lit HINTS ${LLVM_TOOLS_BINARY_DIR}
  REQUIRED)
set(LLVM_EXTERNAL_LIT ${PENSTOCK_LIT} CACHE STRING "lit" FORCE)
include(TableGen)
include(AddLLVM)
include(AddMLIR)

add_library(penstock_mlir INTERFACE)
# What TableGen writes is not free of warnings either.
target_include_directories(penstock_mlir SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS} ${PROJECT_BINARY_DIR}/include)
target_compile_definitions(penstock_mlir INTERFACE ${LLVM_DEFINITIONS})
target_link_libraries(penstock_mlir INTERFACE MLIR LLVM)

# The headers of MLIR, parsed once for all libraries that use them.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/MLIRHeaders.cpp CONTENT "")
add_library(PenstockMLIRHeaders OBJECT ${PROJECT_BINARY_DIR}/MLIRHeaders.cpp)
target_link_libraries(PenstockMLIRHeaders PRIVATE
  penstock_mlir penstock_options)
target_precompile_headers(PenstockMLIRHeaders PRIVATE
  <mlir/Bytecode/BytecodeOpInterface.h>
  <mlir/IR/Builders.h>
  <mlir/IR/BuiltinOps.h>
  <mlir/IR/DialectImplementation.h>
  <mlir/IR/OpImplementation.h>
  <mlir/Pass/Pass.h>)
