// Whole texts, decoded plainly and through drafts, with drafter, gate and verifier together over a
// model whose logits are a function of the last ids.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "sampling/distribution.h"
#include "speculation/draft_gate.h"
#include "speculation/ngram_drafter.h"
#include "speculation/verifier.h"

namespace deepinfer::speculation {
namespace {

using sampling::Generator;
using sampling::Parameters;
using sampling::SampleRow;

constexpr size_t kVocab = 70;

// [kVocab] logits after `ids`: the more peaked, the more the text repeats itself.
std::vector<float> logits_after(std::span<const int32_t> ids, float peak) {
  const uint32_t last = static_cast<uint32_t>(ids.back());
  const uint32_t before = ids.size() > 1 ? static_cast<uint32_t>(ids[ids.size() - 2]) : 0;
  std::mt19937 random(last * 131 + before % 3);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(random);
  logits[(last * 7 + 1) % 11] += peak;  // a cycle through few ids
  return logits;
}

// What a grammar would say: after an even id some ids are forbidden.
std::vector<uint32_t> mask_after(std::span<const int32_t> ids) {
  const uint32_t forbidden = ids.back() % 2 == 0 ? 0x22222222 : 0x44444444;
  return std::vector<uint32_t>((kVocab + 31) / 32, ~forbidden);
}

struct Options {
  Parameters parameters = {};
  float peak = 5;
  bool masks = false;
  std::vector<int32_t> forced = {};  // by output index, -1: free
};

// The row after `ids`, of which `prompt` are the prompt's.
class Rows {
 public:
  Rows(const Options& options, size_t prompt) : options_(options), prompt_(prompt) {}

  SampleRow row(std::span<const int32_t> ids) {
    logits_ = logits_after(ids, options_.peak);
    mask_ = mask_after(ids);
    SampleRow row = {.isa = kernels::choose_isa("auto").value(),
                     .logits = logits_,
                     .position = ids.size() - 1,
                     .seen = ids,
                     .output_index = ids.size() - prompt_};
    if (options_.masks) row.mask = mask_;
    const size_t output = ids.size() - prompt_;
    if (output < options_.forced.size()) row.forced = options_.forced[output];
    return row;
  }

 private:
  const Options& options_;
  size_t prompt_;
  std::vector<float> logits_;
  std::vector<uint32_t> mask_;
};

const std::vector<int32_t> kPrompt = {3, 22, 1, 8, 5, 3};

std::vector<int32_t> plain_text(const Options& options, size_t count) {
  std::vector<int32_t> ids = kPrompt;
  Rows rows(options, ids.size());
  sampling::Workspace workspace;
  while (ids.size() < kPrompt.size() + count) {
    ids.push_back(sampling::sample(rows.row(ids), options.parameters, workspace).value().id);
  }
  return ids;
}

struct Drafted {
  std::vector<int32_t> ids;
  size_t steps = 0, drafted = 0, accepted = 0;
};

Drafted drafted_text(const Options& options, size_t count, Acceptance acceptance) {
  Drafted text = {.ids = kPrompt};
  Rows rows(options, kPrompt.size());
  NgramDrafter drafter(5);
  DraftGate gate;
  sampling::Workspace workspace;
  Draft draft;
  while (text.ids.size() < kPrompt.size() + count) {
    DraftTask task = {.sequence = 1, .ids = text.ids, .most = gate.drafts(5, 0.2), .draft = &draft};
    EXPECT_TRUE(drafter.draft({&task, 1}).ok());
    // One row a proposal and one behind the last; rows behind a rejected one are void.
    size_t stood = 0;
    for (size_t i = 0; i <= draft.ids.size(); ++i) {
      VerifyRow row = {.sample = rows.row(text.ids),
                       .draft = i < draft.ids.size() ? draft.ids[i] : -1};
      row.sample.output_index -= i;
      row.sample.row_offset = static_cast<uint32_t>(i);
      const Verdict v = verify(acceptance, row, options.parameters, workspace).value();
      text.ids.push_back(v.token.id);
      if (!v.accepted) break;
      ++stood;
    }
    gate.observe(draft.ids.size(), stood);
    drafter.committed(1, text.ids);
    ++text.steps;
    text.drafted += draft.ids.size();
    text.accepted += stood;
  }
  text.ids.resize(kPrompt.size() + count);
  return text;
}

std::vector<Options> combinations() {
  std::vector<Options> all;
  for (Generator generator : {Generator::position, Generator::deepinfer}) {
    for (float temperature : {0.0f, 0.8f}) {
      for (bool masks : {false, true}) {
        for (float penalty : {1.0f, 1.2f}) {
          Options options = {.parameters = {.temperature = temperature,
                                            .top_p = 0.95f,
                                            .repetition_penalty = penalty,
                                            .frequency_penalty = penalty - 1.0f,
                                            .seed = 5,
                                            .generator = generator},
                             .masks = masks};
          all.push_back(options);
          options.forced = {4, -1, 5, 5, -1, -1, 6};
          all.push_back(options);
        }
      }
    }
  }
  return all;
}

TEST(DraftedText, SampleMatchGivesTheSameText) {
  for (const Options& options : combinations()) {
    const std::vector<int32_t> plain = plain_text(options, 300);
    const Drafted text = drafted_text(options, 300, Acceptance::sample_match);
    EXPECT_EQ(text.ids, plain);
    EXPECT_GT(text.drafted, 0u);
  }
}

TEST(DraftedText, RepetitionTakesFewerSteps) {
  const Options options = {.parameters = {.temperature = 0.5f, .seed = 3}, .peak = 9};
  const Drafted text = drafted_text(options, 600, Acceptance::sample_match);
  EXPECT_EQ(text.ids, plain_text(options, 600));
  EXPECT_LT(text.steps, 200u);
  EXPECT_GT(text.accepted * 4, text.drafted * 3);
}

TEST(DraftedText, WhatDoesNotRepeatCostsFewRows) {
  const Options options = {.parameters = {.temperature = 3.0f, .seed = 3}, .peak = 0};
  const Drafted text = drafted_text(options, 2000, Acceptance::sample_match);
  EXPECT_EQ(text.ids, plain_text(options, 2000));
  EXPECT_LE(text.drafted - text.accepted, 60u);
}

// Standard deviations by which Pearson's statistic of a text exceeds its mean: every id is a draw
// from the distribution that the model and the filters give after the ids before it. Contexts of
// which the model sees the same are counted together; rare ids of a context are one cell.
double excess(const Options& options, const std::vector<int32_t>& ids) {
  std::map<std::pair<int32_t, int32_t>, std::vector<double>> counts;
  for (size_t i = kPrompt.size(); i < ids.size(); ++i) {
    std::vector<double>& after = counts[{ids[i - 1], ids[i - 2] % 3}];
    after.resize(kVocab);
    ++after[static_cast<size_t>(ids[i])];
  }
  Rows rows(options, 2);
  sampling::Workspace workspace;
  double statistic = 0, freedom = 0;
  for (const auto& [context, after] : counts) {
    const double total = std::accumulate(after.begin(), after.end(), 0.0);
    const std::vector<int32_t> last = {context.second, context.first};
    const SampleRow row = rows.row(last);
    const auto p = sampling::distribution(row, options.parameters, workspace).value();
    double rare_expected = 0, rare_count = 0;
    int cells = 0;
    const auto add = [&](double expected, double count) {
      statistic += (count - expected) * (count - expected) / expected;
      ++cells;
    };
    for (size_t id = 0; id < kVocab; ++id) {
      const double expected =
          total * std::exp(sampling::log_probability(p, static_cast<int32_t>(id), workspace));
      if (expected == 0) EXPECT_EQ(after[id], 0);
      if (expected >= 10) {
        add(expected, after[id]);
      } else {
        rare_expected += expected;
        rare_count += after[id];
      }
    }
    if (rare_expected >= 10) add(rare_expected, rare_count);
    freedom += std::max(cells - 1, 0);
  }
  EXPECT_GT(freedom, 50);
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

TEST(DraftedText, TheStochasticRuleKeepsTheDistributionOfTexts) {
  for (Generator generator : {Generator::position, Generator::deepinfer}) {
    const Options options = {
        .parameters = {.temperature = 1.0f, .top_k = 6, .seed = 2, .generator = generator},
        .peak = 3};
    const Drafted text = drafted_text(options, 20000, Acceptance::stochastic);
    EXPECT_GT(text.accepted, 1000u);
    EXPECT_LT(std::abs(excess(options, text.ids)), 4.0);
    EXPECT_LT(std::abs(excess(options, plain_text(options, 20000))), 4.0);
  }
}

}  // namespace
}  // namespace deepinfer::speculation
