#include "llm/service/reply.h"

#include <utility>

namespace deepinfer::llm {

void Reply::take(const Delta& delta) {
  {
    const std::lock_guard lock(mutex_);
    if (!delta.text.empty()) {
      if (pieces_.empty() || pieces_.back().choice != delta.choice)
        pieces_.push_back({delta.choice, ""});
      pieces_.back().text += delta.text;
    }
    if (delta.answer != nullptr) answer_ = *delta.answer;
  }
  moved_.notify_all();
}

std::optional<Reply::Piece> Reply::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  moved_.wait_for(lock, timeout, [this] { return !pieces_.empty() || answer_.has_value(); });
  if (pieces_.empty()) return std::nullopt;
  Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  return piece;
}

bool Reply::ended() const {
  const std::lock_guard lock(mutex_);
  return answer_.has_value();
}

const Answer& Reply::wait() const {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [this] { return answer_.has_value(); });
  return *answer_;
}

}  // namespace deepinfer::llm
