#include "text/stream_decoder.h"

#include <utility>

#include "text/utf8.h"

namespace deepinfer::text {

StreamDecoder::StreamDecoder(Tokenizer tokenizer, SkipSpecial skip)
    : tokenizer_(std::move(tokenizer)), skip_(skip) {}

std::string StreamDecoder::push(int32_t id) {
  ++waiting_;
  if (skip_ == SkipSpecial::no || !tokenizer_.is_special(id)) {
    tail_ += tokenizer_.token_bytes(id);
    tail_.erase(0, append_replacing_invalid(tail_, text_));
  }
  if (text_.empty() || !tail_.empty() || text_.ends_with(kReplacement)) return {};
  waiting_ = 0;
  return std::exchange(text_, {});
}

std::string StreamDecoder::flush() {
  if (!tail_.empty()) text_ += kReplacement;
  tail_.clear();
  waiting_ = 0;
  return std::exchange(text_, {});
}

}  // namespace deepinfer::text
