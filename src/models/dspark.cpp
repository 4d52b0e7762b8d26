#include "models/dspark.h"

#include "base/check.h"

namespace deepinfer::models {

Result<void> DsparkRows::project(float* taps, size_t rows, float* main) {
  const size_t width = parts_.main_proj.inputs(), hidden = parts_.main_proj.outputs();
  activations_.begin(target_, rows, width, parts_.main_proj.form() | kernels::kRefined);
  work_.for_rows(rows, width, [&](size_t row, size_t) {
    rounding_.input_of(parts_.main_proj, taps + row * width, width);
    activations_.fill_row(row, taps + row * width);
  });
  kernels::matmul(work_.pool(), activations_,
                  {{.weights = &parts_.main_proj, .out = main, .stride = hidden}});
  work_.for_rows(rows, hidden, [&](size_t row, size_t) {
    float* x = main + row * hidden;
    rounding_.bf16(x, hidden);
    work_.ops().rms_norm(x, parts_.main_norm.data(), norm_eps_, x, hidden);
    rounding_.bf16(x, hidden);
    work_.expect_finite(x, hidden);
  });
  if (work_.found_bad()) return not_finite("dspark main_proj");
  return {};
}

Result<void> DsparkRows::feed(const LatentLayer& layer, const LatentBlock& block,
                              const RopeRows& rope, float* main, size_t rows, float* kv,
                              WindowCache& windows, size_t ring, const std::string& stage) {
  const size_t hidden = parts_.main_proj.outputs(), dim = layer.kv.outputs();
  activations_.begin(target_, rows, hidden, layer.kv.form() | kernels::kRefined);
  work_.for_rows(rows, hidden, [&](size_t row, size_t) {
    // Rounding what is rounded already changes nothing: the stages' matrices are stored alike.
    rounding_.input_of(layer.kv, main + row * hidden, hidden);
    activations_.fill_row(row, main + row * hidden);
  });
  kernels::matmul(work_.pool(), activations_, {{.weights = &layer.kv, .out = kv, .stride = dim}});
  work_.for_rows(rows, dim, [&](size_t row, size_t) {
    block.encode_window_row(layer, rope, row, kv + row * dim, windows.fresh(ring, row));
  });
  if (work_.found_bad()) return not_finite(stage + " kv of the target");
  return {};
}

float DsparkRows::confidence(const float* collapsed, const float* markov) const {
  const std::vector<float>& weights = parts_.confidence;
  const size_t hidden = parts_.main_proj.outputs();
  float sum = 0;
  for (size_t i = 0; i < hidden; ++i) sum += weights[i] * collapsed[i];
  for (size_t i = hidden; i < weights.size(); ++i) sum += weights[i] * markov[i - hidden];
  return sum;
}

Result<void> DsparkRows::choose(const Block& block, const DraftPick& pick) {
  const size_t vocab = parts_.markov_head.outputs(), rank = parts_.markov_head.inputs();
  const size_t hidden = parts_.main_proj.outputs();
  std::vector<float> markov(rank);
  std::vector<int32_t> previous(block.anchors.begin(), block.anchors.end());
  for (size_t k = 0; k < block.rows; ++k) {
    activations_.begin(target_, previous.size(), rank,
                       parts_.markov_head.form() | kernels::kRefined);
    for (size_t a = 0; a < previous.size(); ++a) {
      const size_t row = a * block.rows + k;
      decode_row(parts_.markov_embed, static_cast<uint64_t>(previous[a]), markov.data());
      activations_.fill_row(a, markov.data());
      block.confidence[row] = confidence(block.collapsed + row * hidden, markov.data());
    }
    kernels::matmul(work_.pool(), activations_,
                    {{.weights = &parts_.markov_head,
                      .out = block.logits + k * vocab,
                      .stride = block.rows * vocab,
                      .epilogue = kernels::Epilogue::add}});
    for (size_t a = 0; a < previous.size(); ++a) {
      const size_t row = a * block.rows + k;
      const std::span<const float> logits(block.logits + row * vocab, vocab);
      work_.expect_finite(logits.data(), vocab);
      if (work_.found_bad()) return not_finite("dspark markov head");
      previous[a] = pick ? pick(a, k, logits)
                         : static_cast<int32_t>(work_.ops().argmax(logits.data(), vocab));
      check(previous[a] >= 0 && static_cast<uint32_t>(previous[a]) < vocab, "id that was picked");
      block.ids[row] = previous[a];
    }
  }
  return {};
}

}  // namespace deepinfer::models
