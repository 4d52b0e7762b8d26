#pragma once

// The tokenizers that the goldens of the recipe were made with.

#include "recipe/deepseek_tokenizer.h"
#include "tests/text_data.h"
#include "text/tokenizer.h"

namespace deepinfer::recipe {

// Fails the running test when the file was not fetched.
inline std::optional<text::Tokenizer> golden_tokenizer(DeepSeekVersion version) {
  const std::string path = text::fetched_path("deepseek-v4-tokenizer.json", "v4-tokenizer");
  auto made = deepseek_tokenizer(text::read_text(path), path, version);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().text());
  if (!made.ok()) return std::nullopt;
  return std::move(made).value();
}

}  // namespace deepinfer::recipe
