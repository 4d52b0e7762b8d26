// SmolLM2-135M-Instruct (Q4_1) against transformers in fp32 (tests/golden/smollm2).

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "models/model_runner.h"
#include "tests/golden_error.h"
#include "tests/golden_file.h"

namespace deepinfer::models {
namespace {

constexpr float kLogitTolerance = 2e-3f;  // of the golden's README, as the next two
constexpr float kNormTolerance = 1e-3f;   // relative
constexpr double kNllTolerance = 0.05;    // nats over 3,999 tokens

constexpr const char* kPrompts[] = {"plain_short",   "plain_story",   "plain_code_py",
                                    "plain_code_c",  "plain_chinese", "plain_numbers",
                                    "chat_question", "chat_code",     "chat_emoji",
                                    "chat_chinese",  "chat_system",   "plain_long"};
constexpr size_t kRows = 128;

RunnerOptions exact_options() {
  return {.isa = value_or_die(kernels::choose_isa("auto")),
          .numerics = kernels::Numerics::exact,
          .kv = KvMode::f32,
          .threads = usable_cpu_count(),
          .max_rows = kRows,
          .pages = 40};
}

float norm_of(const float* row, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += double{row[i]} * row[i];
  return static_cast<float>(std::sqrt(sum));
}

// Feeds the prompt in chunks and compares every position; leaves the logits of the last one.
std::vector<float> check_prompt(ModelRunner& runner, const GoldenFile& golden,
                                const std::string& name, cache::SequenceCache& sequence) {
  const std::span<const int32_t> ids = golden[name + ".input_ids"].as<int32_t>();
  const std::span<const float> norms = golden[name + ".logits_l2"].as<float>();
  std::vector<float> last;
  for (size_t first = 0; first < ids.size(); first += kRows) {
    const std::span<const int32_t> part = ids.subspan(first, std::min(kRows, ids.size() - first));
    const auto logits = runner.step({{&sequence, {part.begin(), part.end()}}});
    for (size_t row = 0; row < part.size(); ++row) {
      const float norm = norm_of(logits.data() + row * runner.vocab(), runner.vocab());
      expect_error("smollm2/prompts", "norms of all logits, relative",
                   std::abs(norm - norms[first + row]) / norms[first + row], kNormTolerance,
                   name + " position " + std::to_string(first + row));
    }
    last.assign(logits.end() - static_cast<std::ptrdiff_t>(runner.vocab()), logits.end());
  }
  const std::span<const int32_t> top_ids = golden[name + ".top20_ids"].as<int32_t>();
  const std::span<const float> top_logits = golden[name + ".top20_logits"].as<float>();
  for (size_t i = 0; i < top_ids.size(); ++i) {
    expect_error("smollm2/prompts", "top 20 logits, largest",
                 std::abs(last[static_cast<size_t>(top_ids[i])] - top_logits[i]), kLogitTolerance,
                 name + " id " + std::to_string(top_ids[i]));
  }
  return last;
}

int32_t best(const float* row, size_t count) {
  return static_cast<int32_t>(std::max_element(row, row + count) - row);
}

// All prompts are read alone and continued together.
TEST(SmolLM2, LogitsAndGreedyIdsOfTheGolden) {
  const auto path = smollm2_path();
  ASSERT_TRUE(path.has_value()) << kFetchSmollm2;
  const GoldenFile golden("smollm2/golden.safetensors");
  ModelRunner runner = ModelRunner::open(*path, exact_options());
  std::vector<cache::SequenceCache> caches;
  std::vector<int32_t> next;
  for (const char* name : kPrompts) {
    caches.push_back(runner.new_sequence());
    const std::vector<float> last = check_prompt(runner, golden, name, caches.back());
    next.push_back(best(last.data(), last.size()));
  }
  for (size_t token = 0; token < 48; ++token) {
    std::vector<ModelRunner::Feed> feeds;
    for (size_t i = 0; i < caches.size(); ++i) {
      const auto expected = golden[std::string(kPrompts[i]) + ".greedy_ids"].as<int32_t>();
      ASSERT_EQ(next[i], expected[token]) << kPrompts[i] << " token " << token;
      feeds.push_back({&caches[i], {next[i]}});
    }
    const std::vector<float> logits = runner.step(feeds);
    for (size_t i = 0; i < next.size(); ++i) {
      next[i] = best(logits.data() + i * runner.vocab(), runner.vocab());
    }
  }
}

TEST(SmolLM2, NegativeLogLikelihoodOfTheGolden) {
  const auto path = smollm2_path();
  ASSERT_TRUE(path.has_value()) << kFetchSmollm2;
  const GoldenFile golden("smollm2/golden.safetensors");
  const std::span<const int32_t> ids = golden["nll.input_ids"].as<int32_t>();
  const std::span<const float> expected = golden["nll.per_token"].as<float>();
  ModelRunner runner = ModelRunner::open(*path, exact_options());
  cache::SequenceCache sequence = runner.new_sequence();
  double total = 0, expected_total = 0;
  for (size_t first = 0; first < ids.size(); first += kRows) {
    const std::span<const int32_t> part = ids.subspan(first, std::min(kRows, ids.size() - first));
    const auto logits = runner.step({{&sequence, {part.begin(), part.end()}}});
    for (size_t row = 0; row < part.size() && first + row + 1 < ids.size(); ++row) {
      const float* values = logits.data() + row * runner.vocab();
      double sum = 0;
      for (size_t i = 0; i < runner.vocab(); ++i) sum += std::exp(double{values[i]});
      const double nll = std::log(sum) - values[ids[first + row + 1]];
      expect_error("smollm2/nll", "nats of a token, largest",
                   std::abs(nll - double{expected[first + row]}), 0.01,
                   "position " + std::to_string(first + row));
      total += nll;
      expected_total += expected[first + row];
    }
  }
  expect_error("smollm2/nll", "nats of 3999 tokens in sum, largest",
               std::abs(total - expected_total), kNllTolerance);
}

// Quantised weights with int8 activations: the bits of a row hold there too.
TEST(SmolLM2, FastRowsDependOnTheirSequenceOnly) {
  const auto path = smollm2_path();
  ASSERT_TRUE(path.has_value()) << kFetchSmollm2;
  const GoldenFile golden("smollm2/golden.safetensors");
  const auto ids_of = [&](const char* name) {
    const auto ids = golden[std::string(name) + ".input_ids"].as<int32_t>();
    return std::vector<int32_t>(ids.begin(), ids.begin() + std::min<long>(40, std::ssize(ids)));
  };
  RunnerOptions options = exact_options();
  options.numerics = kernels::Numerics::fast;
  options.kv = KvMode::official;
  options.threads = 1;
  ModelRunner one = ModelRunner::open(*path, options);
  const std::vector<int32_t> ids = ids_of("plain_code_c"), other = ids_of("plain_short");
  const std::vector<float> whole = one.logits(ids, ids.size());
  EXPECT_TRUE(one.logits(ids, 1) == whole) << "one by one";
  EXPECT_TRUE(one.logits(ids, 9) == whole) << "chunks of 9";
  options.threads = 3;
  ModelRunner three = ModelRunner::open(*path, options);
  EXPECT_TRUE(three.logits(ids, ids.size()) == whole) << "three threads";
  cache::SequenceCache first = three.new_sequence(), second = three.new_sequence();
  const std::vector<float> both = three.step({{&second, other}, {&first, ids}});
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(),
                         both.end() - static_cast<std::ptrdiff_t>(whole.size())))
      << "in company";
}

TEST(SmolLM2, EmulatedVectorsGiveTheBitsOfAvx512) {
  if (!kernels::choose_isa("avx512").ok()) return;  // nothing to compare with on this machine
  const auto path = smollm2_path();
  ASSERT_TRUE(path.has_value()) << kFetchSmollm2;
  const std::vector<int32_t> ids = {504, 3575, 282, 4649, 314, 7042, 30, 198, 504, 2988};
  for (const auto numerics : {kernels::Numerics::fast, kernels::Numerics::exact}) {
    RunnerOptions options = exact_options();
    options.numerics = numerics;
    options.isa = kernels::Isa::avx512;
    const auto native = ModelRunner::open(*path, options).logits(ids, 7);
    options.isa = kernels::Isa::emulated512;
    EXPECT_TRUE(ModelRunner::open(*path, options).logits(ids, 7) == native)
        << kernels::numerics_name(numerics);
  }
}

}  // namespace
}  // namespace deepinfer::models
