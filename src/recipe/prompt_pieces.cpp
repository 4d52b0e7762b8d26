#include "recipe/prompt_pieces.h"

#include <optional>

namespace deepinfer::recipe {

void PromptPieces::control(std::string_view spelling) {
  controls_.push_back({text_.size(), text_.size() + spelling.size()});
  text_ += spelling;
}

void PromptPieces::content(const Content& content, std::string_view mark) {
  const std::string_view text = content.text;
  size_t done = 0;
  for (const Image& image : content.images) {
    plain(text.substr(done, image.offset - done));
    control(mark);
    images_.push_back(image);
    done = image.offset;
  }
  plain(text.substr(done));
}

Result<std::vector<int32_t>> PromptPieces::encode(const text::Tokenizer& tokenizer) const {
  std::vector<int32_t> ids;
  const std::string_view all = text_;
  size_t done = 0;
  for (const ByteRange& range : controls_) {
    if (range.begin > done) {
      TRY(tokenizer.append(all.substr(done, range.begin - done), text::SpecialTokens::plain, ids));
    }
    const std::string_view spelling = all.substr(range.begin, range.end - range.begin);
    const std::optional<int32_t> id = tokenizer.token_to_id(spelling);
    if (!id) {
      return Error::unsupported("chat layout",
                                "the tokenizer has no token " + std::string(spelling),
                                "use the model without --chat");
    }
    ids.push_back(*id);
    done = range.end;
  }
  if (done < all.size()) TRY(tokenizer.append(all.substr(done), text::SpecialTokens::plain, ids));
  return ids;
}

}  // namespace deepinfer::recipe
