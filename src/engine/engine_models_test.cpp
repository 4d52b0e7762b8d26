// The engine over real families with tiny weights: what is resumed, drafted, computed in company
// and overlapped has the bits of a cold engine that computes one request alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/model_runner.h"

namespace deepinfer::engine {
namespace {

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  RequestStats stats;
  bool operator==(const Answer& other) const {
    return ids == other.ids && logprobs == other.logprobs;
  }
};
using Answers = std::map<uint64_t, Answer>;

// Runs what the engine has; answers are added to `answers`.
void run(Engine& engine, Answers& answers) {
  while (engine.busy()) {
    const auto stepped = engine.step([&](const Event& event) {
      Answer& answer = answers[event.request];
      EXPECT_EQ(event.error, "");
      if (event.has_token) answer.ids.push_back(event.token.id);
      if (event.has_token) answer.logprobs.push_back(event.token.logprob);
      if (event.finish != FinishReason::none) answer.stats = event.stats;
    });
    ASSERT_TRUE(stepped.ok()) << stepped.error().text();
    engine.check_invariants();
  }
  EXPECT_EQ(engine.pages_in_use(), 0u);
}

class EngineModels : public ::testing::TestWithParam<std::string> {
 protected:
  EngineModels()
      : runner_(models::ModelRunner::open(
            std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/" + GetParam(),
            {.isa = models::isas_of_this_machine().back(), .kv = models::KvMode::official})) {}

  std::unique_ptr<Engine> engine(Engine::Options options) {
    options.max_rows = 64;
    options.context = std::min<size_t>(700, runner_.model().config().context);
    return Engine::create(runner_.model(), options, system_clock()).value();
  }
  static Engine::Options warm_options() {
    return {.max_sequences = 8,
            .snapshot_bytes = uint64_t{64} << 20,
            .prefix_cache = true,
            .snapshot_every_pages = 1,
            .mode = LoopMode::overlapped};
  }
  Request request(uint64_t id, std::vector<int32_t> prompt) {
    Request made{.id = id, .prompt = std::move(prompt), .max_tokens = 7, .ignore_eos = true};
    made.sampling = {.temperature = id % 2 == 0 ? 0.0f : 0.7f, .seed = id};
    made.drafting = id % 3 == 0 ? Drafting::none : Drafting::ngram;
    return made;
  }
  // Of ids that come again, so that drafts are found.
  std::vector<int32_t> prompt(size_t length, uint32_t seed) {
    const auto vocab = static_cast<uint32_t>(runner_.model().config().vocab);
    std::vector<int32_t> ids(length);
    uint32_t state = seed;
    for (int32_t& id : ids) {
      state = state * 1664525u + 1013904223u;
      id = static_cast<int32_t>(state / 65536 % std::min(vocab, 12u));
    }
    return ids;
  }
  Answer alone(Request request) {
    Answers answers;
    const auto cold = engine({.max_sequences = 1});
    request.drafting = Drafting::none;
    const uint64_t id = request.id;
    EXPECT_TRUE(cold->add(std::move(request)).ok());
    run(*cold, answers);
    return answers[id];
  }

  models::ModelRunner runner_;
};

TEST_P(EngineModels, ResumedAnswersAreThoseOfAColdEngine) {
  const auto warm = engine(warm_options());
  Answers answers;
  std::vector<Request> requests;
  for (size_t length : {127, 128, 129, 130, 256, 257, 384, 385, 512}) {
    if (length + 60 > warm->limits().context) break;
    const uint64_t id = 10 * length;
    requests.push_back(request(id, prompt(length, static_cast<uint32_t>(length))));
    ASSERT_TRUE(warm->add(requests.back()).ok());
    run(*warm, answers);
    // A retry, and the next turn.
    requests.push_back(request(id + 1, requests.back().prompt));
    std::vector<int32_t> next = requests.back().prompt;
    next.insert(next.end(), answers[id].ids.begin(), answers[id].ids.end());
    const std::vector<int32_t> turn = prompt(9, 5);
    next.insert(next.end(), turn.begin(), turn.end());
    requests.push_back(request(id + 2, next));
    for (size_t i = requests.size() - 2; i < requests.size(); ++i) {
      ASSERT_TRUE(warm->add(requests[i]).ok());
    }
    run(*warm, answers);
    EXPECT_EQ(answers[id + 1].stats.cached_tokens, length - 1) << length;
    EXPECT_EQ(answers[id + 2].stats.cached_tokens, length + 6) << length;
  }
  ASSERT_GT(requests.size(), 2u);
  for (const Request& one : requests) {
    EXPECT_EQ(answers[one.id], alone(one)) << "request " << one.id;
  }
}

// Few pages: sequences give way, and go on.
TEST_P(EngineModels, InCompanyAndPreemptedAnswersAreThoseOfAColdEngine) {
  Engine::Options options = warm_options();
  const size_t page = runner_.model().cache_layout().page_bytes();
  options.cache_bytes = 3 * page;
  const auto warm = engine(options);
  Answers answers;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back(request(i, prompt(100 + 7 * i, 3 + i / 2)));
    requests.back().max_tokens = 40;
    if (i % 2 == 0) requests.back().resume_points = {40};
    ASSERT_TRUE(warm->add(requests.back()).ok());
  }
  run(*warm, answers);
  for (const Request& one : requests) {
    EXPECT_EQ(answers[one.id], alone(one)) << "request " << one.id;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '/', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, EngineModels,
                         ::testing::Values("llama/llama", "deepseek_v41/base", "deepseek_v41/long",
                                           "deepseek_v4/flash", "deepseek_v4/long"),
                         name_of);

}  // namespace
}  // namespace deepinfer::engine
