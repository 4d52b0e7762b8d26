// V4.1 layer by layer: every layer gets the reference's input, cache and selection, and must give
// the reference's output. No error grows, so this is the strict test of the roundings.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>

#include "models/deepseek_v41/v41_goldens_test.h"

namespace deepinfer::models {
namespace {

struct Mode {
  std::string golden;
  kernels::Numerics numerics;
  KvMode kv;
};

// Distance in steps of bf16 at the expected value.
double bf16_steps(float actual, float expected) {
  if (actual == expected) return 0;
  const int exponent = std::ilogb(std::max(std::abs(expected), 1e-30f));
  return std::abs(double{actual} - double{expected}) / std::ldexp(1.0, exponent - 7);
}

class V41Layers : public ::testing::TestWithParam<std::tuple<Mode, kernels::Isa>> {
 protected:
  static constexpr size_t kRows = 20;

  V41Layers()
      : mode_(std::get<0>(GetParam())),
        golden_(v41_golden(mode_.golden)),
        runner_(ModelRunner::open(
            v41_path("base"),
            {.isa = std::get<1>(GetParam()), .numerics = mode_.numerics, .kv = mode_.kv})) {}

  std::string golden_name() const { return "deepseek_v41/" + mode_.golden; }
  const GoldenTensor& trace(size_t layer, const std::string& name) const {
    return golden_["trace.layer." + std::to_string(layer) + "." + name];
  }
  bool has(size_t layer, const std::string& name) const {
    return golden_.has("trace.layer." + std::to_string(layer) + "." + name);
  }

  // Values within the mode's tolerance, as a share of all.
  void expect_close(std::span<const float> actual, std::span<const float> expected,
                    const std::string& what) const {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    size_t near = 0;
    const bool official = mode_.numerics == kernels::Numerics::faithful;
    for (size_t i = 0; i < actual.size(); ++i) {
      const bool ok = official ? bf16_steps(actual[i], expected[i]) <= 2.0
                               : std::abs(actual[i] - expected[i]) <= 1e-4f;
      near += ok ? 1 : 0;
    }
    const double share = static_cast<double>(near) / static_cast<double>(actual.size());
    expect_agreement(
        golden_name(),
        official ? "every layer: values within 2 bf16 steps, share"
                 : "every layer: values within 1e-4, share",
        share, official ? 0.99 : 0.999,
        what + ": largest difference " + std::to_string(difference(actual, expected).largest));
  }

  void before(const V41LayerView& view) const {
    const std::span<const float> x = trace(view.layer, "X_in").as<float>();
    // The Engram of this layer ran on the reference's output of the layer before.
    if (view.layer > 0) {
      expect_close({view.streams->row(0), x.size()}, x,
                   "layer " + std::to_string(view.layer) + " X_in");
    }
    std::memcpy(view.streams->row(0), x.data(), x.size_bytes());
    const std::span<const float> pre = trace(view.layer, "pre_in").as<float>();
    std::memcpy(view.pre, pre.data(), pre.size_bytes());
    if (has(view.layer, "sel")) publish_selection(view);
  }

  // What earlier layers published; an index source overwrites it with its own.
  void publish_selection(const V41LayerView& view) const {
    for (size_t row = 0; row < kRows; ++row) {
      const std::vector<uint32_t> ids = row_ids(trace(view.layer, "sel"), row);
      std::copy(ids.begin(), ids.end(), view.selection->selected(row));
      view.selection->count(row) = static_cast<uint32_t>(ids.size());
      if (view.layer <= 6) continue;
      const std::vector<uint32_t> blocks = row_ids(trace(6, "candidates"), row);
      std::copy(blocks.begin(), blocks.end(), view.selection->candidates(row));
      view.selection->candidate_count(row) = static_cast<uint32_t>(blocks.size());
    }
  }

  void after(const V41LayerView& view) {
    const size_t layer = view.layer;
    const std::string name = "layer " + std::to_string(layer) + " ";
    const std::span<const float> out = trace(layer, "X_out").as<float>();
    expect_close({view.attention_out, kRows * 64}, trace(layer, "attn_out").as<float>(),
                 name + "attention");
    expect_close({view.ffn_out, kRows * 64}, trace(layer, "ffn_out").as<float>(), name + "ffn");
    expect_close({view.streams->row(0), out.size()}, out, name + "X_out");
    const std::span<const float> pre = trace(layer, "pre_out").as<float>();
    expect_error(golden_name(), "every layer: next pre, largest",
                 difference({view.pre, pre.size()}, pre).largest, 1e-4, name);
    // So that the next layer's Engram starts from the reference's streams.
    std::memcpy(view.streams->row(0), out.data(), out.size_bytes());
    for (size_t row = 0; row < kRows; ++row) check_choices(view, row);
    if (has(layer, "compressed")) check_entries(view);
  }

  void check_choices(const V41LayerView& view, size_t row) const {
    std::vector<std::pair<uint32_t, float>> expected;
    const std::vector<uint32_t> experts = row_ids(trace(view.layer, "expert_idx"), row);
    for (size_t i = 0; i < experts.size(); ++i) {
      expected.emplace_back(experts[i],
                            trace(view.layer, "expert_w").as<float>()[row * experts.size() + i]);
    }
    std::sort(expected.begin(), expected.end());
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t at = row * expected.size() + i;
      EXPECT_EQ(view.routing->experts[at], static_cast<int32_t>(expected[i].first))
          << "layer " << view.layer << " row " << row;
      expect_error(golden_name(), "every layer: expert weights, largest",
                   std::abs(double{view.routing->weights[at]} - double{expected[i].second}), 1e-4,
                   "layer " + std::to_string(view.layer) + " row " + std::to_string(row));
    }
    if (!has(view.layer, "sel")) return;
    const uint32_t* selected = view.selection->selected(row);
    EXPECT_EQ(std::vector<uint32_t>(selected, selected + view.selection->count(row)),
              row_ids(trace(view.layer, "sel"), row))
        << "layer " << view.layer << " row " << row;
    if (view.layer != 6) return;
    const uint32_t* blocks = view.selection->candidates(row);
    EXPECT_EQ(std::vector<uint32_t>(blocks, blocks + view.selection->candidate_count(row)),
              row_ids(trace(6, "candidates"), row))
        << "row " << row;
  }

  // The source's cache rows are the reference's; then they become exactly those.
  void check_entries(const V41LayerView& view) {
    const DeepseekV41& model = v41_model(runner_);
    const size_t source = static_cast<const weights::DeepseekV41Config&>(model.config())
                              .kv_source_of(static_cast<uint32_t>(view.layer));
    const V41EntryStreams& streams = model.entries().streams(source);
    const auto adopt = [&](const std::string& name, size_t stream,
                           const kernels::LatentFormat& format) {
      const std::span<const float> expected = trace(view.layer, name).as<float>();
      const size_t count = expected.size() / format.width;
      cache::SequenceCache& cache = *view.runs[0].cache;
      expect_close(decoded_entries(cache, stream, streams.per_page, format, count), expected,
                   "layer " + std::to_string(view.layer) + " " + name);
      for (size_t j = 0; j < count; ++j) {
        kernels::latent_row_ops(kernels::Isa::ref)
            .encode(format, expected.data() + j * format.width,
                    cache.page(j / streams.per_page, stream) +
                        j % streams.per_page * format.row_bytes());
      }
    };
    adopt("compressed", streams.entries, model.entries().entry_format());
    adopt("index_keys", streams.keys, model.entries().key_format());
  }

  const Mode mode_;
  const GoldenFile golden_;
  ModelRunner runner_;
};

TEST_P(V41Layers, EveryLayerFollowsTheReference) {
  size_t seen = 0;
  v41_model(runner_).observe([&](const V41LayerView& view) {
    view.after ? after(view) : before(view);
    ++seen;
  });
  std::vector<int32_t> ids = golden_ids(golden_["input_ids"]);
  ids.resize(kRows);
  cache::SequenceCache sequence = runner_.new_sequence();
  runner_.step({{&sequence, ids, false}});
  EXPECT_EQ(seen, 20u);
}

TEST_P(V41Layers, EngramRowsAreThoseOfTheReference) {
  const DeepseekV41& model = v41_model(runner_);
  const std::vector<int32_t> ids = golden_ids(golden_["input_ids"]);
  size_t seen = 0;
  v41_model(runner_).observe([&](const V41LayerView& view) {
    const auto& engram = model.weights().layers[view.layer].engram;
    if (view.after || !engram) return;
    ++seen;
    const std::span<const int32_t> expected =
        golden_["engram_rows." + std::to_string(view.layer)].as<int32_t>();
    for (size_t row = 0; row < ids.size(); ++row) {
      std::vector<uint64_t> rows(model.engram()->hash().rows_per_position());
      model.engram()->rows_of(*engram, view.runs[0], row, rows.data());
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(static_cast<int32_t>(rows[i]), expected[row * rows.size() + i]) << "row " << row;
      }
    }
  });
  cache::SequenceCache sequence = runner_.new_sequence();
  runner_.step({{&sequence, ids, false}});
  EXPECT_EQ(seen, 2u);
}

INSTANTIATE_TEST_SUITE_P(
    AllIsas, V41Layers,
    ::testing::Combine(
        ::testing::Values(Mode{"a_fp32", kernels::Numerics::exact, KvMode::f32},
                          Mode{"b_kvquant", kernels::Numerics::exact, KvMode::official},
                          Mode{"b_official", kernels::Numerics::faithful, KvMode::official}),
        ::testing::ValuesIn(isas_of_this_machine())),
    [](const auto& parameter) {
      return std::get<0>(parameter.param).golden + "_" +
             std::string(kernels::isa_name(std::get<1>(parameter.param)));
    });

}  // namespace
}  // namespace deepinfer::models
