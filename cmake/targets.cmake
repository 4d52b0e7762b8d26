# deepinfer_library(base SOURCES a.cpp b.cpp [DEPS fmt::fmt deepinfer_tensor])
#   the library target of one folder of the ladder, named deepinfer_<folder>.
function(deepinfer_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(deepinfer_${name} STATIC ${ARG_SOURCES})
  target_include_directories(deepinfer_${name} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(deepinfer_${name} PUBLIC ${ARG_DEPS} Threads::Threads)
endfunction()

# deepinfer_test(base SOURCES a_test.cpp [DEPS deepinfer_base])
#   one GoogleTest program per folder, <folder>_test; each of its tests is a ctest case.
#   DEEPINFER_SOURCE_DIR is the project's root, for tests/golden.
function(deepinfer_test name)
  if(NOT DEEPINFER_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  include(GoogleTest)
  add_executable(${name}_test ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE
                        ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  # For "tests/golden_file.h".
  target_include_directories(${name}_test PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${name}_test PRIVATE DEEPINFER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
                       PROPERTIES TIMEOUT 900 LABELS ${name})
endfunction()

# deepinfer_bench(kernels SOURCES a_bench.cpp DEPS ...): Google Benchmark program <folder>_bench.
function(deepinfer_bench name)
  if(NOT DEEPINFER_BENCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${name}_bench ${ARG_SOURCES})
  target_link_libraries(${name}_bench PRIVATE ${ARG_DEPS} benchmark::benchmark_main)
endfunction()

# deepinfer_fuzz(gguf SOURCES gguf_fuzz.cpp DEPS ...): libFuzzer program fuzz_<name>; its seeds lie
# in tests/corpus/<name>. Without DEEPINFER_FUZZ the same file is built against a small driver that
# replays the seeds, as a ctest case.
function(deepinfer_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(DEEPINFER_FUZZ OR DEEPINFER_TESTS)
    set_property(GLOBAL APPEND PROPERTY deepinfer_fuzzers fuzz_${name})
  endif()
  if(DEEPINFER_FUZZ)
    add_executable(fuzz_${name} ${ARG_SOURCES})
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(fuzz_${name} PRIVATE ${ARG_DEPS})
  elseif(DEEPINFER_TESTS)
    add_executable(fuzz_${name} ${ARG_SOURCES} "${PROJECT_SOURCE_DIR}/tests/replay_corpus.cpp")
    target_link_libraries(fuzz_${name} PRIVATE ${ARG_DEPS})
    add_test(NAME corpus.${name}
             COMMAND fuzz_${name} "${PROJECT_SOURCE_DIR}/tests/corpus/${name}")
    set_tests_properties(corpus.${name} PROPERTIES TIMEOUT 900 LABELS corpus)
  endif()
endfunction()

# deepinfer_group_targets(): the names under which Makefile and CI build parts of the tree, each
# holding what exists of it. Call it after the last folder.
#   fuzzers: every fuzz_* program    parser_tests: the folders that read untrusted bytes, for asan
#   threaded_tests: the folders that start threads, for tsan    benches: every *_bench program
function(deepinfer_group_targets)
  foreach(group fuzzers parser_tests threaded_tests benches)
    add_custom_target(${group})
  endforeach()
  get_property(fuzzers GLOBAL PROPERTY deepinfer_fuzzers)
  if(fuzzers)
    add_dependencies(fuzzers ${fuzzers})
    add_dependencies(parser_tests ${fuzzers})
  endif()
  foreach(folder ${DEEPINFER_FOLDERS})
    if(TARGET ${folder}_test AND folder MATCHES "^(base|tensor|text|image|weights|kernels)$")
      add_dependencies(parser_tests ${folder}_test)
    endif()
    if(TARGET ${folder}_test AND folder MATCHES "^(base|kernels|cache|models|engine|llm)$")
      add_dependencies(threaded_tests ${folder}_test)
    endif()
    if(TARGET ${folder}_bench)
      add_dependencies(benches ${folder}_bench)
    endif()
  endforeach()
endfunction()
