#include "image/span.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "image/fault.h"
#include "image/golden_images.h"
#include "tests/golden_file.h"

namespace deepinfer::image {
namespace {

std::vector<int32_t> vector_of(std::span<const int32_t> values) {
  return {values.begin(), values.end()};
}

struct GoldenPrompt {
  std::vector<int32_t> ids_in, ids, types;
  std::vector<Layout> layouts;
  nlohmann::json known;
};

GoldenPrompt golden_prompt() {
  const GoldenFile tensors("vision/golden.safetensors");
  const nlohmann::json golden = golden_json("golden.json");
  GoldenPrompt prompt = {.ids_in = vector_of(tensors["prompt.ids_in"].as<int32_t>()),
                         .ids = vector_of(tensors["prompt.ids"].as<int32_t>()),
                         .types = vector_of(tensors["prompt.types"].as<int32_t>()),
                         .layouts = {},
                         .known = golden["prompt"]};
  for (const auto& name : prompt.known["images"]) {
    prompt.layouts.push_back(
        layout_of(golden["images"][name.get<std::string>()]["native"]["layout"]));
  }
  return prompt;
}

TEST(Span, ExpandsTheGoldenPrompt) {
  const GoldenPrompt prompt = golden_prompt();
  const ExpandedPrompt got =
      expand_prompt(prompt.ids_in, prompt.layouts, prompt.known["image_token_id"],
                    prompt.known["vocab_size"], Mismatch::allow, "prompt")
          .value();
  EXPECT_EQ(got.ids, prompt.ids);
  ASSERT_EQ(got.types.size(), prompt.types.size());
  for (size_t i = 0; i < got.types.size(); ++i) {
    EXPECT_EQ(static_cast<int32_t>(got.types[i]), prompt.types[i]) << i;
  }
  ASSERT_EQ(got.spans.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got.spans[i].start, prompt.known["spans"][i][0].get<size_t>());
    EXPECT_EQ(got.spans[i].count, prompt.known["spans"][i][1].get<size_t>());
    EXPECT_EQ(got.spans[i].image, i);
  }
}

TEST(Span, CountsMustAgree) {
  const GoldenPrompt prompt = golden_prompt();
  const Layout one = prompt.layouts.front();
  const std::vector<int32_t> ids = {1, 500, 2};
  for (const size_t images : {0, 2}) {
    const std::vector<Layout> layouts(images, one);
    const auto refused = expand_prompt(ids, layouts, 500, 512, Mismatch::refuse, "prompt 7");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(fault_of(refused.error()), ImageFault::image_count_mismatch);
    EXPECT_EQ(refused.error().text(),
              "prompt 7: ImageCountMismatch: the prompt has 1 image placeholders, the request " +
                  std::to_string(images) + " images");
    EXPECT_TRUE(expand_prompt(ids, layouts, 500, 512, Mismatch::allow, "prompt 7").ok());
  }
  EXPECT_TRUE(expand_prompt(ids, {&one, 1}, 500, 512, Mismatch::refuse, "prompt 7").ok());
}

TEST(Span, RowsBeforeAPositionAreCounted) {
  const GoldenPrompt prompt = golden_prompt();
  for (const Layout& layout : prompt.layouts) {
    const std::vector<TokenType> types = token_types(layout);
    ASSERT_EQ(types.size(), layout.tokens);
    size_t rows = 0;
    for (size_t offset = 0; offset <= types.size(); ++offset) {
      EXPECT_EQ(image_rows_before(layout, offset), rows) << offset;
      if (offset < types.size()) rows += types[offset] == TokenType::image ? 1 : 0;
    }
    EXPECT_EQ(rows, layout.cells());
  }
}

TEST(Span, RecordHoldsDigestAndIndex) {
  Sha256Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(i + 1);
  EXPECT_EQ(hex(image_token_record(digest, 0x01020304)), "ffffffff" + hex(digest) + "04030201");
}

}  // namespace
}  // namespace deepinfer::image
