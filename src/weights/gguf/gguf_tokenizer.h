#pragma once

// The tokenizer that a GGUF file carries in its metadata (tokenizer.ggml.*), as plain lists.
//
// Threads: plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"

namespace deepinfer::weights {

// Kinds of a token, as tokenizer.ggml.token_type numbers them.
enum class GgufTokenType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

struct GgufTokenizer {
  std::string model;                       // "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
  std::string pre;                         // pre-tokeniser: "smollm", "qwen2", ...; may be empty
  std::vector<std::string> tokens;         // by id
  std::vector<GgufTokenType> token_types;  // by id
  std::vector<std::string> merges;  // "left right", best first; empty unless the model is BPE
  std::optional<uint32_t> bos;
  std::optional<uint32_t> eos;
  std::optional<uint32_t> eot;  // end of a turn
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  std::string chat_template;  // empty when there is none; never executed
};

// Fails when the checkpoint is no GGUF, when model or tokens are missing, when a "gpt2" tokenizer
// has no merges, when lists differ in length, types are unknown or ids lie outside the list.
Result<GgufTokenizer> read_gguf_tokenizer(const Checkpoint& checkpoint);

}  // namespace deepinfer::weights
