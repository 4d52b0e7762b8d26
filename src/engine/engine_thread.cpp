#include "engine/engine_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/progress_watch.h"
#include "engine/step_trace.h"

// Invariants
//   1. live holds every accepted request until the event that ends its last choice; inbox holds
//      those of them that the engine does not know yet.
//   2. undelivered = live, and the requests whose last event is inside of its sink.
//   3. Only the engine's thread calls the engine (limits() and validate() are constant) and sinks;
//      never under the mutex.

namespace deepinfer::engine {
namespace {

constexpr size_t kMostProfiledSteps = 1000;
// Between steps that did nothing: what they wait for (a free page, a picture) comes from elsewhere.
constexpr std::chrono::milliseconds kIdleStep{1};

struct Live {
  Sink sink;
  uint32_t choices = 1;  // that did not end
  uint64_t tokens = 0;   // prompt and output
  bool cancelled = false;
};

std::string name_of(uint64_t request) { return "request " + std::to_string(request); }

std::vector<StepTrace::Argument> trace_arguments(const Engine::StepCounters& before,
                                                 const Engine::StepCounters& after) {
  const auto rows = [&](uint64_t Engine::StepCounters::* field) {
    return static_cast<double>(after.*field - before.*field);
  };
  const auto ms = [&](double Engine::StepCounters::* field) {
    return 1e3 * (after.*field - before.*field);
  };
  using Counters = Engine::StepCounters;
  return {{"rows", rows(&Counters::rows)},
          {"prefill_rows", rows(&Counters::prefill_rows)},
          {"decode_rows", rows(&Counters::decode_rows)},
          {"verify_rows", rows(&Counters::verify_rows)},
          {"accepted_rows", rows(&Counters::accepted_rows)},
          {"discarded_rows", rows(&Counters::discarded_rows)},
          {"preemptions", rows(&Counters::preemptions)},
          {"plan_ms", ms(&Counters::plan_seconds)},
          {"compute_ms", ms(&Counters::compute_seconds)},
          {"sample_ms", ms(&Counters::sample_seconds)},
          {"bubble_ms", ms(&Counters::bubble_seconds)}};
}

}  // namespace

struct EngineThread::State {
  State(std::unique_ptr<Engine> the_engine, const Clock& the_clock)
      : engine(std::move(the_engine)), clock(the_clock) {}

  std::unique_ptr<Engine> engine;
  const Clock& clock;

  mutable std::mutex mutex;
  std::condition_variable wake;   // the engine's thread
  std::condition_variable moved;  // those who wait for it: an end was delivered, a step traced
  std::unordered_map<uint64_t, Live> live;
  std::deque<Request> inbox;
  std::vector<uint64_t> cancels;
  size_t undelivered = 0;
  uint64_t live_tokens = 0;
  size_t live_choices = 0;
  bool draining = false;
  bool stopping = false;
  bool stepping = false;
  int64_t step_began_ns = 0;
  size_t events = 0;  // delivered in this step
  ProgressWatch progress;
  Engine::StepCounters counters;
  std::string last_error;
  std::shared_ptr<StepTrace> trace;    // wanted by a caller of profile()
  size_t traced = 0;                   // its steps
  std::shared_ptr<StepTrace> tracing;  // being written; the engine's thread only

  std::thread thread;  // last: it uses all of the above

  void run();
  void hand_over(std::deque<Request> requests, const std::vector<uint64_t>& to_cancel);
  bool offer(Request& request);
  void deliver(Event event);
  void end_all_choices(uint64_t request, FinishReason reason, const std::string& error);
  bool step();
  void cancel_locked(uint64_t request);
  void cancel_all_locked();
};

// --- Any thread, under the mutex -------------------------------------------------------------

void EngineThread::State::cancel_locked(uint64_t request) {
  const auto found = live.find(request);
  if (found == live.end() || found->second.cancelled) return;
  found->second.cancelled = true;
  cancels.push_back(request);
}

void EngineThread::State::cancel_all_locked() {
  for (auto& [request, entry] : live) {
    if (!std::exchange(entry.cancelled, true)) cancels.push_back(request);
  }
}

// --- The engine's thread ---------------------------------------------------------------------

void EngineThread::State::deliver(Event event) {
  Sink* sink = nullptr;
  Sink last;
  {
    const std::lock_guard lock(mutex);
    ++events;
    const auto found = live.find(event.request);
    check(found != live.end(), "an event of a request that has ended");
    Live& entry = found->second;
    if (event.has_token) {
      ++entry.tokens;
      ++live_tokens;
    }
    if (event.finish != FinishReason::none) --live_choices;
    if (event.finish != FinishReason::none && --entry.choices == 0) {
      last = std::move(entry.sink);
      live_tokens -= entry.tokens;
      live.erase(found);
    } else {
      sink = &entry.sink;  // stays where it is: only this thread erases
    }
  }
  if (sink != nullptr) return (*sink)(std::move(event));
  last(std::move(event));
  const std::lock_guard lock(mutex);
  --undelivered;
  moved.notify_all();
}

// The end of a request that the engine does not know.
void EngineThread::State::end_all_choices(uint64_t request, FinishReason reason,
                                          const std::string& error) {
  uint32_t choices = 0;
  {
    const std::lock_guard lock(mutex);
    choices = live.at(request).choices;
  }
  for (uint32_t choice = 0; choice < choices; ++choice) {
    deliver({.request = request, .choice = choice, .finish = reason, .error = error});
  }
}

// False: the engine has no room yet, the request waits on.
bool EngineThread::State::offer(Request& request) {
  const uint64_t id = request.id;
  size_t known = 0;  // sequences, at most
  {
    const std::lock_guard lock(mutex);
    known = live_choices;
  }
  // Only a full engine refuses for want of room, so only then the request must survive the try.
  const bool may_refuse = known > engine->limits().waiting && engine->busy();
  const Result<void> added =
      may_refuse ? engine->add(Request(request)) : engine->add(std::move(request));
  if (!added.ok()) {
    if (may_refuse && added.error().kind == ErrorKind::exhausted) return false;
    end_all_choices(id, FinishReason::error, added.error().text());
  }
  return true;
}

void EngineThread::State::hand_over(std::deque<Request> requests,
                                    const std::vector<uint64_t>& to_cancel) {
  while (!requests.empty() && offer(requests.front())) requests.pop_front();
  std::vector<uint64_t> waiting;
  for (uint64_t id : to_cancel) {
    const auto is_it = [&](const Request& request) { return request.id == id; };
    if (std::erase_if(requests, is_it) > 0) {
      waiting.push_back(id);
    } else if (const Result<void> done = engine->cancel(id); !done.ok()) {
      log_debug("{}", done.error().text());  // it ended in the meantime
    }
  }
  {
    const std::lock_guard lock(mutex);
    inbox.insert(inbox.begin(), std::make_move_iterator(requests.begin()),
                 std::make_move_iterator(requests.end()));
  }
  for (uint64_t id : waiting) end_all_choices(id, FinishReason::cancelled, "");
}

// Whether anything came of it.
bool EngineThread::State::step() {
  Engine::StepCounters before;
  const int64_t began = clock.now_ns();
  {
    const std::lock_guard lock(mutex);
    before = counters;
    stepping = true;
    step_began_ns = began;
    tracing = trace;
  }
  engine->trace(tracing.get());
  const Sink sink = [this](Event event) { deliver(std::move(event)); };
  const Result<void> done = engine->step(sink);
  if (!engine->busy()) {
    const Result<void> drained = engine->drain(sink);
    if (!drained.ok()) log_error("engine: {}", drained.error().text());
  }
  if (!done.ok()) log_error("engine: {}", done.error().text());
  const int64_t now = clock.now_ns();
  const std::lock_guard lock(mutex);
  stepping = false;
  if (!done.ok()) last_error = done.error().text();
  counters = engine->counters();
  const size_t told = std::exchange(events, 0);
  progress.step_ended(now, told, counters.prefill_rows - before.prefill_rows, live_tokens);
  if (tracing && counters.steps != before.steps) {
    tracing->step(began, now, trace_arguments(before, counters));
  }
  if (tracing && tracing == trace) {
    traced = tracing->steps_seen();
    if (tracing->complete()) {
      trace.reset();
      moved.notify_all();
    }
  }
  return told > 0 || counters.steps != before.steps;
}

void EngineThread::State::run() {
  bool worked = true;
  std::unique_lock lock(mutex);
  while (true) {
    const auto called = [&] { return stopping || !cancels.empty() || !inbox.empty(); };
    if (!engine->busy()) {
      wake.wait(lock, called);
    } else if (!worked) {
      wake.wait_for(lock, kIdleStep, called);
    }
    if (stopping) cancel_all_locked();
    if (stopping && live.empty()) return;
    std::deque<Request> requests = std::exchange(inbox, {});
    const std::vector<uint64_t> to_cancel = std::exchange(cancels, {});
    lock.unlock();
    hand_over(std::move(requests), to_cancel);
    if (engine->busy()) worked = step();
    lock.lock();
    check(engine->busy() || live.size() == inbox.size(), "the engine lost the end of a request");
  }
}

// --- The joint -------------------------------------------------------------------------------

EngineThread::EngineThread(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->thread = std::thread([raw = state_.get()] { raw->run(); });
}

std::unique_ptr<EngineThread> EngineThread::start(std::unique_ptr<Engine> engine,
                                                  const Clock& clock) {
  check(engine != nullptr && !engine->busy(), "an engine thread starts with an idle engine");
  return std::unique_ptr<EngineThread>(
      new EngineThread(std::make_unique<State>(std::move(engine), clock)));
}

EngineThread::~EngineThread() {
  check(std::this_thread::get_id() != state_->thread.get_id(), "destroyed by a sink");
  {
    const std::lock_guard lock(state_->mutex);
    state_->draining = true;
    state_->stopping = true;
  }
  state_->wake.notify_all();
  state_->moved.notify_all();
  state_->thread.join();
}

Result<void> EngineThread::add(Request request, Sink sink) {
  State& state = *state_;
  const std::string name = name_of(request.id);
  if (!sink) return Error::invalid(name, "has no sink");
  if (request.choices == 0) return Error::invalid(name, "asks for 0 choices");
  TRY(state.engine->validate(request));
  {
    const std::lock_guard lock(state.mutex);
    if (state.draining) {
      return Error{ErrorKind::cancelled, name, "the engine takes no more requests", ""};
    }
    if (state.live.contains(request.id)) return Error::invalid(name, "the id is in use");
    const size_t most = limits().waiting + limits().sequences;
    if (state.live_choices + request.choices > most) {
      return Error::exhausted(name, std::to_string(state.live_choices) +
                                        " sequences live already, at most " + std::to_string(most) +
                                        " may");
    }
    if (state.undelivered == 0) state.progress.begin(state.clock.now_ns());
    state.live[request.id] = {
        .sink = std::move(sink), .choices = request.choices, .tokens = request.prompt.size()};
    state.live_tokens += request.prompt.size();
    state.live_choices += request.choices;
    ++state.undelivered;
    state.inbox.push_back(std::move(request));
  }
  state.wake.notify_one();
  return {};
}

void EngineThread::cancel(uint64_t request) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->cancel_locked(request);
  }
  state_->wake.notify_one();
}

void EngineThread::drain(std::chrono::milliseconds patience) {
  State& state = *state_;
  check(std::this_thread::get_id() != state.thread.get_id(), "drained by a sink");
  std::unique_lock lock(state.mutex);
  state.draining = true;
  const auto all_ended = [&] { return state.undelivered == 0; };
  if (state.moved.wait_for(lock, patience, all_ended)) return;
  state.cancel_all_locked();
  state.wake.notify_one();
  state.moved.wait(lock, all_ended);
}

EngineThread::Heartbeat EngineThread::heartbeat() const {
  const std::lock_guard lock(state_->mutex);
  return {.last_progress_ns = state_->progress.last_ns(),
          .live = state_->undelivered,
          .steps = state_->counters.steps};
}

std::string EngineThread::stuck(std::chrono::milliseconds patience) const {
  const State& state = *state_;
  const int64_t now = state.clock.now_ns();
  const std::lock_guard lock(state.mutex);
  const int64_t still = now - state.progress.last_ns();
  if (state.undelivered == 0 || still <= std::chrono::nanoseconds(patience).count()) return "";
  std::string text = std::to_string(state.undelivered) + " requests live (" +
                     std::to_string(state.inbox.size()) +
                     " not handed over) and no token, prompt row or end came for " +
                     std::to_string(seconds_of(still)) + " s: ";
  if (state.stepping) {
    text += "step " + std::to_string(state.counters.steps) + " runs since " +
            std::to_string(seconds_of(now - state.step_began_ns)) + " s";
  } else {
    text += "after step " + std::to_string(state.counters.steps);
  }
  if (state.progress.rows_since_event() > 0) {
    text += "; " + std::to_string(state.progress.rows_since_event()) +
            " rows of prompts since the last event";
  }
  if (!state.last_error.empty()) text += "; last error: " + state.last_error;
  return text;
}

Engine::StepCounters EngineThread::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

const Limits& EngineThread::limits() const { return state_->engine->limits(); }

Result<std::string> EngineThread::profile(size_t steps, std::chrono::milliseconds patience) {
  State& state = *state_;
  check(std::this_thread::get_id() != state.thread.get_id(), "profiled by a sink");
  if (steps == 0 || steps > kMostProfiledSteps) {
    return Error::invalid("profile", std::to_string(steps) + " steps, allowed are 1 to " +
                                         std::to_string(kMostProfiledSteps));
  }
  std::unique_lock lock(state.mutex);
  if (state.trace) return Error::exhausted("profile", "another one runs");
  const auto trace = std::make_shared<StepTrace>(steps);
  state.trace = trace;
  state.traced = 0;
  // The engine's thread takes it away when it is complete, and does not touch it from then on.
  state.moved.wait_for(lock, patience, [&] { return state.trace != trace || state.stopping; });
  const bool complete = state.trace != trace;
  if (!complete) state.trace.reset();
  const size_t traced = state.traced;
  lock.unlock();
  if (!complete) {
    return Error::exhausted("profile", "only " + std::to_string(traced) + " of " +
                                           std::to_string(steps) + " steps ran in the time given");
  }
  return trace->json();
}

}  // namespace deepinfer::engine
