#pragma once

// Data of the tokenizer tests: goldens of tests/golden, and files that tools/fetch_data.py fetched.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace deepinfer::text {

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string golden_path(const std::string& name) {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/" + name;
}

// One JSON value a line.
inline std::vector<nlohmann::json> read_json_lines(const std::string& path) {
  std::vector<nlohmann::json> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

// A file that tools/fetch_data.py keeps in the cache. Fails the running test, with the command to
// type, when it is not there.
inline std::string fetched_path(const std::string& file, const std::string& name) {
  const char* base = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string path = base != nullptr && *base != '\0'
                         ? std::string(base)
                         : std::string(home != nullptr ? home : "") + "/.cache";
  path += "/deepinfer/" + file;
  if (!std::filesystem::exists(path)) {
    ADD_FAILURE() << path << " is missing: run tools/fetch_data.py " << name;
  }
  return path;
}

}  // namespace deepinfer::text
