#include "apps/selftest_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/clock.h"

namespace deepinfer::apps {
namespace {

using engine::LoopMode;

constexpr size_t kTokens = 12;  // of an answer
// Where a resumed prompt leaves what is known: around the borders of pages and of windows.
constexpr size_t kKnown[] = {127, 128, 129, 130, 255, 256, 257, 383, 384, 385, 511, 512, 513};
constexpr size_t kNew = 5;  // ids of its own
constexpr size_t kMostContext = 640;
constexpr uint64_t kSnapshotBytes = uint64_t{256} << 20;
// Nats of one log-probability between a bounded replay and the exact prompt. Windows that begin
// empty change the answer; what is checked is that it stays near.
constexpr double kReplayTolerance = 1.0;

}  // namespace

EnginePaths::EnginePaths(models::Model& model, ThreadPool& pool, kernels::Isa isa,
                         const std::vector<int32_t>& ids, Report report)
    : model_(model),
      pool_(pool),
      isa_(isa),
      context_(std::min<size_t>(model.config().context, kMostContext)),
      report_(std::move(report)) {
  for (size_t i = 0; i < context_; ++i) ids_.push_back(ids[i % ids.size()]);
}

Result<std::unique_ptr<engine::Engine>> EnginePaths::open(LoopMode mode, bool prefix_cache,
                                                          size_t pages) const {
  engine::Engine::Options options;
  options.max_sequences = 8;
  options.max_rows = 256;
  options.context = std::min(context_, pages * cache::kTokensPerPage);
  options.cache_bytes = pages * model_.cache_layout().page_bytes();
  options.prefix_cache = prefix_cache;
  options.snapshot_bytes = prefix_cache ? kSnapshotBytes : 0;
  options.identity = {1, 1};  // nothing outlives the engine
  options.mode = mode;
  options.isa = isa_;
  options.pool = &pool_;
  return engine::Engine::create(model_, options, system_clock());
}

engine::Request EnginePaths::request(size_t prompt, bool seeded) const {
  engine::Request request;
  request.prompt.assign(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(prompt));
  request.max_tokens = kTokens;
  request.ignore_eos = true;
  request.sampling.temperature = seeded ? 1.0f : 0.0f;
  request.sampling.seed = 5;
  return request;
}

Result<std::vector<EnginePaths::Text>> EnginePaths::run(
    engine::Engine& engine, std::vector<engine::Request> requests) const {
  std::vector<size_t> first;  // text of each request's choice 0
  std::vector<Text> texts;
  for (size_t i = 0; i < requests.size(); ++i) {
    first.push_back(texts.size());
    texts.resize(texts.size() + requests[i].choices);
    requests[i].id = i;
    TRY(engine.add(std::move(requests[i])));
  }
  std::string failure;
  const auto take = [&](const engine::Event& event) {
    Text& text = texts[first[event.request] + event.choice];
    if (event.has_token) {
      text.ids.push_back(event.token.id);
      text.logprobs.push_back(event.token.logprob);
    }
    if (event.finish != engine::FinishReason::none) text.stats = event.stats;
    if (event.finish == engine::FinishReason::error) failure = event.error;
  };
  while (engine.busy()) TRY(engine.step(take));
  TRY(engine.drain(take));
  if (!failure.empty()) return Error{ErrorKind::internal, "engine", failure, ""};
  return texts;
}

Result<EnginePaths::Text> EnginePaths::cold(engine::Request request) const {
  const auto engine = TRY(open(LoopMode::plain, false, cache::pages_for(context_)));
  std::vector<engine::Request> requests;
  requests.push_back(std::move(request));
  std::vector<Text> texts = TRY(run(*engine, std::move(requests)));
  return std::move(texts.front());
}

// `happened`: what the path is about did take place; else it fails.
void EnginePaths::compare(std::string path, const Text& seen, const Text& wanted,
                          bool happened) const {
  Comparison result{std::move(path), "alone, cold, plain", false, 0, {}};
  const size_t count = std::min(seen.logprobs.size(), wanted.logprobs.size());
  for (size_t i = 0; i < count; ++i) {
    const double difference =
        std::abs(static_cast<double>(seen.logprobs[i]) - static_cast<double>(wanted.logprobs[i]));
    result.max_difference = std::max(result.max_difference, difference);
  }
  result.equal =
      happened && count > 0 && seen.ids == wanted.ids &&
      std::memcmp(seen.logprobs.data(), wanted.logprobs.data(), count * sizeof(float)) == 0;
  report_(result);
}

Result<void> EnginePaths::compare_company() const {
  const size_t most = context_ - kTokens;
  const size_t prompt = std::min<size_t>(200, most);
  for (const bool seeded : {false, true}) {
    const Text wanted = TRY(cold(request(prompt, seeded)));
    const std::string draw = seeded ? "seeded" : "greedy";
    for (const LoopMode mode : {LoopMode::plain, LoopMode::overlapped}) {
      const std::string loop = mode == LoopMode::plain ? "plain" : "overlap";
      const auto engine = TRY(open(mode, false, 8 * cache::pages_for(context_)));
      std::vector<engine::Request> requests;
      for (size_t i = 0; i < 6; ++i)
        requests.push_back(request(i == 3 ? prompt : std::min(most, 7 + 40 * i), seeded));
      const std::vector<Text> texts = TRY(run(*engine, std::move(requests)));
      compare(fmt::format("batch of 6, {}, {}", loop, draw), texts[3], wanted);
    }
    const auto engine = TRY(open(LoopMode::overlapped, false, cache::pages_for(context_)));
    std::vector<engine::Request> one;
    one.push_back(request(prompt, seeded));
    compare("overlap " + draw, TRY(run(*engine, std::move(one))).front(), wanted);
  }
  return {};
}

Result<void> EnginePaths::compare_resumes() const {
  for (const size_t known : kKnown) {
    if (known + kNew + kTokens > context_) continue;
    const Text wanted = TRY(cold(request(known + kNew, true)));
    const auto engine = TRY(open(LoopMode::overlapped, true, 3 * cache::pages_for(context_)));
    for (const size_t prompt : {known, known + kNew}) {
      std::vector<engine::Request> one;
      one.push_back(request(prompt, true));
      // Its answer is not part of the next prompt.
      if (prompt == known) one.front().max_tokens = 1;
      const Text text = TRY(run(*engine, std::move(one))).front();
      if (prompt == known) continue;
      compare(fmt::format("resume {}: {}, {} of {} known", known, text.stats.resume,
                          text.stats.cached_tokens, prompt),
              text, wanted, text.stats.cached_tokens > 0);
    }
  }
  return {};
}

Result<void> EnginePaths::compare_preemption() const {
  // Each needs two pages in the end, there are three.
  constexpr size_t kPrompt = 120;
  constexpr size_t kPages = 3;
  if (context_ < kPrompt + 24) return {};
  std::vector<engine::Request> wanted;
  std::vector<engine::Request> together;
  for (size_t i = 0; i < 3; ++i) {
    engine::Request one = request(kPrompt, true);
    one.max_tokens = 24;
    one.sampling.seed = i;
    std::rotate(one.prompt.begin(), one.prompt.begin() + static_cast<ptrdiff_t>(7 * i),
                one.prompt.end());
    wanted.push_back(one);
    together.push_back(std::move(one));
  }
  for (const bool prefix_cache : {true, false}) {
    const auto engine = TRY(open(LoopMode::overlapped, prefix_cache, kPages));
    const std::vector<Text> texts = TRY(run(*engine, together));
    const bool happened = engine->counters().preemptions > 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      compare(fmt::format("preempt {} of 3, {}", i + 1,
                          prefix_cache ? "kept in the prefix cache" : "computed again"),
              texts[i], TRY(cold(wanted[i])), happened);
    }
  }
  return {};
}

Result<void> EnginePaths::compare_drafts() const {
  // A short text again and again: there is something to draft from.
  engine::Request repeated = request(std::min<size_t>(96, context_ - 3 * kTokens), false);
  for (size_t i = 16; i < repeated.prompt.size(); ++i) repeated.prompt[i] = repeated.prompt[i % 16];
  repeated.max_tokens = 3 * kTokens;
  for (const bool seeded : {false, true}) {
    repeated.sampling.temperature = seeded ? 0.7f : 0.0f;
    const Text wanted = TRY(cold(repeated));
    for (const LoopMode mode : {LoopMode::plain, LoopMode::overlapped}) {
      engine::Request drafted = repeated;
      drafted.drafting = engine::Drafting::ngram;
      const auto engine = TRY(open(mode, false, 2 * cache::pages_for(context_)));
      const Text text = TRY(run(*engine, {drafted})).front();
      compare(fmt::format("draft ngram {} {}: {} of {} stood", seeded ? "seeded" : "greedy",
                          mode == LoopMode::plain ? "plain" : "overlap", text.stats.accepted,
                          text.stats.drafted),
              text, wanted);
    }
  }
  return {};
}

Result<void> EnginePaths::compare_choices() const {
  engine::Request several = request(std::min<size_t>(131, context_ - kTokens), true);
  several.choices = 3;
  const auto engine = TRY(open(LoopMode::overlapped, true, 4 * cache::pages_for(context_)));
  const std::vector<Text> texts = TRY(run(*engine, {several}));
  for (size_t i = 0; i < texts.size(); ++i) {
    engine::Request one = several;
    one.choices = 1;
    one.sampling.seed += i;
    compare(fmt::format("batch choice {} of 3", i + 1), texts[i], TRY(cold(one)));
  }
  return {};
}

// The answer of the exact prompt is forced, so that each log-probability is about the same id.
Result<void> EnginePaths::compare_replay() const {
  const size_t least = model_.bounded_replay();
  const size_t known = context_ - kNew - kTokens;
  if (least == 0 || known <= least + kNew) return {};
  const Text wanted = TRY(cold(request(known + kNew, false)));
  const auto engine = TRY(open(LoopMode::overlapped, true, 3 * cache::pages_for(context_)));
  engine::Request before = request(known, false);
  before.max_tokens = 1;
  // Another end, so that no snapshot is near.
  for (size_t i = known - kNew; i < known; ++i) before.prompt[i] = before.prompt[i - 1];
  TRY(run(*engine, {before}));
  engine::Request replayed = request(known + kNew, false);
  replayed.forced_ids = wanted.ids;
  replayed.resume = engine::Resume::replay;
  const Text text = TRY(run(*engine, {replayed})).front();
  Comparison result{fmt::format("resume {}: {} of {} known", text.stats.resume,
                                text.stats.cached_tokens, known + kNew),
                    "alone, cold, plain",
                    false,
                    0,
                    {kReplayTolerance, 1.0}};
  for (size_t i = 0; i < text.logprobs.size(); ++i) {
    result.max_difference = std::max(
        result.max_difference,
        std::abs(static_cast<double>(text.logprobs[i]) - static_cast<double>(wanted.logprobs[i])));
  }
  result.equal = text.stats.cached_tokens > 0 && text.ids == wanted.ids &&
                 result.max_difference <= kReplayTolerance;
  report_(result);
  return {};
}

Result<void> EnginePaths::run_all() {
  TRY(compare_company());
  TRY(compare_resumes());
  TRY(compare_preemption());
  TRY(compare_drafts());
  TRY(compare_choices());
  return compare_replay();
}

}  // namespace deepinfer::apps
