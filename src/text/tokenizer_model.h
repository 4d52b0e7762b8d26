#pragma once

// TokenizerModel: what a tokenizer file says, checked and in ids. Two readers make it; Tokenizer
// runs it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/regex_splitter.h"
#include "text/split_rule.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace deepinfer::text {

struct TokenizerModel {
  Vocabulary vocabulary;
  std::vector<Merge> merges;  // in rank order
  std::vector<AddedToken> added;
  std::variant<SplitRule, RegexSplitter> splitter;
  bool nfc = false;           // normalize to NFC first
  bool whole_pieces = false;  // ignore_merges
  bool has_unknown = false;   // bytes without an entry become an unknown token: not done here
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  bool add_bos = false;
};

Result<TokenizerModel> read_tokenizer_json(std::string_view json, const std::string& source,
                                           std::string_view config_json);
Result<TokenizerModel> read_tokenizer_parts(const TokenizerParts& parts);

// The merge that the spellings of its two sides name; rank is for the error.
Result<Merge> resolve_merge(std::string_view left, std::string_view right, size_t rank,
                            const Vocabulary& vocabulary, const std::string& source);
// The two sides of "left right".
Result<Merge> resolve_merge(std::string_view pair, size_t rank, const Vocabulary& vocabulary,
                            const std::string& source);
Result<void> check_spelling(std::string_view spelling, const std::string& source);

}  // namespace deepinfer::text
