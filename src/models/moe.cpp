#include "models/moe.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "models/experts/resident_experts.h"
#include "models/rounding.h"
#include "models/row_work.h"

namespace deepinfer::models {
namespace {

// Slots that are computed together where single experts allow: it bounds the workspace (their
// gate, up and result rows), and what one region writes stays near the cache for the next one.
constexpr size_t kSlotsPerPart = 1024;
constexpr size_t kNoSlot = SIZE_MAX;
// Ids of jobs that are no routed experts.
constexpr int32_t kShared = -1;
constexpr int32_t kDense = -2;

void grow(Buffer& buffer, size_t floats) {
  const size_t bytes = floats * sizeof(float);
  if (buffer.size() >= bytes) return;
  buffer = Buffer();  // gives the old one back first
  buffer = Buffer(bytes + bytes / 4);
}

// Keeps NaN, so that it is noticed.
void clamp_gate(float* gate, size_t n, float limit) {
  for (size_t i = 0; i < n; ++i) gate[i] = gate[i] > limit ? limit : gate[i];
}
void clamp_up(float* up, size_t n, float limit) {
  for (size_t i = 0; i < n; ++i) {
    const float below = up[i] > limit ? limit : up[i];
    up[i] = below < -limit ? -limit : below;
  }
}

Operation operation_of(int32_t expert, Operation routed, Operation dense) {
  if (expert == kDense) return dense;
  return expert == kShared ? Operation::shared_expert : routed;
}

// The smallest slot wins, so that the message does not depend on the threads.
void note_bad(std::atomic<size_t>& bad, size_t slot) {
  size_t seen = bad.load(std::memory_order_relaxed);
  while (slot < seen && !bad.compare_exchange_weak(seen, slot, std::memory_order_relaxed)) {
  }
}

}  // namespace

// Consecutive slots that one expert computes.
struct Moe::Job {
  const ExpertMatrices* matrices = nullptr;
  int32_t expert = kShared;
  size_t first_slot = 0;
  size_t slots = 0;
};

struct Moe::Work {
  Work(const MoeOptions& options, ThreadPool& pool)
      : rows(pool, options.target.isa), rounding(options.target, options.quantizer_block) {}

  RowWork rows;
  Rounding rounding;
  kernels::Activations router_rows, inputs, middle;
  Buffer logits;   // [rows][experts]
  Buffer rounded;  // [rows][hidden], faithful: what products of FP8 and FP4 read
  Buffer gate_up;  // [slots of a part][gate | up]
  Buffer results;  // [slots of a part][hidden]

  std::vector<int32_t> chosen;       // [rows][per_token] ascending
  std::vector<float> weights;        // [rows][per_token]
  std::vector<uint32_t> row_slot;    // [rows][per_token]
  std::vector<uint32_t> slot_row;    // [rows * per_token + rows]
  std::vector<float> slot_weight;    // the same
  std::vector<uint32_t> slot_job;    // the same; of the part that runs
  std::vector<int32_t> active;       // experts that a row chose, ascending
  std::vector<uint32_t> first_slot;  // [active + 1]
  std::vector<uint32_t> counts;      // [experts]
  std::vector<Job> jobs;
  std::vector<uint32_t> segments;
  std::vector<kernels::Product> products;
  std::vector<uint64_t> forced_rows;  // [layers of the source]
  std::atomic<size_t> bad{kNoSlot};   // a slot or row whose values are no numbers
};

Moe::Moe(const MoeOptions& options, ThreadPool& pool)
    : options_(options), pool_(pool), work_(std::make_unique<Work>(options, pool)) {}
Moe::~Moe() = default;

void Moe::set_force(Force force) {
  force_ = force;
  work_->forced_rows.clear();
}

size_t Moe::bytes() const {
  return work_->logits.size() + work_->rounded.size() + work_->gate_up.size() +
         work_->results.size();
}

Result<MoeLayer> Moe::load(const weights::MoeTensors& tensors, const weights::MoeConfig& config,
                           kernels::RouterScore score, size_t hidden, size_t source_layer,
                           const std::string& where, MatrixLoader& loader) {
  MoeLayer layer;
  layer.router_shape = {.experts = config.experts,
                        .per_token = config.per_token,
                        .groups = config.groups,
                        .groups_kept = config.groups_kept,
                        .score = score,
                        .normalize = config.normalize,
                        .scaling = static_cast<float>(config.scaling)};
  layer.clamp = static_cast<float>(config.clamp);
  layer.hidden = hidden;
  layer.width = config.width;
  layer.shared_width = config.shared > 0 ? config.shared_width : 0;
  layer.source_layer = source_layer;
  layer.router = TRY(loader.matrix(tensors.router, where + " router"));
  if (tensors.bias) layer.bias = TRY(loader.floats(*tensors.bias, where + " router bias"));
  if (tensors.bias_vl) {
    layer.bias_vl = TRY(loader.floats(*tensors.bias_vl, where + " router bias of images"));
  }
  if (tensors.by_id) {
    const std::string name = where + " experts by id";
    layer.by_id = TRY(loader.integers(*tensors.by_id, name));
    for (const int32_t expert : layer.by_id) {
      if (expert >= 0 && static_cast<uint32_t>(expert) < config.experts) continue;
      return Error::corrupt(name, "names expert " + std::to_string(expert) + ", there are " +
                                      std::to_string(config.experts));
    }
  }
  if (layer.shared_width > 0) {
    layer.shared = TRY(load_expert(tensors.shared, where + " shared expert", loader));
  }
  return layer;
}

void Moe::force_row(const MoeLayer& layer, uint64_t row, int32_t* chosen, float* weights) const {
  const kernels::RouterShape& shape = layer.router_shape;
  for (size_t k = 0; k < shape.per_token; ++k) {
    const uint64_t expert = force_ == Force::balanced ? row * shape.per_token + k : k;
    chosen[k] = static_cast<int32_t>(expert % shape.experts);
    weights[k] = shape.scaling / static_cast<float>(shape.per_token);
  }
  std::sort(chosen, chosen + shape.per_token);
}

Result<void> Moe::route(const MoeLayer& layer, std::span<const float> h, size_t rows,
                        std::span<const int32_t> ids, std::span<const uint8_t> image,
                        const std::string& where, Profile& profile) {
  const kernels::RouterShape& shape = layer.router_shape;
  const size_t k = shape.per_token;
  const kernels::RowOps& ops = work_->rows.ops();
  Work& work = *work_;
  const auto timer =
      profile.measure(Operation::router, layer.router.bytes(),
                      2.0 * static_cast<double>(rows * shape.experts * layer.hidden));
  grow(work.logits, rows * shape.experts);
  work.chosen.resize(rows * k);
  work.weights.resize(rows * k);
  work.router_rows.begin(options_.target, rows, layer.hidden, layer.router.form());
  work_->rows.for_rows(rows, layer.hidden, [&](size_t row, size_t) {
    work.router_rows.fill_row(row, h.data() + row * layer.hidden);
  });
  float* logits = work.logits.as<float>();
  kernels::matmul(pool_, work.router_rows,
                  {{.weights = &layer.router, .out = logits, .stride = shape.experts}});
  if (force_ != Force::none && work.forced_rows.size() <= layer.source_layer) {
    work.forced_rows.resize(layer.source_layer + 1);
  }
  work_->rows.for_rows(rows, shape.experts * 16, [&](size_t row, size_t) {
    const float* of_row = logits + row * shape.experts;
    int32_t* chosen = work.chosen.data() + row * k;
    float* weights = work.weights.data() + row * k;
    if (!ops.all_finite(of_row, shape.experts)) note_bad(work.bad, row);
    if (work.bad.load(std::memory_order_relaxed) != kNoSlot) return;
    const bool of_image = !image.empty() && image[row] != 0 && !layer.bias_vl.empty();
    const std::vector<float>& bias = of_image ? layer.bias_vl : layer.bias;
    const int32_t* given = nullptr;
    if (!layer.by_id.empty()) {
      const size_t first = static_cast<size_t>(ids[row]) * k;
      check(ids[row] >= 0 && first + k <= layer.by_id.size(), "id outside the vocabulary");
      given = layer.by_id.data() + first;
    }
    kernels::route_row(shape, of_row, bias.empty() ? nullptr : bias.data(), given, chosen, weights);
    if (force_ != Force::none) {
      force_row(layer, work.forced_rows[layer.source_layer] + row, chosen, weights);
    }
  });
  if (force_ != Force::none) work.forced_rows[layer.source_layer] += rows;
  if (work.bad.exchange(kNoSlot) != kNoSlot) return not_finite(where + " router");
  return {};
}

void Moe::round_inputs(std::span<const float> h, size_t rows, size_t hidden) {
  if (!work_->rounding.on()) return;
  grow(work_->rounded, rows * hidden);
  float* rounded = work_->rounded.as<float>();
  work_->rows.for_rows(rows, hidden, [&](size_t row, size_t) {
    std::memcpy(rounded + row * hidden, h.data() + row * hidden, hidden * sizeof(float));
    work_->rounding.q8(rounded + row * hidden, hidden);
  });
}

void Moe::sort_slots(const MoeLayer& layer, size_t rows) {
  Work& work = *work_;
  const size_t k = layer.router_shape.per_token, pairs = rows * k;
  work.counts.assign(layer.router_shape.experts, 0);
  for (const int32_t expert : work.chosen) ++work.counts[static_cast<size_t>(expert)];
  work.active.clear();
  work.first_slot.assign(1, 0);
  for (size_t e = 0; e < work.counts.size(); ++e) {
    const uint32_t count = work.counts[e];
    if (count == 0) continue;
    work.counts[e] = work.first_slot.back();  // from here on: the expert's next free slot
    work.active.push_back(static_cast<int32_t>(e));
    work.first_slot.push_back(work.first_slot.back() + count);
  }
  work.row_slot.resize(pairs);
  work.slot_row.resize(pairs + rows);
  work.slot_weight.resize(pairs + rows);
  for (size_t pair = 0; pair < pairs; ++pair) {
    const uint32_t slot = work.counts[static_cast<size_t>(work.chosen[pair])]++;
    work.row_slot[pair] = slot;
    work.slot_row[slot] = static_cast<uint32_t>(pair / k);
    work.slot_weight[slot] = work.weights[pair];
  }
  for (size_t row = 0; row < rows; ++row) {
    work.slot_row[pairs + row] = static_cast<uint32_t>(row);
    work.slot_weight[pairs + row] = 1.0f;
  }
}

// Active experts from `first` on whose slots make one part.
size_t Moe::experts_of_part(size_t first) const {
  const std::vector<uint32_t>& starts = work_->first_slot;
  size_t end = first + 1;
  while (end < work_->active.size() && starts[end + 1] - starts[first] <= kSlotsPerPart) ++end;
  return end - first;
}

bool Moe::reads_rounded(const kernels::PackedMatrix& matrix) const {
  return work_->rounding.on() && takes_q8(matrix);
}

// A single row of the batch (decode) is prepared once for all its experts.
bool Moe::one_input(std::span<const Job> jobs) const {
  const size_t row = work_->slot_row[jobs[0].first_slot];
  return std::all_of(jobs.begin(), jobs.end(), [&](const Job& job) {
    return job.slots == 1 && work_->slot_row[job.first_slot] == row &&
           reads_rounded(job.matrices->gate) == reads_rounded(jobs[0].matrices->gate);
  });
}

void Moe::gate_and_up(std::span<const Job> jobs, std::span<const float> h, Profile& profile) {
  Work& work = *work_;
  const size_t hidden = jobs[0].matrices->gate.inputs(), width = jobs[0].matrices->gate.outputs();
  const size_t first = jobs.front().first_slot;
  const size_t slots = jobs.back().first_slot + jobs.back().slots - first;
  size_t bytes = 0;
  kernels::ActivationForms forms = 0;
  work.segments.clear();
  work.slot_job.resize(slots);
  for (size_t j = 0; j < jobs.size(); ++j) {
    const ExpertMatrices& m = *jobs[j].matrices;
    bytes += m.gate.bytes() + m.up.bytes();
    forms |= m.gate.form() | m.up.form();
    work.segments.push_back(static_cast<uint32_t>(jobs[j].slots));
    std::fill_n(work.slot_job.begin() + static_cast<ptrdiff_t>(jobs[j].first_slot - first),
                jobs[j].slots, static_cast<uint32_t>(j));
  }
  const auto timer = profile.measure(
      operation_of(jobs[0].expert, Operation::experts_up, Operation::ffn_up), bytes,
      4.0 * static_cast<double>(slots) * static_cast<double>(width) * static_cast<double>(hidden));
  grow(work.gate_up, slots * 2 * width);
  const bool one = one_input(jobs);
  if (one) {
    work.inputs.begin(options_.target, 1, hidden, forms);
  } else {
    work.inputs.begin(options_.target, work.segments, hidden, forms);
  }
  work_->rows.for_rows(one ? 1 : slots, hidden, [&](size_t s, size_t) {
    const bool rounded = reads_rounded(jobs[work.slot_job[s]].matrices->gate);
    const float* rows = rounded ? work.rounded.as<float>() : h.data();
    work.inputs.fill_row(s, rows + work.slot_row[first + s] * hidden);
  });
  work.products.clear();
  for (size_t j = 0; j < jobs.size(); ++j) {
    float* out = work.gate_up.as<float>() + (jobs[j].first_slot - first) * 2 * width;
    const uint32_t segment = one ? kernels::kAllRows : static_cast<uint32_t>(j);
    work.products.push_back(
        {.weights = &jobs[j].matrices->gate, .segment = segment, .out = out, .stride = 2 * width});
    work.products.push_back({.weights = &jobs[j].matrices->up,
                             .segment = segment,
                             .out = out + width,
                             .stride = 2 * width});
  }
  kernels::matmul(pool_, work.inputs, work.products);
}

Result<void> Moe::activate(std::span<const Job> jobs, float clamp, const std::string& where) {
  Work& work = *work_;
  const kernels::RowOps& ops = work_->rows.ops();
  const size_t width = jobs[0].matrices->gate.outputs();
  const size_t first = jobs.front().first_slot;
  kernels::ActivationForms forms = 0;
  for (const Job& job : jobs) forms |= job.matrices->down.form();
  work.middle.begin(options_.target, work.segments, width, forms);
  work_->rows.for_rows(work.slot_job.size(), 2 * width, [&](size_t s, size_t) {
    float* gate = work.gate_up.as<float>() + s * 2 * width;
    float* up = gate + width;
    if (!ops.all_finite(gate, 2 * width)) note_bad(work.bad, s);
    work.rounding.bf16(gate, 2 * width);
    if (clamp > 0.0f) {
      clamp_gate(gate, width, clamp);
      clamp_up(up, width, clamp);
    }
    ops.silu_mul(gate, up, gate, width);
    const float weight = work.slot_weight[first + s];
    for (size_t i = 0; i < width; ++i) gate[i] *= weight;
    if (!ops.all_finite(gate, width)) note_bad(work.bad, s);
    work.rounding.input_of(jobs[work.slot_job[s]].matrices->down, gate, width);
    work.middle.fill_row(s, gate);
  });
  const size_t bad = work.bad.exchange(kNoSlot);
  if (bad == kNoSlot) return {};
  const int32_t expert = jobs[work.slot_job[bad]].expert;
  return not_finite(where + (expert < 0 ? "" : " expert " + std::to_string(expert)) +
                    " ffn gate and up");
}

void Moe::down(std::span<const Job> jobs, Profile& profile) {
  Work& work = *work_;
  const size_t hidden = jobs[0].matrices->down.outputs();
  const size_t width = jobs[0].matrices->down.inputs();
  const size_t first = jobs.front().first_slot, slots = work.slot_job.size();
  size_t bytes = 0;
  for (const Job& job : jobs) bytes += job.matrices->down.bytes();
  const auto timer = profile.measure(
      operation_of(jobs[0].expert, Operation::experts_down, Operation::ffn_down), bytes,
      2.0 * static_cast<double>(slots) * static_cast<double>(width) * static_cast<double>(hidden));
  grow(work.results, slots * hidden);
  work.products.clear();
  for (size_t j = 0; j < jobs.size(); ++j) {
    work.products.push_back(
        {.weights = &jobs[j].matrices->down,
         .segment = static_cast<uint32_t>(j),
         .out = work.results.as<float>() + (jobs[j].first_slot - first) * hidden,
         .stride = hidden});
  }
  kernels::matmul(pool_, work.middle, work.products);
}

Result<void> Moe::run_jobs(std::span<const Job> jobs, float clamp, std::span<const float> h,
                           const std::string& where, Profile& profile) {
  gate_and_up(jobs, h, profile);
  TRY(activate(jobs, clamp, where));
  down(jobs, profile);
  return {};
}

void Moe::add_results(size_t rows, size_t per_token, size_t hidden, size_t first, size_t end,
                      float* out) {
  Work& work = *work_;
  const kernels::RowOps& ops = work_->rows.ops();
  const auto add = [&](size_t row, size_t slot) {
    if (slot < first || slot >= end) return;
    float* result = work.results.as<float>() + (slot - first) * hidden;
    work.rounding.bf16(result, hidden);
    ops.add(out + row * hidden, result, hidden);
  };
  work_->rows.for_rows(rows, hidden * (per_token + 1), [&](size_t row, size_t) {
    for (size_t k = 0; k < per_token; ++k) add(row, work.row_slot[row * per_token + k]);
    add(row, rows * per_token + row);
  });
}

Result<void> Moe::finish(size_t rows, size_t hidden, float* out, const std::string& where) {
  const kernels::RowOps& ops = work_->rows.ops();
  work_->rows.for_rows(rows, hidden, [&](size_t row, size_t) {
    work_->rounding.bf16(out + row * hidden, hidden);
    if (!ops.all_finite(out + row * hidden, hidden)) note_bad(work_->bad, row);
  });
  if (work_->bad.exchange(kNoSlot) != kNoSlot) return not_finite(where + " ffn down");
  return {};
}

Result<void> Moe::forward(const MoeLayer& layer, ExpertSource& experts, std::span<const float> h,
                          size_t rows, std::span<const int32_t> ids, std::span<const uint8_t> image,
                          float* out, const std::string& where, Profile& profile,
                          Routing* routing) {
  Work& work = *work_;
  const size_t k = layer.router_shape.per_token, pairs = rows * k, hidden = layer.hidden;
  check(h.size() >= rows * hidden, "rows of the experts' input");
  TRY(route(layer, h, rows, ids, image, where, profile));
  if (routing != nullptr) *routing = {work.chosen, work.weights};
  round_inputs(h, rows, hidden);
  sort_slots(layer, rows);
  std::memset(out, 0, rows * hidden * sizeof(float));
  const Job shared = {.matrices = &layer.shared, .first_slot = pairs, .slots = rows};
  const bool shared_apart = layer.shared_width > 0 && layer.shared_width != layer.width;
  for (size_t done = 0; done < work.active.size();) {
    const std::span<const int32_t> wanted =
        std::span(work.active).subspan(done, experts_of_part(done));
    Result<ExpertLease> lease = [&] {
      const auto timer = profile.measure(Operation::expert_read);
      return experts.acquire(layer.source_layer, wanted);
    }();
    if (!lease.ok()) {
      Error error = lease.error();
      error.what = error.thing + ": " + error.what;
      error.thing = where + " experts";
      return error;
    }
    const std::vector<const ExpertMatrices*>& matrices = lease.value().matrices;
    check(!matrices.empty() && matrices.size() <= wanted.size(), "experts handed out");
    work.jobs.clear();
    for (size_t i = 0; i < matrices.size(); ++i) {
      const size_t first = work.first_slot[done + i];
      work.jobs.push_back({.matrices = matrices[i],
                           .expert = wanted[i],
                           .first_slot = first,
                           .slots = work.first_slot[done + i + 1] - first});
    }
    done += matrices.size();
    if (done == work.active.size() && layer.shared_width == layer.width) {
      work.jobs.push_back(shared);
    }
    TRY(run_jobs(work.jobs, layer.clamp, h, where, profile));
    add_results(rows, k, hidden, work.jobs.front().first_slot,
                work.jobs.back().first_slot + work.jobs.back().slots, out);
  }
  if (shared_apart) {
    TRY(run_jobs({&shared, 1}, layer.clamp, h, where + " shared expert", profile));
    add_results(rows, k, hidden, pairs, pairs + rows, out);
  }
  return finish(rows, hidden, out, where);
}

Result<void> Moe::forward_dense(const ExpertMatrices& matrices, float clamp,
                                std::span<const float> h, size_t rows, float* out,
                                const std::string& where, Profile& profile) {
  Work& work = *work_;
  const size_t hidden = matrices.gate.inputs();
  check(h.size() >= rows * hidden, "rows of the ffn's input");
  round_inputs(h, rows, hidden);
  work.slot_row.resize(rows);
  for (size_t row = 0; row < rows; ++row) work.slot_row[row] = static_cast<uint32_t>(row);
  work.slot_weight.assign(rows, 1.0f);
  std::memset(out, 0, rows * hidden * sizeof(float));
  const Job job = {.matrices = &matrices, .expert = kDense, .slots = rows};
  TRY(run_jobs({&job, 1}, clamp, h, where, profile));
  add_results(rows, 0, hidden, 0, rows, out);
  return finish(rows, hidden, out, where);
}

}  // namespace deepinfer::models
