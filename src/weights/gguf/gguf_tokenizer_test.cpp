#include "weights/gguf/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

GgufBuilder small() {
  GgufBuilder gguf;
  gguf.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "smollm");
  gguf.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>"});
  return gguf;
}

Result<GgufTokenizer> read(const GgufBuilder& gguf) {
  const TempFolder folder;
  const Checkpoint checkpoint = Checkpoint::open(folder.write("m.gguf", gguf.build())).value();
  return read_gguf_tokenizer(checkpoint);
}

TEST(GgufTokenizer, ReadsAllItsKeys) {
  GgufBuilder gguf = small();
  gguf.texts("tokenizer.ggml.merges", {"a b"});
  gguf.array<int32_t>("tokenizer.ggml.token_type", kI32, {1, 1, 4, 3});
  gguf.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", 3);
  gguf.u32("tokenizer.ggml.eot_token_id", 2).flag("tokenizer.ggml.add_bos_token", true);
  gguf.text("tokenizer.chat_template", "{{ x }}");
  const GgufTokenizer tokenizer = read(gguf).value();
  EXPECT_EQ(tokenizer.model, "gpt2");
  EXPECT_EQ(tokenizer.pre, "smollm");
  EXPECT_EQ(tokenizer.tokens.size(), 4u);
  EXPECT_EQ(tokenizer.merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(tokenizer.token_types[3], GgufTokenType::control);
  EXPECT_EQ(tokenizer.bos, 0u);
  EXPECT_EQ(tokenizer.eos, 3u);
  EXPECT_EQ(tokenizer.eot, 2u);
  EXPECT_TRUE(tokenizer.add_bos);
  EXPECT_FALSE(tokenizer.add_eos);
  EXPECT_EQ(tokenizer.chat_template, "{{ x }}");
}

TEST(GgufTokenizer, DefaultsToNormalTokensAndNoIds) {
  const GgufTokenizer tokenizer = read(small().texts("tokenizer.ggml.merges", {})).value();
  EXPECT_EQ(tokenizer.token_types, std::vector<GgufTokenType>(4, GgufTokenType::normal));
  EXPECT_EQ(tokenizer.bos, std::nullopt);
}

TEST(GgufTokenizer, NamesWhatIsMissingOrWrong) {
  expect_error(read(GgufBuilder()), "corrupt", {"tokenizer.ggml.model", "is missing"});
  expect_error(read(small()), "corrupt", {"tokenizer.ggml.merges", "is missing"});
  expect_error(read(small().u32("tokenizer.ggml.merges", 1)), "corrupt",
               {"tokenizer.ggml.merges: is 1", "an array of strings"});
  const auto merged = [] { return small().texts("tokenizer.ggml.merges", {}); };
  expect_error(read(merged().array<int32_t>("tokenizer.ggml.token_type", kI32, {1, 1})), "corrupt",
               {"2 values", "4 tokens"});
  expect_error(read(merged().array<int32_t>("tokenizer.ggml.token_type", kI32, {1, 1, 1, 7})),
               "corrupt", {"token 3", "type 7"});
  expect_error(read(merged().u32("tokenizer.ggml.eos_token_id", 4)), "corrupt",
               {"eos_token_id: is 4", "0 to 3"});
  GgufBuilder empty;
  empty.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {});
  expect_error(read(empty), "corrupt", {"tokenizer.ggml.tokens", "is empty"});
}

TEST(GgufTokenizer, IsNotInSafetensors) {
  const TempFolder folder;
  const Checkpoint checkpoint = Checkpoint::open(write_hf(folder, TinyModel())).value();
  expect_error(read_gguf_tokenizer(checkpoint), "invalid", {"is not GGUF"});
}

}  // namespace
}  // namespace deepinfer::weights
