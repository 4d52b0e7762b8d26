#include "apps/thinking_style.h"

#include <algorithm>

namespace deepinfer::apps {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

}  // namespace

ThinkingStyle::ThinkingStyle(bool decorated, bool starts_thinking)
    : decorated_(decorated), thinking_(starts_thinking) {}

std::string ThinkingStyle::push(std::string_view text) {
  if (!decorated_) return std::string(text);
  held_ += text;
  std::string out;
  while (true) {
    const std::string_view tag = thinking_ ? kClose : kOpen;
    const size_t found = held_.find(tag);
    size_t ready = std::min(found, held_.size());
    if (found == std::string::npos) {
      // The longest end that may become the tag waits.
      size_t keep = std::min(tag.size() - 1, held_.size());
      while (keep > 0 && !held_.ends_with(tag.substr(0, keep))) --keep;
      ready = held_.size() - keep;
    }
    if (ready > 0 && thinking_ != dimmed_) {
      out += thinking_ ? "\033[2m" : "\033[0m";
      dimmed_ = thinking_;
    }
    out += held_.substr(0, ready);
    if (found == std::string::npos) {
      held_.erase(0, ready);
      return out;
    }
    held_.erase(0, found + tag.size());
    thinking_ = !thinking_;
  }
}

std::string ThinkingStyle::flush() {
  std::string out = std::move(held_);
  held_.clear();
  if (dimmed_) out += "\033[0m";
  dimmed_ = false;
  return out;
}

}  // namespace deepinfer::apps
