#pragma once

// RegexSplitter: a pre-tokenizer given by regular expressions, for the files whose expressions are
// not one of SplitRule. PCRE2 with its JIT.
//
// Expressions are applied one after the other, each to every piece that the one before left;
// matches and what lies between them are pieces ("Isolated"). \s is White_Space as in the engine
// the files are written for; \p{..} has the Unicode version of the PCRE2 library.
//
// Errors: an expression that does not compile is `unsupported` and quoted; one that takes too many
// steps on a text is `exhausted`. Threads: any (it is immutable).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::text {

class RegexSplitter {
 public:
  static constexpr size_t kMaxPatternBytes = 16384;
  static constexpr size_t kMaxPatterns = 16;

  // source: names the file in errors.
  static Result<RegexSplitter> create(const std::vector<std::string>& patterns,
                                      const std::string& source);

  // Appends the ends of all pieces of text, which is valid UTF-8 and under 4 GiB.
  Result<void> split(std::string_view text, std::vector<uint32_t>& ends) const;

 private:
  struct Code;
  explicit RegexSplitter(std::shared_ptr<const std::vector<Code>> codes)
      : codes_(std::move(codes)) {}

  std::shared_ptr<const std::vector<Code>> codes_;
};

}  // namespace deepinfer::text
