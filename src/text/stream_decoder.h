#pragma once

// StreamDecoder: ids one by one to text that is safe to show. It holds text back while the last
// character is incomplete.
//
//   StreamDecoder decoder(tokenizer, SkipSpecial::yes);
//   for (int32_t id : generated) send(decoder.push(id));
//   send(decoder.flush());
//
// Rule: an id joins the ids that wait; when the text of the waiting ids is empty or ends in U+FFFD
// (an incomplete or invalid sequence, or that character itself) they keep waiting, else the text is
// released. What push() returned so far plus flush() equals decode() of all ids. The reference
// drops what still waits when the stream ends: a caller who wants that does not call flush().
//
// Each id costs time in proportion to its bytes, however long the wait. Threads: one at a time.

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace deepinfer::text {

class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, SkipSpecial skip);

  // The text released by this id, often empty.
  std::string push(int32_t id);
  // The text of the ids that wait, a cut character as U+FFFD; afterwards nothing waits.
  std::string flush();
  // Ids that gave no text yet.
  size_t waiting() const { return waiting_; }

 private:
  Tokenizer tokenizer_;
  SkipSpecial skip_;
  size_t waiting_ = 0;
  std::string text_;  // of the waiting ids, without tail_
  std::string tail_;  // start of a character that is not complete, at most 3 bytes
};

}  // namespace deepinfer::text
