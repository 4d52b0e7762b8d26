// The tokenizer that SmolLM2's GGUF carries against its goldens.

#include <gtest/gtest.h>

#include "tests/text_data.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/gguf/gguf_tokenizer.h"

namespace deepinfer {
namespace {

using Ids = std::vector<int32_t>;

text::TokenizerParts parts_of(const weights::GgufTokenizer& gguf, const std::string& source) {
  text::TokenizerParts parts;
  parts.source = source;
  parts.model = gguf.model;
  parts.pre = gguf.pre;
  parts.tokens = gguf.tokens;
  for (const auto type : gguf.token_types) parts.token_types.push_back(static_cast<int32_t>(type));
  parts.merges = gguf.merges;
  if (gguf.bos) parts.bos_id = static_cast<int32_t>(*gguf.bos);
  if (gguf.eos) parts.eos_id = static_cast<int32_t>(*gguf.eos);
  parts.add_bos = gguf.add_bos;
  return parts;
}

TEST(SmolLm2Tokenizer, EqualsTheReferenceOnEveryLine) {
  const std::string path = text::fetched_path("smollm2-135m-instruct-q4_1.gguf", "smollm2");
  const auto checkpoint = weights::Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text();
  const auto gguf = weights::read_gguf_tokenizer(checkpoint.value());
  ASSERT_TRUE(gguf.ok()) << gguf.error().text();
  const auto made = text::Tokenizer::from_parts(parts_of(gguf.value(), path));
  ASSERT_TRUE(made.ok()) << made.error().text();
  const text::Tokenizer& tokenizer = made.value();

  const auto cases = text::read_json_lines(text::golden_path("smollm2/tokenizer.jsonl"));
  ASSERT_EQ(cases.size(), 300u);
  for (const auto& c : cases) {
    const std::string line = c["text"];
    const Ids expected = c["ids"];
    const Ids plain = c.contains("ids_no_special") ? c["ids_no_special"].get<Ids>() : expected;
    EXPECT_EQ(tokenizer.encode(line, text::SpecialTokens::recognise).value(), expected) << c;
    EXPECT_EQ(tokenizer.encode(line, text::SpecialTokens::plain).value(), plain) << c;
    EXPECT_EQ(tokenizer.decode(expected, text::SkipSpecial::no), line);
  }
  EXPECT_EQ(tokenizer.vocab_size(), 49152u);
  EXPECT_FALSE(tokenizer.add_bos());
  EXPECT_EQ(tokenizer.eos_id(), tokenizer.token_to_id("<|im_end|>"));
}

}  // namespace
}  // namespace deepinfer
