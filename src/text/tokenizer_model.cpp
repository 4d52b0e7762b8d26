#include "text/tokenizer_model.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace deepinfer::text {

Result<Merge> resolve_merge(std::string_view left, std::string_view right, size_t rank,
                            const Vocabulary& vocabulary, const std::string& source) {
  std::string bytes;
  const auto wrong = [&](std::string_view what, std::string_view spelled) -> Error {
    return Error::corrupt(
        source, fmt::format("merge {} \"{} {}\": {} \"{}\" is not in the vocabulary", rank, left,
                            right, what, spelled));
  };
  // Sides are spelled in the byte alphabet; an entry outside of it never comes out of bytes.
  if (left.empty() || !append_alphabet_bytes(left, bytes)) return wrong("left side", left);
  const auto left_id = vocabulary.find_base(bytes);
  if (!left_id) return wrong("left side", left);
  const size_t left_bytes = bytes.size();
  if (right.empty() || !append_alphabet_bytes(right, bytes)) return wrong("right side", right);
  const auto right_id = vocabulary.find_base(std::string_view(bytes).substr(left_bytes));
  if (!right_id) return wrong("right side", right);
  const auto result = vocabulary.find_base(bytes);
  if (!result) return wrong("result", fmt::format("{}{}", left, right));
  return Merge{*left_id, *right_id, *result};
}

Result<Merge> resolve_merge(std::string_view pair, size_t rank, const Vocabulary& vocabulary,
                            const std::string& source) {
  const size_t space = pair.find(' ');
  if (space == pair.npos || pair.find(' ', space + 1) != pair.npos) {
    return Error::corrupt(source,
                          fmt::format("merge {} \"{}\": not two sides with a space", rank, pair));
  }
  return resolve_merge(pair.substr(0, space), pair.substr(space + 1), rank, vocabulary, source);
}

Result<void> check_spelling(std::string_view spelling, const std::string& source) {
  if (spelling.empty()) return Error::corrupt(source, "an added token has an empty spelling");
  if (spelling.size() > AddedTokens::kMaxSpellingBytes) {
    return Error::unsupported(
        source,
        fmt::format("added token \"{}…\" has {} bytes, the limit is {}", spelling.substr(0, 32),
                    spelling.size(), AddedTokens::kMaxSpellingBytes));
  }
  if (find_invalid_utf8(spelling) != spelling.size()) {
    return Error::corrupt(source, "an added token is not valid UTF-8");
  }
  return {};
}

}  // namespace deepinfer::text
