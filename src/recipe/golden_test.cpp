// Prompts, parsed outputs, converted requests, answers and errors equal the reference's.

#include <gtest/gtest.h>

#include "recipe/golden_cases.h"
#include "recipe/golden_tokenizer_test.h"
#include "recipe/recipe_line.h"

namespace deepinfer::recipe {
namespace {

class RecipeGolden : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    v4 = golden_tokenizer(DeepSeekVersion::v4);
    v41 = golden_tokenizer(DeepSeekVersion::v41);
  }
  static void TearDownTestSuite() { v4 = v41 = std::nullopt; }

  static void compare(const std::string& file, LineTask task, Protocol protocol, size_t wanted) {
    LineRunner runner(protocol);
    runner.v4 = v4;
    runner.v41 = v41;
    size_t compared = 0;
    for (const JsonDocument& document : read_golden_cases(file)) {
      const JsonValue& line = document.root();
      SCOPED_TRACE(line.get_or<std::string>("id", "").value());
      const Result<Json> output = runner.run(task, line);
      ASSERT_TRUE(output.ok()) << output.error().text();
      const auto difference = runner.difference(task, line, output.value());
      ASSERT_TRUE(difference.ok()) << difference.error().text();
      EXPECT_FALSE(difference.value().has_value()) << difference.value().value_or("");
      ++compared;
    }
    EXPECT_EQ(compared, wanted);
  }

  static std::optional<text::Tokenizer> v4, v41;
};

std::optional<text::Tokenizer> RecipeGolden::v4, RecipeGolden::v41;

TEST_F(RecipeGolden, Prompts) { compare("encode", LineTask::encode, Protocol::chat, 942); }
TEST_F(RecipeGolden, Outputs) { compare("parse", LineTask::parse, Protocol::chat, 526); }
TEST_F(RecipeGolden, Chat) { compare("convert_chat", LineTask::convert, Protocol::chat, 392); }
TEST_F(RecipeGolden, Messages) {
  compare("convert_anthropic", LineTask::convert, Protocol::messages, 234);
}
TEST_F(RecipeGolden, Responses) {
  compare("convert_responses", LineTask::convert, Protocol::responses, 216);
}
TEST_F(RecipeGolden, Errors) { compare("errors", LineTask::convert, Protocol::chat, 299); }

}  // namespace
}  // namespace deepinfer::recipe
