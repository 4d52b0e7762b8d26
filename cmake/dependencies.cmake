# Libraries of the system (docs/dependencies.md gives the reason for each).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)  # used as headers only
find_package(PkgConfig REQUIRED)
pkg_check_modules(simdjson REQUIRED IMPORTED_TARGET simdjson)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
if(DEEPINFER_TESTS OR NOT DEFINED DEEPINFER_TESTS)
  find_package(GTest)
endif()
