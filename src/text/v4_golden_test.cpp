// The tokenizer of DeepSeek V4 against every golden of its reference.

#include <gtest/gtest.h>

#include "tests/text_data.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace deepinfer::text {
namespace {

using Ids = std::vector<int32_t>;

class V4Golden : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string path = fetched_path("deepseek-v4-tokenizer.json", "v4-tokenizer");
    auto made = Tokenizer::from_json(read_text(path), path);
    ASSERT_TRUE(made.ok()) << made.error().text();
    tokenizer = std::make_unique<Tokenizer>(std::move(made).value());
    cases = read_json_lines(golden_path("tokenizer/v4.jsonl"));
    ASSERT_GT(cases.size(), 3000u);
  }
  static void TearDownTestSuite() { tokenizer.reset(); }
  void SetUp() override { ASSERT_NE(tokenizer, nullptr); }

  static std::unique_ptr<Tokenizer> tokenizer;
  static std::vector<nlohmann::json> cases;
};

std::unique_ptr<Tokenizer> V4Golden::tokenizer;
std::vector<nlohmann::json> V4Golden::cases;

TEST_F(V4Golden, TextsGiveTheReferencesIds) {
  for (const auto& c : cases) {
    if (c.contains("emitted")) continue;
    const std::string text = c["text"];
    const Ids expected = c["ids"];
    const Ids plain = c.contains("ids_plain") ? c["ids_plain"].get<Ids>() : expected;
    const auto full_ids = tokenizer->encode(text, SpecialTokens::recognise);
    const auto plain_ids = tokenizer->encode(text, SpecialTokens::plain);
    ASSERT_TRUE(full_ids.ok() && plain_ids.ok()) << c["id"];
    EXPECT_EQ(full_ids.value(), expected) << c["id"] << " " << c["group"];
    EXPECT_EQ(plain_ids.value(), plain) << c["id"] << " " << c["group"];
  }
}

TEST_F(V4Golden, IdsGiveTheReferencesText) {
  for (const auto& c : cases) {
    const Ids ids = c["ids"];
    const std::string decoded = tokenizer->decode(ids, SkipSpecial::no);
    if (c.contains("decoded") || c.contains("text")) {
      const std::string text = c.contains("decoded") ? c["decoded"] : c["text"];
      EXPECT_EQ(decoded, text) << c["id"];
    }
    if (c.contains("decoded_skip_special")) {
      EXPECT_EQ(tokenizer->decode(ids, SkipSpecial::yes),
                c["decoded_skip_special"].get<std::string>())
          << c["id"];
    } else if (!c.contains("emitted")) {
      EXPECT_EQ(tokenizer->decode(ids, SkipSpecial::yes), decoded) << c["id"];
    }
  }
}

TEST_F(V4Golden, StreamReleasesTextWhenTheReferenceDoes) {
  size_t checked = 0;
  for (const auto& c : cases) {
    if (!c.contains("emitted")) continue;
    ++checked;
    const Ids ids = c["ids"];
    StreamDecoder decoder(*tokenizer, SkipSpecial::no);
    std::string all;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string text = decoder.push(ids[i]);
      EXPECT_EQ(text, c["emitted"][i].get<std::string>()) << c["id"] << " id " << i;
      all += text;
    }
    EXPECT_EQ(decoder.waiting(), c["unfinished"].get<size_t>()) << c["id"];
    all += decoder.flush();
    EXPECT_EQ(all, tokenizer->decode(ids, SkipSpecial::no)) << c["id"];
    EXPECT_EQ(decoder.waiting(), 0u);
  }
  EXPECT_GT(checked, 100u);
}

TEST_F(V4Golden, FileIsReadWhole) {
  EXPECT_EQ(tokenizer->vocab_size(), 129280u);
  EXPECT_EQ(tokenizer->token_to_id("<｜User｜>"), 128803);
  EXPECT_EQ(tokenizer->token_to_id("Hello"), 19923);
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_TRUE(tokenizer->is_added(128821));
  EXPECT_FALSE(tokenizer->is_special(128821));
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->token_bytes(129280), "");
  EXPECT_EQ(tokenizer->decode(Ids{129280, -1, INT32_MAX}, SkipSpecial::no), "");
}

// The cases above share a few caches of pieces; here each piece is long or new.
TEST_F(V4Golden, LongTextsAreTheSumOfTheirLines) {
  std::string text;
  Ids expected;
  for (const auto& c : cases) {
    if (c["group"] != "language" && c["group"] != "code") continue;
    // Ids join exactly at piece borders only: a letter, then a digit, then a letter is one.
    const std::string line = c["text"].get<std::string>() + "a1a";
    if (line[0] >= '0' && line[0] <= '9') continue;
    const Ids ids = tokenizer->encode(line, SpecialTokens::plain).value();
    text += line + "7";
    expected.insert(expected.end(), ids.begin(), ids.end());
    const Ids seven = tokenizer->encode("7", SpecialTokens::plain).value();
    expected.insert(expected.end(), seven.begin(), seven.end());
  }
  EXPECT_EQ(tokenizer->encode(text, SpecialTokens::plain).value(), expected);
}

}  // namespace
}  // namespace deepinfer::text
