// Prompts equal the reference's byte for byte.

#include <gtest/gtest.h>

#include "recipe/common_form.h"
#include "recipe/deepseek_prompt.h"
#include "recipe/golden_cases.h"

namespace deepinfer::recipe {
namespace {

Json ranges_json(const PromptPieces& prompt) {
  Json ranges = Json::array();
  for (const ByteRange& range : prompt.control_ranges()) {
    ranges.push_back(Json::Array{Json(static_cast<int64_t>(range.begin)),
                                 Json(static_cast<int64_t>(range.end))});
  }
  return ranges;
}

TEST(EncodeGolden, ConversationsGiveTheReferencesPrompts) {
  size_t compared = 0;
  for (const JsonDocument& document : read_golden_cases("encode")) {
    const JsonValue& one = document.root();
    const JsonValue* value = one.find("conversation");
    if (value == nullptr) continue;
    SCOPED_TRACE(one.get<std::string>("id").value());
    const auto conversation = conversation_from_json(*value);
    ASSERT_TRUE(conversation.ok()) << conversation.error().text();
    const bool v41 = one.get<std::string>("version").value() == "v4.1";
    const PromptPieces prompt =
        render_deepseek(conversation.value(), v41 ? DeepSeekVersion::v41 : DeepSeekVersion::v4);
    const JsonValue& expect = *one.find("expect");
    EXPECT_EQ(prompt.text(), expect.get<std::string>("prompt").value());
    EXPECT_EQ(ranges_json(prompt), Json::from(*expect.find("special_ranges")).value());
    ++compared;
  }
  EXPECT_EQ(compared, 202u);
}

}  // namespace
}  // namespace deepinfer::recipe
