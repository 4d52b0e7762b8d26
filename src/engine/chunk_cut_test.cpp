#include "engine/chunk_cut.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace deepinfer::engine {
namespace {

TEST(ChunkCut, EveryCutOfTheGolden) {
  std::ifstream stream(std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/vision/golden.json");
  const nlohmann::json golden = nlohmann::json::parse(stream);
  std::vector<PromptSpan> spans;
  for (const auto& span : golden["prompt"]["spans"]) spans.push_back({span[0], span[1]});
  ASSERT_EQ(spans.size(), 2u);
  ASSERT_GT(golden["chunk_cuts"].size(), 30u);
  for (const auto& one : golden["chunk_cuts"]) {
    EXPECT_EQ(cut_chunk(one["start"], one["want"], spans, 35, one["room"], one["first"]),
              one["take"].get<size_t>())
        << one.dump();
  }
}

TEST(ChunkCut, BordersOfSpansAreFree) {
  const std::vector<PromptSpan> spans = {{4, 10}, {14, 10}};
  EXPECT_EQ(cut_chunk(0, 4, spans, 40, 4, false), 4u);     // before the first
  EXPECT_EQ(cut_chunk(0, 14, spans, 40, 14, false), 14u);  // between the two
  EXPECT_EQ(cut_chunk(4, 20, spans, 40, 20, false), 20u);  // after both
  EXPECT_EQ(cut_chunk(0, 15, spans, 40, 15, false), 14u);  // inside of the second
  EXPECT_EQ(cut_chunk(8, 3, spans, 40, 3, false), 0u);     // resumed inside of the first
}

}  // namespace
}  // namespace deepinfer::engine
