#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace deepinfer {
namespace {

constexpr int64_t kIntervalNs = 100'000'000;

std::string amount(uint64_t value, Progress::Unit unit) {
  if (unit == Progress::Unit::count) return fmt::format("{}", value);
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double scaled = static_cast<double>(value);
  size_t power = 0;
  for (; scaled >= 1000.0 && power + 1 < std::size(kUnits); ++power) scaled /= 1000.0;
  return power == 0 ? fmt::format("{} B", value) : fmt::format("{:.1f} {}", scaled, kUnits[power]);
}

void put(int descriptor, std::string_view text) {
  // What a terminal does not take is lost; nothing depends on it.
  const ssize_t written = ::write(descriptor, text.data(), text.size());
  (void)written;
}

}  // namespace

bool decorates(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return !(no_color && no_color[0]) && !(terminal && std::strcmp(terminal, "dumb") == 0) &&
         ::isatty(descriptor) == 1;
}

std::string progress_line(const std::string& label, uint64_t done, uint64_t total,
                          Progress::Unit unit, double seconds) {
  if (total == 0) return fmt::format("{}  {}", label, amount(done, unit));
  constexpr size_t kWidth = 24;
  done = std::min(done, total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const size_t filled = static_cast<size_t>(share * kWidth);
  std::string line = fmt::format("{}  [{}{}] {:3.0f} %  {} of {}", label, std::string(filled, '#'),
                                 std::string(kWidth - filled, '.'), 100.0 * share,
                                 amount(done, unit), amount(total, unit));
  if (done > 0 && done < total && seconds > 1.0) {
    const auto left = static_cast<uint64_t>(seconds * (1.0 - share) / share);
    line += fmt::format("  {}:{:02} left", left / 60, left % 60);
  }
  return line;
}

Progress::Progress(std::string label, uint64_t total, Unit unit, bool enabled, const Clock& clock,
                   int descriptor)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      enabled_(enabled),
      clock_(clock),
      descriptor_(descriptor),
      start_ns_(clock.now_ns()),
      next_ns_(start_ns_ + kIntervalNs) {}  // short work never shows a bar

Progress::~Progress() {
  if (drawn_) put(descriptor_, "\r\x1b[K");
}

void Progress::update(uint64_t done) {
  done_.store(done, std::memory_order_relaxed);
  advance_to(done);
}

void Progress::advance_to(uint64_t done) {
  if (!enabled_) return;
  const int64_t now = clock_.now_ns();
  int64_t due = next_ns_.load(std::memory_order_relaxed);
  if (now < due || !next_ns_.compare_exchange_strong(due, now + kIntervalNs)) return;
  draw(done, now);
}

void Progress::advance(uint64_t by) {
  advance_to(done_.fetch_add(by, std::memory_order_relaxed) + by);
}

void Progress::draw(uint64_t done, int64_t now_ns) {
  const std::lock_guard lock(drawing_);
  put(descriptor_,
      "\r" + progress_line(label_, done, total_, unit_, seconds_of(now_ns - start_ns_)) + "\x1b[K");
  drawn_ = true;
}

}  // namespace deepinfer
