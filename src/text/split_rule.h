#pragma once

// SplitRule: the pre-tokenizers that are written out by hand. Each cuts a text into the pieces
// inside which merges happen; all characters of the text are in exactly one piece.
//
// Sources: the regular expressions in the tokenizer.json files of the models named; split_rule.cpp
// quotes them.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace deepinfer::text {

enum class SplitRule {
  gpt2,
  smollm,       // each number character alone, then gpt2
  llama3,       // Llama 3.x
  qwen2,        // Qwen2, Qwen2.5, Qwen3
  deepseek_v3,  // DeepSeek V3, R1, V4: numbers, Han and kana, then the rest
};

// Appends the ends of the pieces that follow position `begin`, a piece border of this text; stops
// after about a thousand pieces, so that the caller's next step finds them in the cache. Returns
// the end of the last one. text is valid UTF-8, under 4 GiB.
size_t split_some(SplitRule rule, std::string_view text, size_t begin, std::vector<uint32_t>& ends);

}  // namespace deepinfer::text
