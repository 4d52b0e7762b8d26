#include "models/deepseek_v41/deepseek_v41_draft.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace deepinfer::models {
namespace {

std::string stage_name(size_t stage) { return "drafter stage " + std::to_string(stage); }

}  // namespace

V41Drafter::V41Drafter(DeepseekV41& model)
    : model_(model),
      dspark_(*model.weights_.dspark),
      targets_(model.config_.dspark.target_layers),
      block_(model.config_.dspark.block),
      hidden_(model.config_.hidden),
      rows_(dspark_, model.work_, model.rounding_, model.options_.target,
            static_cast<float>(model.config_.norm_eps)) {}

V41Drafter::~V41Drafter() { model_.drafter_ = nullptr; }

Result<std::unique_ptr<V41Drafter>> V41Drafter::create(DeepseekV41& model) {
  check(model.weights_.dspark.has_value(), "a model without DSpark stages");
  check(model.drafter_ == nullptr, "a model with a drafter");
  std::unique_ptr<V41Drafter> drafter(new V41Drafter(model));
  const size_t rows = model.options_.max_rows * sizeof(float);
  drafter->taps_ = TRY(Buffer::create(rows * drafter->targets_.size() * drafter->hidden_));
  drafter->main_ = TRY(Buffer::create(rows * drafter->hidden_));
  drafter->kv_ = TRY(Buffer::create(rows * model.config_.head_dim));
  model.drafter_ = drafter.get();
  return drafter;
}

void V41Drafter::tap(size_t layer) {
  const auto target = std::find(targets_.begin(), targets_.end(), layer);
  if (target == targets_.end()) return;
  const auto index = static_cast<size_t>(target - targets_.begin());
  const size_t n = model_.streams_.count();
  const std::vector<float> mean(n, 1.0f / static_cast<float>(n));
  model_.work_.for_rows(model_.positions_.size(), n * hidden_, [&](size_t row, size_t) {
    model_.streams_.gather(row, mean.data(),
                           taps_.as<float>() + (row * targets_.size() + index) * hidden_);
  });
}

Result<void> V41Drafter::feed() {
  const size_t rows = model_.positions_.size();
  float* main = main_.as<float>();
  TRY(rows_.project(taps_.as<float>(), rows, main));
  for (size_t stage = 0; stage < dspark_.stages.size(); ++stage) {
    TRY(rows_.feed(dspark_.stages[stage].attention, model_.block_, *model_.rope_, main, rows,
                   kv_.as<float>(), model_.windows_, model_.drafter_rings_[stage],
                   stage_name(stage)));
  }
  return {};
}

// The model's rows become those of the blocks.
void V41Drafter::begin(std::span<const Anchor> anchors) {
  const size_t rows = anchors.size() * block_, n = model_.streams_.count();
  check(rows > 0 && rows <= model_.options_.max_rows, "rows of a draft");
  model_.runs_.clear();
  model_.positions_.clear();
  model_.ids_.clear();
  for (size_t a = 0; a < anchors.size(); ++a) {
    check(anchors[a].id >= 0 && static_cast<uint32_t>(anchors[a].id) < model_.config_.vocab,
          "id of an anchor");
    model_.runs_.push_back({.sequence = a,
                            .cache = anchors[a].cache,
                            .start = anchors[a].start,
                            .first_row = a * block_,
                            .rows = block_,
                            .first_position = anchors[a].position});
    for (size_t k = 0; k < block_; ++k) {
      model_.positions_.push_back(anchors[a].position + k);
      model_.ids_.push_back(k == 0 ? anchors[a].id
                                   : static_cast<int32_t>(model_.config_.dspark.noise_id));
    }
  }
  model_.image_.assign(rows, 0);
  model_.rope_->fill(model_.work_, model_.positions_);
  model_.work_.for_rows(rows, n * hidden_, [&](size_t row, size_t) {
    float* values = model_.hidden_.as<float>() + row * hidden_;
    const TensorView& embedding = model_.weights_.embedding;
    decode_row(embedding.dtype, embedding.row(static_cast<size_t>(model_.ids_[row])), values,
               hidden_);
    model_.streams_.set(row, values);
    for (size_t j = 0; j < n; ++j) model_.pre_[row * n + j] = j == 0 ? 1.0f : 0.0f;
  });
}

Result<void> V41Drafter::run_stage(size_t stage, std::span<const Anchor> anchors) {
  const V41Layer& w = dspark_.stages[stage];
  const std::string where = stage_name(stage);
  const size_t rows = model_.positions_.size(), ring = model_.drafter_rings_[stage];
  model_.collapse_all(w.attn_norm);
  model_.streams_.mix(w.hc_attn, rows);
  TRY(model_.block_.project(w.attention, *model_.rope_, model_.hidden_.as<float>(), rows, {},
                            model_.windows_.fresh(ring, 0), where));
  // Every row of a block sees the window before the anchor and the whole block.
  model_.queries_.assign(rows, {});
  for (const StepRun& run : model_.runs_) {
    const SequenceStart& start = anchors[run.sequence].start;
    for (size_t row = run.first_row; row < run.first_row + run.rows; ++row) {
      kernels::LatentQuery& query = model_.queries_[row];
      query.query = model_.block_.query(row);
      query.out = model_.block_.attended(row);
      model_.windows_.place(query, ring, run, run.end_position() - 1,
                            model_.config_.window + block_, std::max(start.window, start.decoder));
    }
  }
  TRY(model_.block_.attend(w.attention, *model_.rope_, model_.queries_,
                           model_.entries_.entry_format(), 1, model_.out_.as<float>(), where));
  TRY(model_.finish_attention(w, where + " attention output"));
  return model_.ffn_part(w, where);
}

// main_ keeps the collapsed rows, which the confidence reads.
Result<void> V41Drafter::base_logits(Draft& draft) {
  RowWork& work = model_.work_;
  const size_t rows = model_.positions_.size(), n = model_.streams_.count();
  const kernels::PackedMatrix& output = model_.weights_.output;
  activations_.begin(model_.options_.target, rows, hidden_, output.form() | kernels::kRefined);
  work.for_rows(rows, n * hidden_, [&](size_t row, size_t) {
    const float* pre = model_.pre_.data() + row * n;
    float* x = model_.hidden_.as<float>() + row * hidden_;
    model_.streams_.gather(row, pre, main_.as<float>() + row * hidden_);
    model_.streams_.collapse(row, pre, dspark_.norm, x);
    work.expect_finite(x, hidden_);
    activations_.fill_row(row, x);
  });
  if (work.found_bad()) return not_finite("drafter norm");
  const size_t vocab = model_.config_.vocab;
  draft.logits.resize(rows * vocab);
  kernels::matmul(work.pool(), activations_,
                  {{.weights = &output, .out = draft.logits.data(), .stride = vocab}});
  return {};
}

Result<void> V41Drafter::choose(std::span<const Anchor> anchors, Draft& draft,
                                const DraftPick& pick) {
  std::vector<int32_t> ids;
  for (const Anchor& anchor : anchors) ids.push_back(anchor.id);
  draft.ids.assign(anchors.size() * block_, 0);
  draft.confidence.assign(anchors.size() * block_, 0.0f);
  TRY(rows_.choose({.anchors = ids,
                    .rows = block_,
                    .collapsed = main_.as<float>(),
                    .logits = draft.logits.data(),
                    .ids = draft.ids.data(),
                    .confidence = draft.confidence.data()},
                   pick));
  for (float& score : draft.confidence) {
    score = 1.0f / (1.0f + std::exp(-std::clamp(score, -60.0f, 60.0f)));
  }
  return {};
}

Result<void> V41Drafter::draft(std::span<const Anchor> anchors, Draft& draft,
                               const DraftPick& pick) {
  begin(anchors);
  for (size_t stage = 0; stage < dspark_.stages.size(); ++stage) TRY(run_stage(stage, anchors));
  TRY(base_logits(draft));
  return choose(anchors, draft, pick);
}

}  // namespace deepinfer::models
