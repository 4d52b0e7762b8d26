// The engine in the background: requests and cancels from many threads, ends that are never lost,
// and loops that are stuck and say so.

#include "engine/engine_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "engine/fake_model.h"
#include "engine/progress_watch.h"
#include "engine/step_trace.h"

namespace deepinfer::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLong{60'000};

std::vector<int32_t> prompt_of(size_t count, uint32_t seed) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) {
    seed = seed * 1664525u + 1013904223u;
    id = static_cast<int32_t>(2 + (seed >> 8) % (FakeModel::kVocab - 2));
  }
  return ids;
}

// A FakeModel whose steps wait until the gate is open.
class GatedModel final : public models::Model {
 public:
  FakeModel fake;

  void close() { set(false); }
  void open() { set(true); }
  void wait_until_closed_in() {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return waits_; });
  }

  const weights::ModelConfig& config() const override { return fake.config(); }
  const cache::CacheLayout& cache_layout() const override { return fake.cache_layout(); }
  size_t weight_bytes_per_step() const override { return 0; }
  size_t resident_bytes() const override { return 0; }
  const std::vector<kernels::Choice>& choices() const override { return fake.choices(); }
  void set_profiling(bool) override {}
  std::vector<models::OperationTime> take_profile() override { return {}; }
  Result<void> forward(const models::StepBatch& batch, models::StepOutput& output) override {
    {
      std::unique_lock lock(mutex_);
      waits_ = !open_;
      moved_.notify_all();
      moved_.wait(lock, [&] { return open_; });
      waits_ = false;
    }
    return fake.forward(batch, output);
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    moved_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable moved_;
  bool open_ = true;
  bool waits_ = false;
};

struct Background {
  explicit Background(const Engine::Options& options = {}, const Clock& clock = system_clock()) {
    auto engine = Engine::create(model, options, clock);
    EXPECT_TRUE(engine.ok());
    thread = EngineThread::start(std::move(engine).value(), clock);
  }
  ~Background() { model.open(); }

  std::shared_ptr<EventQueue> add(Request request) {
    auto queue = std::make_shared<EventQueue>(request.choices);
    const Result<void> added = thread->add(std::move(request), EventQueue::sink_of(queue));
    EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().text());
    return queue;
  }
  std::string refusal(Request request) {
    const Result<void> added = thread->add(std::move(request), [](Event) {});
    return added.ok() ? "accepted" : added.error().text();
  }

  GatedModel model;
  std::unique_ptr<EngineThread> thread;
};

struct Answer {
  std::vector<int32_t> ids;
  FinishReason finish = FinishReason::none;
  std::string error;
};

Answer answer_of(EventQueue& queue) {
  Answer answer;
  while (std::optional<Event> event = queue.pop(kLong)) {
    if (event->has_token) answer.ids.push_back(event->token.id);
    answer.finish = event->finish;
    answer.error = event->error;
  }
  EXPECT_TRUE(queue.ended());
  return answer;
}

TEST(EngineThread, AnswersAsTheEngineDoes) {
  Background run;
  const auto queue = run.add({.id = 1, .prompt = prompt_of(40, 1), .max_tokens = 20});
  EXPECT_EQ(answer_of(*queue).ids, FakeModel::continuation(prompt_of(40, 1), 20));
}

class EngineThreadModes : public ::testing::TestWithParam<LoopMode> {};

TEST_P(EngineThreadModes, RequestsAndCancelsOfFourThreadsAllEndOnce) {
  Background run({.max_sequences = 8, .max_waiting = 4000, .mode = GetParam()});
  constexpr uint64_t kEach = 200;
  std::vector<std::atomic<int>> ends(4 * kEach);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (uint64_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const uint64_t id = caller * kEach + i;
        const auto ids = std::make_shared<std::vector<int32_t>>();
        const auto prompt = prompt_of(1 + id % 50, static_cast<uint32_t>(id));
        const Result<void> added = run.thread->add(
            {.id = id, .prompt = prompt, .max_tokens = 1 + id % 7}, [&, ids, id](Event event) {
              if (event.has_token) ids->push_back(event.token.id);
              if (event.finish == FinishReason::none) return;
              ++ends[id];
              auto expected = FakeModel::continuation(
                  prompt_of(1 + id % 50, static_cast<uint32_t>(id)), 1 + id % 7);
              if (event.finish == FinishReason::cancelled) {
                if (ids->size() > expected.size()) return void(++wrong);
                expected.resize(ids->size());
              }
              if (*ids != expected) ++wrong;
            });
        EXPECT_TRUE(added.ok());
        if (i % 3 == 0) run.thread->cancel(id);
        if (i % 5 == 0) run.thread->cancel(id + 1);  // perhaps not there yet
        if (i % 7 == 0) run.thread->cancel((caller + 1) % 4 * kEach + i);
        static_cast<void>(run.thread->heartbeat());
        EXPECT_EQ(run.thread->stuck(kLong), "");
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  run.thread->drain(kLong);
  for (const auto& end : ends) EXPECT_EQ(end, 1);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(run.thread->heartbeat().live, 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, EngineThreadModes,
                         ::testing::Values(LoopMode::plain, LoopMode::overlapped));

TEST(EngineThread, RefusesAtOnceAndNamesTheReason) {
  Background run({.max_sequences = 1, .max_waiting = 2});
  EXPECT_THAT(run.refusal({.id = 1, .prompt = {}}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(run.refusal({.id = 1, .prompt = {99}}), HasSubstr("the vocabulary has 50"));
  EXPECT_THAT(run.refusal({.id = 1, .prompt = {3}, .choices = 0}), HasSubstr("0"));
  EXPECT_FALSE(run.thread->add({.id = 1, .prompt = {3}}, nullptr).ok());

  run.model.close();  // a step that takes long does not hold up the answers below
  const auto first = run.add({.id = 1, .prompt = {3}, .max_tokens = 2});
  run.model.wait_until_closed_in();
  EXPECT_THAT(run.refusal({.id = 1, .prompt = {3}}), HasSubstr("the id is in use"));
  const auto second = run.add({.id = 2, .prompt = {3}, .max_tokens = 2});
  const auto third = run.add({.id = 3, .prompt = {3}, .max_tokens = 2});
  EXPECT_THAT(run.refusal({.id = 4, .prompt = {3}}), HasSubstr("3 sequences live already"));
  run.model.open();
  for (const auto& queue : {first, second, third}) EXPECT_EQ(answer_of(*queue).ids.size(), 2u);
}

TEST(EngineThread, AFullEngineMakesTheInboxWaitAndLosesNobody) {
  Background run({.max_sequences = 1, .max_waiting = 3});
  run.model.close();
  std::vector<std::shared_ptr<EventQueue>> queues;
  for (uint64_t id = 0; id < 4; ++id) {
    queues.push_back(run.add({.id = id, .prompt = {4}, .max_tokens = 3, .ignore_eos = true}));
  }
  run.thread->cancel(3);
  run.model.open();
  for (uint64_t id = 0; id < 3; ++id) EXPECT_EQ(answer_of(*queues[id]).ids.size(), 3u);
  EXPECT_EQ(answer_of(*queues[3]).finish, FinishReason::cancelled);
}

TEST(EngineThread, ASinkMayAddAndCancel) {
  Background run;
  const auto queue = std::make_shared<EventQueue>();
  const Sink pass_on = EventQueue::sink_of(queue);
  ASSERT_TRUE(
      run.thread
          ->add({.id = 1, .prompt = {5}, .max_tokens = 1, .ignore_eos = true},
                [&](Event event) {
                  if (event.finish == FinishReason::none) return;
                  // The same id, from the event on that ended it.
                  EXPECT_TRUE(
                      run.thread->add({.id = 1, .prompt = {6}, .max_tokens = 900}, pass_on).ok());
                  run.thread->cancel(1);
                })
          .ok());
  EXPECT_EQ(answer_of(*queue).finish, FinishReason::cancelled);
}

TEST(EngineThread, CancelsOfTheUnknownAndTheEndedAreFine) {
  Background run;
  run.thread->cancel(77);
  const auto queue = run.add({.id = 1, .prompt = {5}, .max_tokens = 1, .ignore_eos = true});
  EXPECT_EQ(answer_of(*queue).finish, FinishReason::length);
  run.thread->cancel(1);
  EXPECT_EQ(
      answer_of(*run.add({.id = 1, .prompt = {5}, .max_tokens = 1, .ignore_eos = true})).finish,
      FinishReason::length);
}

TEST(EngineThread, DrainsWithinItsPatienceOrCancels) {
  Background run;
  const auto quick = run.add({.id = 1, .prompt = {5}, .max_tokens = 3, .ignore_eos = true});
  run.thread->drain(kLong);
  EXPECT_EQ(answer_of(*quick).finish, FinishReason::length);
  EXPECT_THAT(run.refusal({.id = 2, .prompt = {5}}), HasSubstr("no more requests"));

  Background slow;
  slow.model.close();
  const auto held = slow.add({.id = 1, .prompt = {5}, .max_tokens = 900, .ignore_eos = true});
  slow.model.wait_until_closed_in();
  std::thread opens([&] {
    std::this_thread::sleep_for(milliseconds(30));
    slow.model.open();
  });
  slow.thread->drain(milliseconds(1));
  EXPECT_EQ(answer_of(*held).finish, FinishReason::cancelled);
  opens.join();
}

TEST(EngineThread, TheDestructorEndsWhatLives) {
  std::vector<std::shared_ptr<EventQueue>> queues;
  {
    Background run({.max_sequences = 2});
    for (uint64_t id = 0; id < 50; ++id) {
      queues.push_back(run.add({.id = id, .prompt = prompt_of(900, 1), .max_tokens = 90}));
    }
  }
  for (const auto& queue : queues) {
    const Answer answer = answer_of(*queue);
    EXPECT_NE(answer.finish, FinishReason::none);
    EXPECT_NE(answer.finish, FinishReason::error);
  }
}

TEST(EngineThread, AFailureOfTheModelEndsOneRequestAndTheThreadGoesOn) {
  Background run;
  run.model.fake.fails_on = 0;
  const auto bad = run.add({.id = 1, .prompt = {0}});
  const Answer answer = answer_of(*bad);
  EXPECT_EQ(answer.finish, FinishReason::error);
  EXPECT_THAT(answer.error, HasSubstr("layer 3 ffn down"));
  EXPECT_EQ(answer_of(*run.add({.id = 1, .prompt = {5}, .max_tokens = 2, .ignore_eos = true})).ids,
            FakeModel::continuation({5}, 2, {}));
}

// Field reports: readiness by progress, also when steps hang (heartbeats of threads).
TEST(EngineThread, SaysWhenAStepHangs) {
  ManualClock clock;
  Background run({}, clock);
  EXPECT_EQ(run.thread->stuck(milliseconds(0)), "");  // nothing to do is not stuck
  clock.advance_ns(3'600'000'000'000);
  run.model.close();
  const auto queue = run.add({.id = 1, .prompt = {5}, .max_tokens = 2, .ignore_eos = true});
  run.model.wait_until_closed_in();
  EXPECT_EQ(run.thread->stuck(milliseconds(1000)), "");  // counts from the arrival on
  clock.advance_ns(5'000'000'000);
  EXPECT_EQ(run.thread->stuck(milliseconds(5000)), "");
  EXPECT_THAT(run.thread->stuck(milliseconds(4000)),
              ::testing::AllOf(HasSubstr("1 requests live"), HasSubstr("for 5.0"),
                               HasSubstr("step 0 runs since 5.0")));
  EXPECT_EQ(run.thread->heartbeat().live, 1u);
  run.model.open();
  EXPECT_EQ(answer_of(*queue).ids.size(), 2u);
  run.thread->drain(kLong);
  EXPECT_EQ(run.thread->stuck(milliseconds(0)), "");
}

// Steps that run and never end anything: preempted and computed again, drafts that never stand.
TEST(ProgressWatch, StepsWithoutTokensAreNoProgressForEver) {
  ProgressWatch watch;
  watch.begin(100);
  watch.step_ended(200, 0, 50, 100);  // a prompt is computed
  watch.step_ended(300, 0, 50, 100);
  EXPECT_EQ(watch.last_ns(), 300);
  watch.step_ended(400, 0, 100, 100);  // and once more: somebody gave way
  EXPECT_EQ(watch.last_ns(), 400);
  watch.step_ended(500, 0, 50, 100);  // and again
  EXPECT_EQ(watch.last_ns(), 400);
  watch.step_ended(600, 0, 0, 100);  // rows that verify drafts, and no token
  EXPECT_EQ(watch.last_ns(), 400);
  watch.step_ended(700, 1, 0, 100);
  EXPECT_EQ(watch.last_ns(), 700);
  watch.step_ended(800, 0, 100, 100);
  EXPECT_EQ(watch.last_ns(), 800);
}

TEST(EngineThread, ProfilesTheNextSteps) {
  Background run;
  EXPECT_FALSE(run.thread->profile(0, kLong).ok());
  EXPECT_FALSE(run.thread->profile(1001, kLong).ok());
  EXPECT_THAT(run.thread->profile(2, milliseconds(1)).error().text(), HasSubstr("only 0 of 2"));
  run.model.close();
  const auto queue = run.add({.id = 1, .prompt = {5}, .max_tokens = 990, .ignore_eos = true});
  run.model.wait_until_closed_in();
  std::thread opens([&] {
    // Once a second profile is refused, the first one waits for steps.
    while (run.thread->profile(1, milliseconds(0)).error().text().find("another") ==
           std::string::npos) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    run.model.open();
  });
  Result<std::string> trace = run.thread->profile(3, kLong);
  while (!trace.ok() && trace.error().text().find("another") != std::string::npos) {
    trace = run.thread->profile(3, kLong);
  }
  opens.join();
  ASSERT_TRUE(trace.ok()) << trace.error().text();
  const auto json = nlohmann::json::parse(trace.value());
  size_t steps = 0;
  double end = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 0) continue;
    ++steps;
    EXPECT_EQ(event["args"]["rows"], 1);
    EXPECT_GE(event["ts"].get<double>(), end);
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(steps, 3u);
  for (const char* part : {"plan", "sample", "fill", "forward"}) {
    EXPECT_THAT(trace.value(), HasSubstr("\"name\":\"" + std::string(part) + "\""));
  }
  run.thread->cancel(1);
  answer_of(*queue);
}

TEST(StepTrace, LaysOperationsOneAfterTheOther) {
  StepTrace trace(1);
  trace.step(1'000'000, 3'000'000, {{"rows", 4}});
  const std::vector<models::OperationTime> times = {{.name = "qkv", .seconds = 0.0005, .calls = 2},
                                                    {.name = "attention", .seconds = 0.001}};
  trace.operations(1'500'000, times);
  EXPECT_TRUE(trace.complete());
  const auto json = nlohmann::json::parse(trace.json());
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 4 + 3u);
  EXPECT_EQ(events[5]["name"], "qkv");
  EXPECT_EQ(events[5]["ts"], 500.0);
  EXPECT_EQ(events[5]["args"]["calls"], 2);
  EXPECT_EQ(events[6]["ts"], 1000.0);
  EXPECT_EQ(events[6]["dur"], 1000.0);
}

}  // namespace
}  // namespace deepinfer::engine
