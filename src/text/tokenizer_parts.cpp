#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/tokenizer_model.h"

namespace deepinfer::text {
namespace {

// What tokenizer.ggml.pre implies.
struct PreTokenizerName {
  std::string_view name;
  SplitRule rule;
  bool nfc = false;
  bool whole_pieces = false;
  bool add_bos = false;
};

constexpr PreTokenizerName kNames[] = {
    {"gpt-2", SplitRule::gpt2},
    {"gpt2", SplitRule::gpt2},
    {"phi-2", SplitRule::gpt2},
    {"olmo", SplitRule::gpt2},
    {"mpt", SplitRule::gpt2},
    {"smollm", SplitRule::smollm},
    {"starcoder", SplitRule::smollm},
    {"refact", SplitRule::smollm},
    {"codeshell", SplitRule::smollm},
    {"llama-bpe", SplitRule::llama3, false, true, true},
    {"llama3", SplitRule::llama3, false, true, true},
    {"llama-v3", SplitRule::llama3, false, true, true},
    {"qwen2", SplitRule::qwen2, true},
    {"deepseek-r1-qwen", SplitRule::qwen2},
    {"deepseek-v3", SplitRule::deepseek_v3},
    {"deepseek-v4", SplitRule::deepseek_v3},
    {"joyai-llm", SplitRule::deepseek_v3},  // the name that DeepSeek V4 files carry
};

std::string known_names() {
  std::string out;
  for (const PreTokenizerName& name : kNames) {
    if (!out.empty()) out += ", ";
    out += name.name;
  }
  return out;
}

class Reader {
 public:
  explicit Reader(const TokenizerParts& parts) : parts_(parts) {}

  Result<TokenizerModel> read() {
    if (parts_.model != "gpt2") {
      return Error::unsupported(
          parts_.source, fmt::format("tokenizer model \"{}\", only \"gpt2\" (byte-level BPE) "
                                     "is known",
                                     parts_.model));
    }
    const auto* name = std::find_if(std::begin(kNames), std::end(kNames),
                                    [&](const auto& n) { return n.name == parts_.pre; });
    if (name == std::end(kNames)) {
      return Error::unsupported(parts_.source, fmt::format("pre-tokenizer \"{}\"", parts_.pre),
                                "known: " + known_names());
    }
    out_.splitter = name->rule;
    out_.nfc = name->nfc;
    out_.whole_pieces = name->whole_pieces;
    TRY(read_tokens());
    for (const std::string& merge : parts_.merges) {
      out_.merges.push_back(
          TRY(resolve_merge(merge, out_.merges.size(), out_.vocabulary, parts_.source)));
    }
    out_.bos_id = TRY(read_id(parts_.bos_id, "bos_token_id"));
    out_.eos_id = TRY(read_id(parts_.eos_id, "eos_token_id"));
    out_.add_bos = parts_.add_bos.value_or(name->add_bos && out_.bos_id);
    if (out_.add_bos && !out_.bos_id) {
      return Error::corrupt(parts_.source, "add_bos_token is true, bos_token_id is not set");
    }
    return std::move(out_);
  }

 private:
  Result<void> read_tokens() {
    const size_t count = parts_.tokens.size();
    if (count > Tokenizer::kMaxVocabulary) {
      return Error::corrupt(parts_.source, fmt::format("{} tokens, the limit is {}", count,
                                                       Tokenizer::kMaxVocabulary));
    }
    if (!parts_.token_types.empty() && parts_.token_types.size() != count) {
      return Error::corrupt(parts_.source, fmt::format("{} token types for {} tokens",
                                                       parts_.token_types.size(), count));
    }
    out_.vocabulary = Vocabulary(count, count);
    for (size_t i = 0; i < count; ++i) TRY(read_token(static_cast<int32_t>(i)));
    return {};
  }

  Result<void> read_token(int32_t id) {
    const auto at = static_cast<size_t>(id);
    const std::string& spelled = parts_.tokens[at];
    const int32_t number = parts_.token_types.empty() ? 1 : parts_.token_types[at];
    std::optional<std::string> wrong;
    switch (static_cast<TokenType>(number)) {
      case TokenType::normal:
      case TokenType::unused:
        wrong = out_.vocabulary.add_base(id, spelled);
        break;
      case TokenType::unknown:
        wrong = out_.vocabulary.add_base(id, spelled);
        if (!wrong) out_.vocabulary.mark_special(id);
        break;
      case TokenType::control:
      case TokenType::user_defined: {
        const bool special = number == static_cast<int32_t>(TokenType::control);
        TRY(check_spelling(spelled, parts_.source));
        wrong = out_.vocabulary.add_added(id, spelled, special);
        out_.added.push_back({spelled, id, special, false});
        break;
      }
      case TokenType::byte:
        return Error::unsupported(parts_.source,
                                  fmt::format("token {} \"{}\" has type 6 (byte), which belongs to "
                                              "another tokenizer model",
                                              id, spelled));
      default:
        return Error::corrupt(parts_.source, fmt::format("token {} \"{}\" has type {}, known are "
                                                         "1..6",
                                                         id, spelled, number));
    }
    if (wrong) return Error::corrupt(parts_.source, *std::move(wrong));
    return {};
  }

  Result<std::optional<int32_t>> read_id(std::optional<int32_t> id, std::string_view key) const {
    if (id && !out_.vocabulary.has(*id)) {
      return Error::corrupt(parts_.source, fmt::format("{} {} is outside of the {} tokens", key,
                                                       *id, parts_.tokens.size()));
    }
    return id;
  }

  const TokenizerParts& parts_;
  TokenizerModel out_;
};

}  // namespace

Result<TokenizerModel> read_tokenizer_parts(const TokenizerParts& parts) {
  return Reader(parts).read();
}

}  // namespace deepinfer::text
