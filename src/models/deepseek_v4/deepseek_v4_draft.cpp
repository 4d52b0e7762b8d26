#include "models/deepseek_v4/deepseek_v4_draft.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/attention/latent_rows.h"

namespace deepinfer::models {
namespace {

unsigned form_bit(const kernels::PackedMatrix& matrix) {
  return static_cast<unsigned>(matrix.form());
}

std::string stage_name(size_t stage) { return "dspark stage " + std::to_string(stage); }

std::vector<size_t> all_rows(size_t rows) {
  std::vector<size_t> all(rows);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

const DsparkParts& parts_of(DeepseekV4& model) {
  check(model.weights().dspark.has_value(), "a model without DSpark stages");
  return *model.weights().dspark;
}

// Adds a sequence's rows to the step that is being put together.
void add_run(std::vector<StepRun>& runs, std::vector<uint64_t>& positions,
             cache::SequenceCache* cache, uint64_t first_position, size_t rows) {
  runs.push_back({.sequence = runs.size(),
                  .cache = cache,
                  .start = {},
                  .first_row = positions.size(),
                  .rows = rows,
                  .first_position = first_position});
  for (size_t i = 0; i < rows; ++i) positions.push_back(first_position + i);
}

}  // namespace

// ------------------------------------------------------------------------------------------ MTP

V4MtpDrafter::V4MtpDrafter(DeepseekV4& model) : model_(model) {
  check(model.weights().mtp.has_value(), "a model without an MTP layer");
}

// The streams become e_proj rms_norm(embedding) + h_proj rms_norm(X_j). Rows of the products:
// row * n + j of the streams, and row of the embeddings.
Result<void> V4MtpDrafter::join(std::span<const Run> runs) {
  const V4Mtp& mtp = *model_.weights().mtp;
  V4Pass& pass = model_.pass();
  HyperStreams& streams = pass.streams();
  const size_t rows = positions_.size(), n = streams.count(), width = streams.width();
  const size_t hidden = model_.config().hidden;
  const float eps = static_cast<float>(model_.config().norm_eps);
  std::vector<float> e(rows * hidden), embedded(rows * hidden);
  pass.work().for_rows(rows, hidden, [&](size_t row, size_t) {
    float* x = embedded.data() + row * hidden;
    model_.weights().embed(static_cast<size_t>(ids_[row]), x);
    pass.work().ops().rms_norm(x, mtp.e_norm.data(), eps, x, hidden);
    pass.rounding().bf16(x, hidden);
    pass.work().expect_finite(x, hidden);
  });
  const kernels::Target target = model_.options().target;
  activations_.begin(target, rows, hidden, form_bit(mtp.e_proj) | kernels::kRefined);
  pass.work().for_rows(rows, hidden, [&](size_t row, size_t) {
    float* x = embedded.data() + row * hidden;
    pass.rounding().input_of(mtp.e_proj, x, hidden);
    activations_.fill_row(row, x);
  });
  kernels::matmul(pass.work().pool(), activations_,
                  {{.weights = &mtp.e_proj, .out = e.data(), .stride = hidden}});
  activations_.begin(target, rows * n, hidden, form_bit(mtp.h_proj) | kernels::kRefined);
  std::vector<float> scratch(pass.work().pool().thread_count() * hidden);
  for (const StepRun& run : runs_) {
    const float* from = runs[run.sequence].streams.data();
    pass.work().for_rows(run.rows * n, hidden, [&](size_t i, size_t worker) {
      float* x = scratch.data() + worker * hidden;
      pass.work().ops().rms_norm(from + i * hidden, mtp.h_norm.data(), eps, x, hidden);
      pass.rounding().bf16(x, hidden);
      pass.work().expect_finite(x, hidden);
      pass.rounding().input_of(mtp.h_proj, x, hidden);
      activations_.fill_row((run.first_row + i / n) * n + i % n, x);
    });
  }
  kernels::matmul(pass.work().pool(), activations_,
                  {{.weights = &mtp.h_proj, .out = streams.row(0), .stride = hidden}});
  pass.work().for_rows(rows, width, [&](size_t row, size_t) {
    float* y = streams.row(row);
    float* of_embedding = e.data() + row * hidden;
    pass.rounding().bf16(of_embedding, hidden);
    pass.rounding().bf16(y, width);
    for (size_t j = 0; j < n; ++j) {
      pass.work().ops().add(y + j * hidden, of_embedding, hidden);
    }
    pass.rounding().bf16(y, width);
    pass.work().expect_finite(y, width);
  });
  if (pass.work().found_bad()) return not_finite("mtp e_proj, h_proj");
  return {};
}

Result<void> V4MtpDrafter::forward(std::span<const Run> runs, Output& output) {
  const DeepseekV4Weights& weights = model_.weights();
  const V4Mtp& mtp = *weights.mtp;
  const V4BlockCache& cache = model_.plan().drafts[0];
  V4Pass& pass = model_.pass();
  runs_.clear();
  positions_.clear();
  ids_.clear();
  for (const Run& run : runs) {
    check(run.streams.size() == run.next_ids.size() * pass.streams().width(), "rows of a draft");
    add_run(runs_, positions_, run.cache, run.first_position, run.next_ids.size());
    ids_.insert(ids_.end(), run.next_ids.begin(), run.next_ids.end());
  }
  const size_t rows = positions_.size();
  check(rows > 0 && rows <= model_.options().max_rows, "rows of a draft");
  for (const int32_t id : ids_) {
    check(id >= 0 && static_cast<uint32_t>(id) < model_.config().vocab, "id of a draft");
  }
  pass.begin(runs_, positions_, ids_);
  TRY(join(runs));
  TRY(pass.attention(mtp.block, cache, "mtp"));
  TRY(pass.experts(mtp.block, *weights.experts, "mtp"));
  const float* streams = pass.streams().row(0);
  output.streams.assign(streams, streams + rows * pass.streams().width());
  output.logits.resize(rows * model_.config().vocab);
  TRY(pass.logits(mtp.head, mtp.norm, weights.output, all_rows(rows), output.logits.data()));
  model_.windows().commit(cache.window, runs_);
  return {};
}

// --------------------------------------------------------------------------------------- DSpark

V4DsparkDrafter::V4DsparkDrafter(DeepseekV4& model)
    : model_(model),
      block_(model.v4_config().dspark.block),
      rows_(parts_of(model), model.pass().work(), model.pass().rounding(), model.options().target,
            static_cast<float>(model.config().norm_eps)) {}

Result<void> V4DsparkDrafter::feed(std::span<const Feed> feeds, std::vector<float>* main_x) {
  const V4Dspark& dspark = *model_.weights().dspark;
  V4Pass& pass = model_.pass();
  const size_t hidden = model_.config().hidden, dim = model_.v4_config().head_dim;
  const size_t width = dspark.main_proj.inputs();
  runs_.clear();
  positions_.clear();
  for (const Feed& feed : feeds) {
    check(!feed.means.empty() && feed.means.size() % width == 0, "means of the target's streams");
    add_run(runs_, positions_, feed.cache, feed.first_position, feed.means.size() / width);
  }
  const size_t rows = positions_.size();
  check(rows > 0 && rows <= model_.options().max_rows, "rows that feed a drafter");
  pass.begin(runs_, positions_, {});

  std::vector<float> taps, main(rows * hidden), kv(rows * dim);
  for (const Feed& feed : feeds) taps.insert(taps.end(), feed.means.begin(), feed.means.end());
  TRY(rows_.project(taps.data(), rows, main.data()));
  if (main_x != nullptr) *main_x = main;
  for (size_t s = 0; s < dspark.stages.size(); ++s) {
    const size_t ring = model_.plan().drafts[s].window;
    TRY(rows_.feed(dspark.stages[s].attention, pass.latent(), pass.plain_rope(), main.data(), rows,
                   kv.data(), model_.windows(), ring, stage_name(s)));
    model_.windows().commit(ring, runs_);
  }
  return {};
}

// Every row of a block sees the window's last rows up to the anchor's position and the whole block.
Result<void> V4DsparkDrafter::run_stages(std::span<const Anchor> anchors) {
  const V4Dspark& dspark = *model_.weights().dspark;
  V4Pass& pass = model_.pass();
  std::vector<kernels::LatentQuery> queries(positions_.size());
  for (size_t s = 0; s < dspark.stages.size(); ++s) {
    const V4BlockCache& cache = model_.plan().drafts[s];
    TRY(pass.project(dspark.stages[s], cache, stage_name(s)));
    for (const StepRun& run : runs_) {
      const uint64_t last = anchors[run.sequence].position + block_;
      for (size_t row = run.first_row; row < run.first_row + run.rows; ++row) {
        queries[row] = {};
        model_.windows().place(queries[row], cache.window, run, last,
                               model_.v4_config().window + block_, 0);
      }
    }
    TRY(pass.attend(dspark.stages[s], queries, stage_name(s)));
    TRY(pass.experts(dspark.stages[s], *model_.weights().experts, stage_name(s)));
  }
  return {};
}

Result<void> V4DsparkDrafter::draft(std::span<const Anchor> anchors, Draft& draft,
                                    const DraftPick& pick) {
  const V4Dspark& dspark = *model_.weights().dspark;
  V4Pass& pass = model_.pass();
  const size_t hidden = model_.config().hidden;
  runs_.clear();
  positions_.clear();
  ids_.clear();
  for (const Anchor& anchor : anchors) {
    check(anchor.id >= 0 && static_cast<uint32_t>(anchor.id) < model_.config().vocab,
          "id of an anchor");
    add_run(runs_, positions_, anchor.cache, anchor.position + 1, block_);
    ids_.push_back(anchor.id);
    ids_.insert(ids_.end(), block_ - 1, static_cast<int32_t>(model_.v4_config().dspark.noise_id));
  }
  const size_t rows = positions_.size();
  check(rows > 0 && rows <= model_.options().max_rows, "rows of a draft");
  pass.begin(runs_, positions_, ids_);
  pass.work().for_rows(rows, pass.streams().width(), [&](size_t row, size_t) {
    model_.weights().embed(static_cast<size_t>(ids_[row]), pass.sublayer(row));
    pass.rounding().bf16(pass.sublayer(row), hidden);
    pass.streams().set(row, pass.sublayer(row));
  });
  TRY(run_stages(anchors));
  draft.block = block_;
  draft.ids.assign(rows, 0);
  draft.confidence.assign(rows, 0.0f);
  draft.logits.resize(rows * model_.config().vocab);
  draft.collapsed.resize(rows * hidden);
  TRY(pass.logits(dspark.head, dspark.norm, model_.weights().output, all_rows(rows),
                  draft.logits.data(), draft.collapsed.data()));
  std::vector<int32_t> anchor_ids;
  for (const Anchor& anchor : anchors) anchor_ids.push_back(anchor.id);
  return rows_.choose({.anchors = anchor_ids,
                       .rows = block_,
                       .collapsed = draft.collapsed.data(),
                       .logits = draft.logits.data(),
                       .ids = draft.ids.data(),
                       .confidence = draft.confidence.data()},
                      pick);
}

}  // namespace deepinfer::models
