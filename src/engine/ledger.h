#pragma once

// Ledger: what the requests of a simulation were promised, held against every event. Texts are
// computed again from SimulatedText and the sampler alone.
//
// It watches that
//   1. every accepted choice ends exactly once, and nothing follows its end;
//   2. tokens, log-probabilities and prompt scores are those of a computation alone and in full
//      (but for requests that asked for a bounded replay);
//   3. a choice ends when, and only when, its limits, stops, cancellation, time limit or a failure
//      of its own say so, cancellations and time limits within kStepsToEnd steps;
//   4. no request waits for ever: kMostSteps steps without a token or an end are too many (a queue
//      of 200 before it, and 16 priorities of ageing, take a good half of that);
//   5. tenants share nothing, and what was not to be reused was not.
//
// The first violation is kept in failure(); later ones are dropped.
//
// Threads: one at a time.

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/simulated_model.h"

namespace deepinfer::engine {

class Ledger {
 public:
  // Steps, after the one at whose start it was due.
  static constexpr size_t kStepsToEnd = 2;
  static constexpr size_t kMostSteps = 20'000;

  // context: Limits::context. clock: the engine's.
  Ledger(size_t context, const ManualClock& clock) : context_(context), clock_(clock) {}

  void accepted(const Request& request, size_t step);
  void cancelled(uint64_t request, size_t step);  // unknown and ended ones too
  void injected_failure() { ++injected_; }
  void take(const Event& event, size_t step);
  void step_ended(size_t step);
  void finished() const;  // nothing lives; a failure otherwise

  bool lives(uint64_t request) const { return live_.contains(request); }
  size_t live() const { return live_.size(); }
  // Prompt and output of choice 0 as far as known; empty: unknown, or nothing to build on.
  std::vector<int32_t> text_of(uint64_t request) const;
  const std::string& failure() const { return failure_; }

  static constexpr std::array<std::string_view, 5> kResumeNames = {"cold", "snapshot", "pages",
                                                                   "replay", "fork"};
  // What a simulation came across: that it tries what it claims to. A plain value without pointers.
  struct Seen {
    uint64_t requests = 0, choices = 0, tokens = 0, cached_tokens = 0, prompt_tokens = 0;
    uint64_t drafted = 0, accepted = 0, preemptions = 0;
    uint64_t cancelled = 0, errors = 0, timeouts = 0;
    uint64_t most_steps = 0;                // without a token or an end
    uint64_t resumes[kResumeNames.size()];  // choices
    void add(const Seen& other);
    std::string text() const;
  };
  const Seen& seen() const { return seen_; }

 private:
  struct Choice {
    std::vector<int32_t> ids;  // prompt and output
    SimulatedText text;        // of ids
    bool ended = false;
    size_t step = 0;  // of the last token
    size_t drafted_tokens = 0;
    double logprob_sum = 0;
  };
  struct Account {
    Request request;
    std::vector<Choice> choices;
    size_t live = 0;
    size_t added = 0, cancel_step = SIZE_MAX, late_step = SIZE_MAX;
    int64_t added_ns = 0;
    size_t scored = 1;
    bool poisoned = false, approximate = false;
  };

  void fail(const Event& event, const std::string& what) const;
  void take_scores(Account& account, const Event& event);
  void take_token(Account& account, Choice& choice, const Event& event);
  sampling::SampleRow row_of(const Account& account, const Choice& choice) const;
  FinishReason expected_end(const Account& account, const Choice& choice) const;
  void take_end(Account& account, Choice& choice, const Event& event, FinishReason expected);
  void check_stats(const Account& account, const Choice& choice, const Event& event);
  void check_error(const Account& account, const Event& event);
  bool timed_out(const Account& account) const;

  size_t context_;
  const ManualClock& clock_;
  std::map<uint64_t, Account> live_;
  std::map<uint64_t, std::vector<int32_t>> ended_texts_;  // the last kKeptTexts
  // First ids of what each tenant was served: what can be found in a cache.
  std::set<std::pair<uint64_t, std::vector<int32_t>>> heads_;
  std::vector<int32_t> banned_;  // of row_of()
  mutable std::vector<float> logits_;
  sampling::Workspace workspace_;
  size_t injected_ = 0;
  Seen seen_{};
  mutable std::string failure_;
};

}  // namespace deepinfer::engine
