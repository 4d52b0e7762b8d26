#include "speculation/draft_gate.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace deepinfer::speculation {
namespace {

constexpr double kKept = 0.95;       // of an observation, at the next one of its position
constexpr double kFaded = 0.98;      // of an observation, at one that did not reach its position
constexpr double kFirstGuess = 0.5;  // acceptance before anything is known, worth one observation
// The budget holds this many rows, or rows for this many steps' time, whichever is more.
constexpr double kMostRows = 16;
constexpr double kMostSteps = 4;
// Failures in a row that are less likely than this by the estimate: the text has changed.
constexpr double kSurprise = 1.5e-3;
// A count must beat plain decoding by this factor, so that a coin toss does not pay for its noise.
constexpr double kWorthwhile = 1.02;

}  // namespace

double DraftGate::acceptance(size_t position) const {
  // An unknown position is taken to be like the one before it.
  double guess = kFirstGuess;
  for (size_t i = 0; i <= std::min(position, kMost - 1); ++i) {
    guess = (stood_[i] + guess) / (judged_[i] + 1.0);
  }
  return guess;
}

size_t DraftGate::best_count(size_t most, double cost) const {
  double guess = kFirstGuess, survives = 1, tokens = 1, best_rate = kWorthwhile;
  size_t best = 0;
  for (size_t g = 1; g <= std::min(most, kMost); ++g) {
    guess = (stood_[g - 1] + guess) / (judged_[g - 1] + 1.0);
    survives *= guess;
    tokens += survives;
    const double rate = tokens / (1.0 + static_cast<double>(g) * cost);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = g;
  }
  return best;
}

double DraftGate::most_budget() const { return std::max(kMostRows, kMostSteps / cost_); }

bool DraftGate::can_pay() const { return cost_ * kWorthwhile < 1; }

void DraftGate::forget() {
  std::fill(stood_, stood_ + kMost, 0.0);
  std::fill(judged_, judged_ + kMost, 0.0);
  surprise_ = 1;
}

void DraftGate::close(uint32_t pause) {
  open_ = false;
  pause_ = pause_length_ = pause;
}

size_t DraftGate::drafts(size_t most, double cost_of_row) {
  cost_ = cost_of_row > 0 && std::isfinite(cost_of_row) ? cost_of_row : kUnknownCost;
  budget_ = std::min(budget_ + kEarned, most_budget());
  if (pause_ > 0) --pause_;
  if (most == 0 || budget_ < 1 || !can_pay()) return 0;
  if (open_) {
    const size_t best = best_count(most, cost_);
    if (best > 0) return std::min(best, static_cast<size_t>(budget_));
    close(kShortestPause);
  }
  return pause_ > 0 ? 0 : 1;
}

void DraftGate::observe(size_t drafted, size_t accepted) {
  check(accepted <= drafted, "more drafts stood than were judged");
  if (drafted == 0) return;
  // Success after a pause, or too many failures: what was learned is about another text.
  surprise_ = accepted > 0 ? 1.0 : surprise_ * (1.0 - acceptance(0));
  if (surprise_ < kSurprise || (!open_ && accepted > 0 && stood_[0] < 0.5 * judged_[0])) forget();
  const size_t judged = std::min({drafted, accepted + 1, kMost});
  for (size_t i = 0; i < kMost; ++i) {
    const double kept = i < judged ? kKept : kFaded;
    stood_[i] = stood_[i] * kept + (i < accepted && i < judged ? 1.0 : 0.0);
    judged_[i] = judged_[i] * kept + (i < judged ? 1.0 : 0.0);
  }
  budget_ += static_cast<double>(accepted) / cost_ - static_cast<double>(drafted);
  budget_ = std::clamp(budget_, 0.0, most_budget());
  if (best_count(kMost, cost_) > 0) {
    open_ = true;
    pause_ = 0;
  } else {
    // A try that fails makes the next pause longer.
    close(open_ || accepted > 0 ? kShortestPause : std::min(2 * pause_length_, kLongestPause));
  }
}

}  // namespace deepinfer::speculation
