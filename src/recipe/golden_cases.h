#pragma once

// Golden cases of the recipe for tests: JSON lines, compressed because prompts repeat themselves.
//
//   for (const GoldenCase& one : read_golden_cases("encode")) … one.root().find("expect") …

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "base/json.h"

namespace deepinfer::recipe {

// All of tests/golden/recipe/<name>.jsonl.gz; fails the running test when it cannot be read.
inline std::vector<JsonDocument> read_golden_cases(const std::string& name) {
  const std::string path =
      std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/recipe/" + name + ".jsonl.gz";
  std::string text;
  if (gzFile file = gzopen(path.c_str(), "rb")) {
    std::string block(1 << 16, '\0');
    for (int got = 0; (got = gzread(file, block.data(), block.size())) > 0;)
      text.append(block, 0, static_cast<size_t>(got));
    gzclose(file);
  }
  std::vector<JsonDocument> cases;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    auto parsed = JsonDocument::parse(std::string_view(text).substr(begin, end - begin), name,
                                      {.depth = 300});
    EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().text());
    if (parsed.ok()) cases.push_back(std::move(parsed).value());
    begin = end + 1;
  }
  EXPECT_FALSE(cases.empty()) << path << " is missing";
  return cases;
}

}  // namespace deepinfer::recipe
