#include "recipe/prompt_pieces.h"

#include <optional>

namespace deepinfer::recipe {

void PromptPieces::control(std::string_view spelling) {
  pieces_.push_back({std::string(spelling), true});
}

void PromptPieces::plain(std::string_view text) {
  if (text.empty()) return;
  if (!pieces_.empty() && !pieces_.back().control) {
    pieces_.back().text += text;
  } else {
    pieces_.push_back({std::string(text), false});
  }
}

std::string PromptPieces::text() const {
  std::string joined;
  for (const Piece& piece : pieces_) joined += piece.text;
  return joined;
}

Result<std::vector<int32_t>> PromptPieces::encode(const text::Tokenizer& tokenizer) const {
  std::vector<int32_t> ids;
  for (const Piece& piece : pieces_) {
    if (!piece.control) {
      TRY(tokenizer.append(piece.text, text::SpecialTokens::plain, ids));
      continue;
    }
    const std::optional<int32_t> id = tokenizer.token_to_id(piece.text);
    if (!id) {
      return Error::unsupported("chat layout", "the tokenizer has no token " + piece.text,
                                "use the model without --chat");
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace deepinfer::recipe
