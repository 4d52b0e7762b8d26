#include "sampling/token_list.h"

#include <charconv>
#include <string>

#include "base/check.h"

namespace deepinfer::sampling {
namespace {

constexpr size_t kMostIds = size_t{1} << 24;
constexpr std::string_view kRange = "..";

// Reads a number off the front of `rest`.
Result<int32_t> take_id(std::string_view what, std::string_view text, std::string_view& rest,
                        size_t vocab) {
  const std::string place = " at character " + std::to_string(text.size() - rest.size());
  uint64_t value = 0;
  // from_chars takes no sign for unsigned numbers.
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error == std::errc::invalid_argument) {
    return Error::invalid(std::string(what), "no number" + place, "as in 0..3,7,10..12");
  }
  if (error != std::errc() || value >= vocab) {
    return Error::invalid(std::string(what), "the id" + place + " is not below the vocabulary of " +
                                                 std::to_string(vocab));
  }
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return static_cast<int32_t>(value);
}

}  // namespace

Result<std::vector<int32_t>> parse_token_list(std::string_view what, std::string_view text,
                                              size_t vocab) {
  check(vocab <= kMostIds, "a vocabulary of more than 2^24 ids");
  std::vector<int32_t> ids;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t place = text.size() - rest.size();
    const int32_t first = TRY(take_id(what, text, rest, vocab));
    int32_t last = first;
    if (rest.starts_with(kRange)) {
      rest.remove_prefix(kRange.size());
      last = TRY(take_id(what, text, rest, vocab));
      if (last <= first) {
        return Error::invalid(std::string(what), "the range " + std::to_string(first) + ".." +
                                                     std::to_string(last) + " does not increase");
      }
    }
    if (!ids.empty() && first <= ids.back()) {
      return Error::invalid(std::string(what),
                            std::to_string(first) + " at character " + std::to_string(place) +
                                " follows " + std::to_string(ids.back()),
                            "ids must increase");
    }
    for (int32_t id = first; id <= last; ++id) ids.push_back(id);
    if (rest.empty()) break;
    if (rest.front() != ',' || rest.size() == 1) {
      return Error::invalid(std::string(what),
                            "'" + std::string(1, rest.front()) + "' at character " +
                                std::to_string(text.size() - rest.size()) + " is out of place",
                            "as in 0..3,7,10..12");
    }
    rest.remove_prefix(1);
  }
  return ids;
}

}  // namespace deepinfer::sampling
