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
    ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(Penstock${name} PUBLIC ${ARG_LINK}
    PRIVATE penstock_options)
endfunction()

# penstock_add_executable(name sources... LINK libs...)
function(penstock_add_executable name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} penstock_options)
endfunction()

# penstock_add_unittest(Name sources... LINK libs...): a GoogleTest program,
# run by CTest as a whole.
function(penstock_add_unittest name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main
    penstock_options)
  target_compile_definitions(${name} PRIVATE
    PENSTOCK_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
endfunction()
