#pragma once

// Reply: an answer on its way, to be pulled by another thread than the one that computes it.
//
//   while (std::optional<Reply::Piece> piece = reply->next(std::chrono::seconds(1)))
//     std::cout << piece->text;
//   const Answer& answer = reply->wait();
//
// Bounded by the answer's own length: a reader that is slow, or gone, holds up nobody.
//
// Threads: all functions from any.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "llm/prompt.h"

namespace deepinfer::llm {

class Reply {
 public:
  struct Piece {
    uint32_t choice = 0;  // as Delta::choice
    std::string text;
  };

  // Waits for text; what came since the last call and belongs to one choice comes together. nullopt
  // when all was read and the answer is complete, and on timeout.
  std::optional<Piece> next(std::chrono::milliseconds timeout);
  bool ended() const;  // complete; text may still be unread
  // Waits for the end; the reference lives as long as the Reply.
  const Answer& wait() const;

  void take(const Delta& delta);  // of whoever computes

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable moved_;
  std::deque<Piece> pieces_;
  std::optional<Answer> answer_;
};

}  // namespace deepinfer::llm
