#include "weights/gguf/gguf_tokenizer.h"

#include <fmt/format.h>

#include "weights/gguf/metadata.h"

namespace deepinfer::weights {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";

Result<std::vector<GgufTokenType>> read_types(const MetadataReader& reader, size_t tokens) {
  std::vector<GgufTokenType> types(tokens, GgufTokenType::normal);
  if (!reader.has(kTypes)) return types;
  const std::vector<int64_t>& numbers = *TRY(reader.integers(kTypes));
  if (numbers.size() != tokens) {
    return Error::corrupt(reader.thing(kTypes), fmt::format("has {} values, there are {} tokens",
                                                            numbers.size(), tokens));
  }
  for (size_t id = 0; id < tokens; ++id) {
    if (numbers[id] < 1 || numbers[id] > 6) {
      return Error::corrupt(
          reader.thing(kTypes),
          fmt::format("says token {} is of type {}, known are 1 to 6", id, numbers[id]));
    }
    types[id] = static_cast<GgufTokenType>(numbers[id]);
  }
  return types;
}

Result<std::optional<uint32_t>> read_id(const MetadataReader& reader, const char* key,
                                        size_t tokens) {
  if (!reader.has(key)) return std::optional<uint32_t>();
  return std::optional<uint32_t>(static_cast<uint32_t>(TRY(reader.integer(key, 0, tokens - 1))));
}

}  // namespace

Result<GgufTokenizer> read_gguf_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.container() != Container::gguf) {
    return Error::invalid(checkpoint.path(), "is not GGUF and carries no tokenizer in metadata");
  }
  const MetadataReader reader(checkpoint.metadata(), checkpoint.path());
  GgufTokenizer tokenizer;
  tokenizer.model = TRY(reader.text("tokenizer.ggml.model"));
  tokenizer.pre = TRY(reader.text_or("tokenizer.ggml.pre", ""));
  tokenizer.tokens = *TRY(reader.texts(kTokens));
  const size_t tokens = tokenizer.tokens.size();
  if (tokens == 0) return Error::corrupt(reader.thing(kTokens), "is empty");
  tokenizer.token_types = TRY(read_types(reader, tokens));
  if (tokenizer.model == "gpt2" || reader.has(kMerges)) {
    tokenizer.merges = *TRY(reader.texts(kMerges));
  }
  tokenizer.bos = TRY(read_id(reader, "tokenizer.ggml.bos_token_id", tokens));
  tokenizer.eos = TRY(read_id(reader, "tokenizer.ggml.eos_token_id", tokens));
  tokenizer.eot = TRY(read_id(reader, "tokenizer.ggml.eot_token_id", tokens));
  tokenizer.add_bos = TRY(reader.flag_or("tokenizer.ggml.add_bos_token", false));
  tokenizer.add_eos = TRY(reader.flag_or("tokenizer.ggml.add_eos_token", false));
  tokenizer.add_space_prefix = TRY(reader.flag_or("tokenizer.ggml.add_space_prefix", false));
  tokenizer.chat_template = TRY(reader.text_or("tokenizer.chat_template", ""));
  return tokenizer;
}

}  // namespace deepinfer::weights
