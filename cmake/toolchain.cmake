# Compiler, warnings, sanitizers: the settings that every target shares.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 frees memory twice in ordinary co_await expressions; ISA pragmas need clang.
  message(FATAL_ERROR
    "deepinfer: the compiler is g++ ${CMAKE_CXX_COMPILER_VERSION}, the kernels and coroutine "
    "targets need clang 16 or newer (g++ < 14 miscompiles co_await). "
    "Use -DCMAKE_CXX_COMPILER=clang++-19, or run `make build`.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "deepinfer: clang ${CMAKE_CXX_COMPILER_VERSION} is too old, 16 is the least.")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths below the project count as relative and debugger information may name any clone: each
  # clone finds the objects of the others.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_NOHASHDIR=1"
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};${CCACHE_PROGRAM}")
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# -ffp-contract=off: additions and multiplications fuse only where the source says fma, so that
# vector bodies, scalar tails and references round alike (docs/ARCHITECTURE.md, Numerics).
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wno-gnu-statement-expression
                    -ffp-contract=off -fno-math-errno)
# x86-64-v2 is the floor of the program; wider bodies are chosen at run time.
# Tuned for what has AVX2: the default tuning would split every unaligned 32-byte access in two.
add_compile_options(-march=x86-64-v2 -mtune=haswell)

set(DEEPINFER_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")
if(DEEPINFER_SANITIZE)
  add_compile_options(-fsanitize=${DEEPINFER_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${DEEPINFER_SANITIZE})
endif()
if(DEEPINFER_FUZZ)
  # Coverage counters in every library, so that the fuzzer sees which inputs reach new code.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
