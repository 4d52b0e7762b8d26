#pragma once

// Tokenizer: text to token ids and back, byte-level BPE (GPT-2 family). Made from tokenizer.json,
// or from arrays that the caller took out of another container (GGUF).
//
//   Tokenizer tokenizer = TRY(Tokenizer::from_json(json_text, path));
//   std::vector<int32_t> ids = TRY(tokenizer.encode("Hello", SpecialTokens::recognise));
//   std::string text = tokenizer.decode(ids, SkipSpecial::yes);
//
// Text is UTF-8. Encoding never adds BOS: add_bos() tells whether the model wants it before plain
// text (a rendered prompt brings its own). Time is linear in the text (n log n inside one piece of
// equal letters). Ids are rows of the embedding, 0 <= id < vocab_size(); not every id has a token.
//
// Some vocabularies have no entry for a few control bytes (SmolLM2: 0x04 and others): such bytes
// are left out of the text, as the reference engine does. Printable ASCII must be there.
//
// Errors: a file that contradicts itself is `corrupt`, a well-formed one that needs another
// algorithm is `unsupported` and named; invalid UTF-8 in a text is `invalid` and names the byte
// offset.
//
// Ownership and threads: a Tokenizer is a handle to immutable data, cheap to copy; every method may
// be called from any thread at the same time.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::text {

// What encode() does with spellings of added tokens (control, user defined) inside the text:
// recognise turns them into their ids, plain treats them like any other characters.
enum class SpecialTokens { recognise, plain };

// Whether decode() leaves out the tokens marked special (BOS, EOS, padding, turn markers of some
// models).
enum class SkipSpecial { no, yes };

// Kinds of vocabulary entries, numbered as GGUF's tokenizer.ggml.token_type does.
enum class TokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,       // added, special
  user_defined = 4,  // added, not special
  unused = 5,
  byte = 6,
};

// The arrays of tokenizer.ggml.*; the comments give the GGUF keys without that prefix.
struct TokenizerParts {
  std::string source;          // names the origin in errors, e.g. the path
  std::string model = "gpt2";  // model: "gpt2" is byte-level BPE, the only one supported
  std::string pre;             // pre: "smollm", "gpt-2", "llama-bpe", "qwen2", "deepseek-v3", …
  std::vector<std::string> tokens;   // tokens, by id, in the byte alphabet (added ones: raw)
  std::vector<int32_t> token_types;  // token_type, as many as tokens; empty: all normal
  std::vector<std::string> merges;   // merges, "left right" in rank order
  std::optional<int32_t> bos_id;     // bos_token_id
  std::optional<int32_t> eos_id;     // eos_token_id
  std::optional<bool> add_bos;       // add_bos_token; absent: what models of this `pre` do
};

class Tokenizer {
 public:
  static constexpr size_t kMaxVocabulary = 2'000'000;  // ids above are refused
  static constexpr size_t kMaxJsonBytes = 512u << 20;

  // json: text of tokenizer.json. config_json: text of tokenizer_config.json (BOS, EOS, add_bos),
  // may be empty: then BOS comes from the post-processor if that adds one, and EOS is unknown.
  static Result<Tokenizer> from_json(std::string_view json, std::string source,
                                     std::string_view config_json = {});
  static Result<Tokenizer> from_parts(TokenizerParts parts);

  Result<std::vector<int32_t>> encode(std::string_view text, SpecialTokens special) const;
  // Appends to ids; on an error ids is as it was.
  Result<void> append(std::string_view text, SpecialTokens special,
                      std::vector<int32_t>& ids) const;

  // The bytes of all ids joined, then read as UTF-8 with each maximal invalid part replaced by one
  // U+FFFD. Ids without a token give nothing.
  std::string decode(std::span<const int32_t> ids, SkipSpecial skip) const;

  // Bytes that the token stands for (may be part of a character); empty when there is no such
  // token. The view lives as long as any copy of this Tokenizer.
  std::string_view token_bytes(int32_t id) const;
  // The id of an added token by its spelling, else of a vocabulary entry by its bytes (" the").
  std::optional<int32_t> token_to_id(std::string_view bytes) const;

  bool has_token(int32_t id) const;
  bool is_special(int32_t id) const;  // hidden by SkipSpecial::yes
  bool is_added(int32_t id) const;    // recognised by SpecialTokens::recognise

  size_t vocab_size() const;  // the greatest id + 1
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  bool add_bos() const;  // implies bos_id()

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

}  // namespace deepinfer::text
