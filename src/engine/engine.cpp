#include "engine/engine.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "engine/limits.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

// Invariants
//   1. running is sorted by arrival, and so is waiting; every running request arrived before every
//      waiting one.
//   2. All pages hold a full context, so the oldest running request finds room when all others gave
//      theirs back: each step makes progress.

namespace deepinfer::engine {
namespace {

using SequencePtr = std::unique_ptr<Sequence>;

constexpr double kNsPerMs = 1e6;

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

RequestStats stats_of(const Sequence& sequence) {
  RequestStats stats;
  stats.prompt_tokens = sequence.prompt_size();
  stats.completion_tokens = sequence.output_size();
  if (stats.completion_tokens > 0) {
    stats.ttft_ms = static_cast<double>(sequence.first_token_ns - sequence.added_ns) / kNsPerMs;
  }
  if (stats.completion_tokens > 1) {
    stats.tpot_ms = static_cast<double>(sequence.last_token_ns - sequence.first_token_ns) /
                    kNsPerMs / static_cast<double>(stats.completion_tokens - 1);
  }
  return stats;
}

void finish(const Sequence& sequence, FinishReason reason, Event& event) {
  event.finish = reason;
  event.stats = stats_of(sequence);
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "none";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  check(false, "finish reason");
  return {};
}

using Sink = std::function<void(Event)>;

struct Engine::State {
  State(models::Model& the_model, const Clock& the_clock) : model(the_model), clock(the_clock) {}

  models::Model& model;
  const Clock& clock;
  kernels::Isa isa = kernels::Isa::ref;
  Limits limits;
  std::unique_ptr<cache::PagePool> pool;  // before the sequences, which give pages back to it

  std::vector<SequencePtr> running;
  std::deque<SequencePtr> waiting;
  std::vector<uint64_t> cancelled;  // ids, until the next step
  uint64_t next_arrival = 0;

  StepPlan plan;
  models::StepOutput output;
  sampling::Workspace workspace;
  StepCounters counters;

  Sequence* find(uint64_t id) const;
  Result<void> check_request(const Request& request) const;
  Result<void> check_images(const Request& request, const std::string& name) const;
  void apply_cancels(const Sink& sink);
  models::SequenceStart start_of(const Sequence& sequence) const;
  void admit();
  void preempt_newest();
  bool make_room(Sequence& sequence);
  void plan_chunk(Sequence& sequence);
  void plan_step();
  void fail(Sequence& sequence, const Error& error, const Sink& sink);
  // Whether a request ended.
  bool isolate(const Error& error, const Sink& sink);
  void consume(const Sink& sink);
  void read_row(Sequence& sequence, size_t position, std::span<const float> logits, Event& event);
  void take_token(Sequence& sequence, sampling::Sampled token, Event& event);
};

Sequence* Engine::State::find(uint64_t id) const {
  for (const SequencePtr& sequence : running) {
    if (sequence->request.id == id) return sequence.get();
  }
  for (const SequencePtr& sequence : waiting) {
    if (sequence->request.id == id) return sequence.get();
  }
  return nullptr;
}

Result<void> Engine::State::check_request(const Request& request) const {
  const std::string name = "request " + std::to_string(request.id);
  const int64_t vocab = model.config().vocab;
  if (request.prompt.empty()) return Error::invalid(name, "the prompt is empty");
  if (request.prompt.size() > limits.context) {
    return Error::invalid(name, "the prompt has " + std::to_string(request.prompt.size()) +
                                    " tokens, the context is " + std::to_string(limits.context));
  }
  const auto check_ids = [&](const std::vector<int32_t>& ids, const char* what) -> Result<void> {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && ids[i] < vocab) continue;
      return Error::invalid(name, std::string(what) + " " + std::to_string(i) + " is id " +
                                      std::to_string(ids[i]) + ", the vocabulary has " +
                                      std::to_string(vocab));
    }
    return {};
  };
  TRY(check_ids(request.prompt, "prompt token"));
  TRY(check_ids(request.sampling.banned_ids, "banned token"));
  TRY(sampling::validate(request.sampling));
  TRY(check_images(request, name));
  return {};
}

Result<void> Engine::State::check_images(const Request& request, const std::string& name) const {
  size_t end = 0;
  for (const PromptImage& image : request.images) {
    const size_t count = image.embeddings.size();
    if (count == 0 || image.start < end || count > request.prompt.size() ||
        image.start > request.prompt.size() - count) {
      return Error::invalid(name, "an image at position " + std::to_string(image.start) + " has " +
                                      std::to_string(count) + " positions, free are " +
                                      std::to_string(end) + " to " +
                                      std::to_string(request.prompt.size()));
    }
    if (count > limits.rows) {
      return Error::invalid(name, "an image has " + std::to_string(count) +
                                      " positions, a step has " + std::to_string(limits.rows) +
                                      " rows");
    }
    end = image.start + count;
  }
  if (!request.images.empty() && request.want_prompt_logprobs) {
    return Error::invalid(name, "prompts with images have no log-probabilities");
  }
  return {};
}

void Engine::State::apply_cancels(const Sink& sink) {
  for (uint64_t id : std::exchange(cancelled, {})) {
    const Sequence* sequence = find(id);
    if (sequence == nullptr) continue;  // ended in the meantime, or cancelled twice
    Event event{.request = id};
    finish(*sequence, FinishReason::cancelled, event);
    const auto same = [&](const SequencePtr& other) { return other.get() == sequence; };
    if (std::erase_if(running, same) == 0) std::erase_if(waiting, same);
    sink(std::move(event));
  }
}

// A prompt whose logits nobody reads runs the decoder layers for its tail only; what follows comes
// out the same.
models::SequenceStart Engine::State::start_of(const Sequence& sequence) const {
  const uint64_t tail = model.decoder_tail();
  models::SequenceStart start;
  if (tail > 0 && !sequence.request.want_prompt_logprobs && sequence.ids.size() > tail) {
    start.decoder = sequence.ids.size() - tail;
  }
  return start;
}

// Starts waiting requests, the first of them first.
void Engine::State::admit() {
  while (!waiting.empty() && running.size() < limits.sequences) {
    Sequence& sequence = *waiting.front();
    const size_t spare = running.empty() ? 0 : 1;
    if (cache::pages_for(sequence.ids.size()) + spare > pool->free_count()) return;
    sequence.cache.emplace(pool.get());
    sequence.start = start_of(sequence);
    const Result<void> reserved = sequence.cache->reserve(sequence.ids.size());
    check(reserved.ok(), "free pages were counted");
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
}

void Engine::State::preempt_newest() {
  running.back()->cache.reset();
  waiting.push_front(std::move(running.back()));
  running.pop_back();
  ++counters.preemptions;
}

// Room for all ids of a running sequence; false when it had to give way itself.
bool Engine::State::make_room(Sequence& sequence) {
  while (!sequence.cache->reserve(sequence.ids.size()).ok()) {
    const bool itself = running.back().get() == &sequence;
    check(!itself || running.size() > 1, "one sequence exceeds all pages");
    preempt_newest();
    if (itself) return false;
  }
  return true;
}

// The next chunk of a prompt, as much as the step holds.
void Engine::State::plan_chunk(Sequence& sequence) {
  const size_t room = limits.rows - plan.rows();
  const size_t pending = sequence.pending();
  const size_t rows =
      StepPlan::rows_within(sequence, std::min(pending, room), limits.logits_rows - plan.wanted());
  const size_t whole =
      cut_chunk(sequence.cached(), rows, sequence.spans, sequence.ids.size(), room, plan.empty());
  sequence.waits_for_span = whole == 0 && rows > 0;
  if (whole > 0) plan.add(sequence, whole);
}

void Engine::State::plan_step() {
  plan.clear();
  // An image that found no room beside the decoding rows has the next step for itself, and so has
  // a sequence that may have made a step fail.
  for (const SequencePtr& sequence : running) {
    if (sequence->waits_for_span || sequence->alone) return plan_chunk(*sequence);
  }
  // Decoding rows first, oldest first: what is preempted is newer than what is planned.
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    if (sequence.pending() == 1 && make_room(sequence)) plan.add(sequence, 1);
  }
  for (const SequencePtr& sequence : running) {
    if (sequence->pending() > 1) plan_chunk(*sequence);
  }
}

void Engine::State::fail(Sequence& sequence, const Error& error, const Sink& sink) {
  Event event{.request = sequence.request.id};
  finish(sequence, FinishReason::error, event);
  event.error = error.text();
  std::erase_if(running, [&](const SequencePtr& other) { return other.get() == &sequence; });
  sink(std::move(event));
}

// A step failed: finds out whose fault it was, so that only that request ends. Few rows can be
// computed again on the same cache; a longer chunk may have overwritten its own window, so its
// sequence starts over, in steps of its own until its prompt is done.
bool Engine::State::isolate(const Error& error, const Sink& sink) {
  const std::vector<Sequence*> members = plan.sequences();
  std::vector<size_t> rows;
  for (size_t i = 0; i < members.size(); ++i) rows.push_back(plan.row_count(i));
  if (members.size() == 1) {
    fail(*members.front(), error, sink);
    return true;
  }
  bool ended = false;
  for (size_t i = 0; i < members.size(); ++i) {
    Sequence& sequence = *members[i];
    if (rows[i] > 1 || rows[i] > model.rollback_rows()) {
      sequence.cache.emplace(pool.get());
      const Result<void> reserved = sequence.cache->reserve(sequence.ids.size());
      check(reserved.ok(), "the pages were its own");
      sequence.start = start_of(sequence);
      sequence.alone = true;
      continue;
    }
    plan.clear();
    plan.add(sequence, rows[i]);
    const Result<void> again = model.forward(plan.batch(), output);
    ++counters.steps;
    counters.rows += rows[i];
    if (again.ok()) {
      consume(sink);
    } else {
      fail(sequence, again.error(), sink);
      ended = true;
    }
  }
  return ended;
}

void Engine::State::take_token(Sequence& sequence, sampling::Sampled token, Event& event) {
  const int64_t now = clock.now_ns();
  if (sequence.output_size() == 0) sequence.first_token_ns = now;
  sequence.last_token_ns = now;
  sequence.ids.push_back(token.id);
  const std::vector<uint32_t>& eos = model.config().eos_ids;
  const bool stops =
      contains(sequence.request.stop_ids, token.id) ||
      (!sequence.request.ignore_eos &&
       std::find(eos.begin(), eos.end(), static_cast<uint32_t>(token.id)) != eos.end());
  event.has_token = true;
  event.token = std::move(token);
  if (stops) finish(sequence, FinishReason::stop, event);
}

// One row of logits: the score of the next prompt id, or a new token.
void Engine::State::read_row(Sequence& sequence, size_t position, std::span<const float> logits,
                             Event& event) {
  const sampling::Parameters& parameters = sequence.request.sampling;
  const bool scores = position + 1 < sequence.prompt_size();
  Result<sampling::Sampled> result =
      scores ? sampling::score(isa, logits, sequence.ids[position + 1], parameters.top_logprobs)
             : sampling::sample(isa, logits, parameters, position, sequence.ids, workspace);
  if (!result.ok()) {
    finish(sequence, FinishReason::error, event);
    event.error = result.error().text();
  } else if (scores) {
    if (event.prompt_scores.empty()) event.prompt_first = position + 1;
    event.prompt_scores.push_back(std::move(result).value());
    sequence.scored = position + 2;
  } else {
    take_token(sequence, std::move(result).value(), event);
  }
}

void Engine::State::consume(const Sink& sink) {
  const size_t vocab = model.config().vocab;
  size_t logits_row = 0;
  for (size_t i = 0; i < plan.sequences().size(); ++i) {
    Sequence& sequence = *plan.sequences()[i];
    const size_t first = sequence.cached();
    const size_t rows = plan.row_count(i);
    const size_t length = sequence.ids.size();  // before this step's token
    Event event{.request = sequence.request.id};
    for (size_t r = 0; r < rows; ++r) {
      if (!plan.wants(plan.first_row(i) + r)) continue;
      const float* logits = output.row(logits_row++, vocab);
      if (event.finish != FinishReason::none) continue;
      read_row(sequence, first + r, {logits, vocab}, event);
    }
    sequence.cache->set_length(first + rows);
    if (first + rows == length) sequence.alone = false;
    (first + 1 < length ? counters.prefill_rows : counters.decode_rows) += rows;
    const bool computed = first + rows >= sequence.prompt_size();
    if (event.finish == FinishReason::none && computed &&
        sequence.output_size() >= sequence.output_limit) {
      finish(sequence, FinishReason::length, event);
    }
    const bool ends = event.finish != FinishReason::none;
    if (ends) {
      std::erase_if(running, [&](const SequencePtr& other) { return other.get() == &sequence; });
    }
    if (ends || event.has_token || !event.prompt_scores.empty()) sink(std::move(event));
  }
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(models::Model& model, const Options& options,
                                               const Clock& clock) {
  auto state = std::make_unique<State>(model, clock);
  state->isa = options.isa;
  state->limits = TRY(compute_limits(model, options));
  state->pool = TRY(cache::PagePool::create(model.cache_layout(), state->limits.pages));
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const Limits& Engine::limits() const { return state_->limits; }
bool Engine::busy() const { return !state_->running.empty() || !state_->waiting.empty(); }
const Engine::StepCounters& Engine::counters() const { return state_->counters; }
size_t Engine::pages_in_use() const {
  return state_->pool->page_count() - state_->pool->free_count();
}

Result<void> Engine::validate(const Request& request) const {
  return state_->check_request(request);
}

Result<void> Engine::add(Request request) {
  State& state = *state_;
  const std::string name = "request " + std::to_string(request.id);
  if (state.find(request.id) != nullptr) return Error::invalid(name, "the id is in use");
  TRY(state.check_request(request));
  if (state.waiting.size() >= state.limits.waiting) {
    return Error::exhausted(name, std::to_string(state.limits.waiting) + " requests wait already");
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->arrival = state.next_arrival++;
  sequence->added_ns = state.clock.now_ns();
  sequence->ids = request.prompt;
  sequence->output_limit =
      std::min(request.max_tokens, state.limits.context - request.prompt.size());
  for (const PromptImage& image : request.images) {
    sequence->spans.push_back({.start = image.start, .count = image.embeddings.size()});
  }
  sequence->request = std::move(request);
  state.waiting.push_back(std::move(sequence));
  return {};
}

Result<void> Engine::cancel(uint64_t request) {
  if (state_->find(request) == nullptr) {
    return Error::not_found("request " + std::to_string(request), "is not running or waiting");
  }
  state_->cancelled.push_back(request);
  return {};
}

Result<void> Engine::step(const Sink& sink) {
  State& state = *state_;
  const int64_t begin = state.clock.now_ns();
  state.apply_cancels(sink);
  state.admit();
  state.plan_step();
  if (state.plan.empty()) {
    check(!busy(), "requests wait and none can run");
    return {};
  }
  const int64_t planned = state.clock.now_ns();
  Result<void> done = state.model.forward(state.plan.batch(), state.output);
  const int64_t computed = state.clock.now_ns();
  ++state.counters.steps;
  state.counters.rows += state.plan.rows();
  state.counters.compute_seconds += seconds_of(computed - planned);
  if (!done.ok()) {
    const bool ended = state.isolate(done.error(), sink);
    if (ended && !busy()) return done;
    return {};
  }
  check(state.output.wanted_rows == state.plan.wanted(), "rows of logits");
  state.consume(sink);
  state.counters.plan_seconds +=
      seconds_of(planned - begin) + seconds_of(state.clock.now_ns() - computed);
  return {};
}

// No step is in flight between two calls of step().
Result<void> Engine::drain(const Sink&) { return {}; }

void Engine::check_invariants() const {
  const State& state = *state_;
  state.pool->check_invariants();
  check(state.running.size() <= state.limits.sequences, "sequences running");
  check(state.waiting.size() <= state.limits.waiting + state.limits.sequences, "requests waiting");
  size_t pages = 0;
  uint64_t next_arrival = 0;
  for (const SequencePtr& sequence : state.running) {
    check(sequence->arrival >= next_arrival, "running out of order");
    next_arrival = sequence->arrival + 1;
    check(sequence->cache.has_value() && sequence->pending() >= 1, "running without work");
    pages += sequence->cache->page_count();
  }
  for (const SequencePtr& sequence : state.waiting) {
    check(sequence->arrival >= next_arrival, "waiting out of order");
    next_arrival = sequence->arrival + 1;
    check(!sequence->cache.has_value(), "waiting with pages");
  }
  check(pages == pages_in_use(), "pages held outside the running sequences");
}

}  // namespace deepinfer::engine
