#include "models/latent_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace deepinfer::models {
namespace {

constexpr size_t kLineFloats = Buffer::kAlignment / sizeof(float);

unsigned form_bit(const kernels::PackedMatrix& matrix) {
  return static_cast<unsigned>(matrix.form());
}

// `matrix` with tiles of `tile_outputs` outputs, a divisor of its own: scale rows are repeated, in
// `scales`. A group of o_a may start inside of a tile.
ScaledView cut_tiles(const ScaledView& matrix, uint32_t tile_outputs, Buffer& scales) {
  ScaledView cut = matrix;
  cut.tile_outputs = tile_outputs;
  const uint64_t rows = (matrix.outputs() + tile_outputs - 1) / tile_outputs;
  cut.scales.shape = {rows, matrix.scales.row_elements()};
  const size_t row_bytes = matrix.scales.row_size();
  scales = Buffer(rows * row_bytes);
  for (uint64_t row = 0; row < rows; ++row) {
    std::memcpy(scales.data() + row * row_bytes,
                matrix.scales.row(row * tile_outputs / matrix.tile_outputs), row_bytes);
  }
  cut.scales.data = scales.data();
  return cut;
}

// The slices of o_a by group of heads, each [o_lora, group].
Result<void> load_groups(ScaledView o_a, const LatentBlockShape& shape, const std::string& name,
                         MatrixLoader& loader, std::vector<kernels::PackedMatrix>& groups) {
  if (o_a.codes.panels != PanelLayout::rows) {
    // `pack` leaves matrices alone whose groups do not start with a panel.
    const kernels::PackedMatrix whole = TRY(loader.matrix(o_a, name + " o_a"));
    for (size_t g = 0; g < shape.o_groups; ++g) {
      groups.push_back(whole.slice_outputs(g * shape.o_lora, shape.o_lora));
    }
    return {};
  }
  Buffer scales;
  if (o_a.scaled() && shape.o_lora % o_a.tile_outputs != 0) {
    const size_t tile = std::gcd<size_t, size_t>(shape.o_lora, o_a.tile_outputs);
    o_a = cut_tiles(o_a, static_cast<uint32_t>(tile), scales);
  }
  for (size_t g = 0; g < shape.o_groups; ++g) {
    groups.push_back(TRY(loader.matrix(o_a.slice_outputs(g * shape.o_lora, shape.o_lora),
                                       name + " o_a group " + std::to_string(g))));
  }
  return {};
}

}  // namespace

size_t LatentLayer::bytes() const {
  size_t bytes = q_a.bytes() + q_b.bytes() + kv.bytes() + o_b.bytes();
  for (const kernels::PackedMatrix& group : o_a) bytes += group.bytes();
  return bytes;
}

Result<LatentLayer> load_latent_layer(const weights::LatentAttentionTensors& tensors,
                                      const LatentBlockShape& shape, const std::string& name,
                                      MatrixLoader& loader) {
  LatentLayer layer;
  layer.q_a = TRY(loader.matrix(tensors.q_a, name + " q_a"));
  layer.q_norm = TRY(loader.floats(tensors.q_norm, name + " q norm"));
  layer.q_b = TRY(loader.matrix(tensors.q_b, name + " q_b"));
  layer.kv = TRY(loader.matrix(tensors.kv, name + " kv"));
  layer.kv_norm = TRY(loader.floats(tensors.kv_norm, name + " kv norm"));
  layer.sink = TRY(loader.floats(tensors.sink, name + " sink"));
  TRY(load_groups(tensors.o_a, shape, name, loader, layer.o_a));
  layer.o_b = TRY(loader.matrix(tensors.o_b, name + " o_b"));
  return layer;
}

LatentBlock::LatentBlock(const LatentBlockShape& shape, kernels::Target target, Rounding rounding,
                         RowWork& work, Profile& profile)
    : shape_(shape),
      target_(target),
      rounding_(rounding),
      work_(work),
      profile_(profile),
      latent_ops_(kernels::latent_row_ops(target.isa)),
      ones_(shape.head_dim, 1.0f) {}

Result<void> LatentBlock::create(size_t max_rows, size_t threads) {
  const size_t widest =
      std::max({shape_.hidden, shape_.q_lora, shape_.group(), shape_.rank(), shape_.head_dim});
  scratch_stride_ = (widest + kLineFloats - 1) / kLineFloats * kLineFloats;
  qr_ = TRY(Buffer::create(max_rows * shape_.q_lora * sizeof(float)));
  kv_ = TRY(Buffer::create(max_rows * shape_.head_dim * sizeof(float)));
  query_ = TRY(Buffer::create(max_rows * shape_.query() * sizeof(float)));
  attended_ = TRY(Buffer::create(max_rows * shape_.query() * sizeof(float)));
  rank_ = TRY(Buffer::create(max_rows * shape_.rank() * sizeof(float)));
  scratch_ = TRY(Buffer::create(threads * scratch_stride_ * sizeof(float)));
  return {};
}

size_t LatentBlock::bytes() const {
  return qr_.size() + kv_.size() + query_.size() + attended_.size() + rank_.size() +
         scratch_.size();
}

void LatentBlock::multiply(Operation operation, const kernels::Activations& activations,
                           size_t rows, std::span<const kernels::Product> products) {
  size_t bytes = 0;
  double operations = 0;
  for (const kernels::Product& product : products) {
    bytes += product.weights->bytes();
    operations += 2.0 * static_cast<double>(rows) *
                  static_cast<double>(product.weights->outputs() * product.weights->inputs());
  }
  const auto timer = profile_.measure(operation, bytes, operations);
  kernels::matmul(work_.pool(), activations, products);
}

// The inputs of the first products are refined where products round them to int8, as in the dense
// families: half of the error of `fast` comes from there.
Result<void> LatentBlock::project(const LatentLayer& layer, const RopeRows& rope, const float* h,
                                  size_t rows, QueryProduct more, std::byte* fresh,
                                  const std::string& where) {
  const kernels::RowOps& ops = work_.ops();
  activations_.begin(target_, rows, shape_.hidden,
                     form_bit(layer.q_a) | form_bit(layer.kv) | kernels::kRefined);
  work_.for_rows(rows, shape_.hidden, [&](size_t row, size_t worker) {
    float* x = scratch_.as<float>() + worker * scratch_stride_;
    std::memcpy(x, h + row * shape_.hidden, shape_.hidden * sizeof(float));
    rounding_.input_of(layer.q_a, x, shape_.hidden);
    activations_.fill_row(row, x);
  });
  const kernels::Product first[] = {
      {.weights = &layer.q_a, .out = qr_.as<float>(), .stride = shape_.q_lora},
      {.weights = &layer.kv, .out = kv_.as<float>(), .stride = shape_.head_dim}};
  multiply(Operation::qkv, activations_, rows, first);

  const unsigned more_form = more.matrix != nullptr ? form_bit(*more.matrix) : 0;
  activations_.begin(target_, rows, shape_.q_lora, form_bit(layer.q_b) | more_form);
  work_.for_rows(rows, shape_.q_lora + 2 * shape_.head_dim, [&](size_t row, size_t worker) {
    const size_t lora = shape_.q_lora, dim = shape_.head_dim;
    float* x = scratch_.as<float>() + worker * scratch_stride_;
    std::memcpy(x, qr_.as<float>() + row * lora, lora * sizeof(float));
    rounding_.bf16(x, lora);
    ops.rms_norm(x, layer.q_norm.data(), shape_.norm_eps, x, lora);
    rounding_.bf16(x, lora);
    work_.expect_finite(x, lora);
    rounding_.input_of(layer.q_b, x, lora);
    activations_.fill_row(row, x);

    encode_window_row(layer, rope, row, kv_.as<float>() + row * dim,
                      fresh + row * shape_.window.row_bytes());
  });
  if (work_.found_bad()) return not_finite(where + " q_a, kv");

  kernels::Product second[2] = {
      {.weights = &layer.q_b, .out = query_.as<float>(), .stride = shape_.query()}};
  if (more.matrix != nullptr) {
    second[1] = {.weights = more.matrix, .out = more.out, .stride = more.matrix->outputs()};
  }
  multiply(Operation::qkv, activations_, rows,
           std::span<const kernels::Product>(second, more.matrix != nullptr ? 2 : 1));
  {
    const auto timer = profile_.measure(Operation::rope);
    work_.for_rows(rows, shape_.query(), [&](size_t row, size_t) {
      finish_query(rope, row);
      if (more.matrix != nullptr) {
        const size_t width = more.matrix->outputs();
        work_.expect_finite(more.out + row * width, width);
      }
    });
  }
  if (work_.found_bad()) return not_finite(where + " q_b");
  return {};
}

void LatentBlock::encode_window_row(const LatentLayer& layer, const RopeRows& rope, size_t row,
                                    float* kv, std::byte* out) const {
  const size_t dim = shape_.head_dim;
  rounding_.bf16(kv, dim);
  work_.ops().rms_norm(kv, layer.kv_norm.data(), shape_.norm_eps, kv, dim);
  rounding_.bf16(kv, dim);
  rope.rotate(work_.ops(), row, kv, dim);
  rounding_.bf16(kv, dim);
  work_.expect_finite(kv, dim);
  latent_ops_.encode(shape_.window, kv, out);
}

void LatentBlock::finish_query(const RopeRows& rope, size_t row) {
  const size_t dim = shape_.head_dim;
  float* q = query(row);
  rounding_.bf16(q, shape_.query());
  work_.expect_finite(q, shape_.query());
  for (size_t head = 0; head < shape_.heads; ++head) {
    float* values = q + head * dim;
    if (shape_.norm_heads) {
      work_.ops().rms_norm(values, ones_.data(), shape_.norm_eps, values, dim);
      rounding_.bf16(values, dim);
    }
    rope.rotate(work_.ops(), row, values, dim);
  }
  rounding_.bf16(q, shape_.query());
}

Result<void> LatentBlock::attend(const LatentLayer& layer, const RopeRows& rope,
                                 std::span<const kernels::LatentQuery> queries,
                                 kernels::LatentFormat entries, size_t entries_per_page, float* out,
                                 const std::string& where) {
  const size_t rows = queries.size();
  {
    double keys = 0;
    for (const kernels::LatentQuery& query : queries) {
      keys += static_cast<double>(query.window_end - query.window_first + query.entry_count);
    }
    const kernels::LatentShape shape = {
        .heads = shape_.heads,
        .dim = shape_.head_dim,
        .value_dim = shape_.head_dim,
        .window = shape_.window,
        .entries = entries,
        .entries_per_page = entries_per_page,
        .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
        .sink = layer.sink.data(),
        .faithful = rounding_.on()};
    const auto timer =
        profile_.measure(Operation::attention, 0, 4.0 * keys * static_cast<double>(shape_.query()));
    kernels::latent_attention(work_.pool(), target_.isa, shape, queries, workspace_);
  }

  // Every group of heads is a segment: its rows meet its own matrix only.
  const std::vector<uint32_t> segments(shape_.o_groups, static_cast<uint32_t>(rows));
  const size_t width = shape_.group();
  activations_.begin(target_, segments, width, form_bit(layer.o_a[0]));
  work_.for_rows(rows, shape_.query(), [&](size_t row, size_t) {
    float* o = attended(row);
    work_.expect_finite(o, shape_.query());
    for (size_t head = 0; head < shape_.heads; ++head) {
      rope.rotate_back(work_.ops(), row, o + head * shape_.head_dim, shape_.head_dim);
    }
    if (shape_.plain_o_a_input) {
      rounding_.bf16(o, shape_.query());
    } else {
      rounding_.input_of(layer.o_a[0], o, shape_.query());
    }
    for (size_t g = 0; g < shape_.o_groups; ++g) {
      activations_.fill_row(g * rows + row, o + g * width);
    }
  });
  if (work_.found_bad()) return not_finite(where);
  std::vector<kernels::Product> groups;
  for (size_t g = 0; g < shape_.o_groups; ++g) {
    groups.push_back({.weights = &layer.o_a[g],
                      .segment = static_cast<uint32_t>(g),
                      .out = rank_.as<float>() + g * shape_.o_lora,
                      .stride = shape_.rank()});
  }
  multiply(Operation::attention_output, activations_, rows, groups);

  activations_.begin(target_, rows, shape_.rank(), form_bit(layer.o_b));
  work_.for_rows(rows, shape_.rank(), [&](size_t row, size_t) {
    float* r = rank_.as<float>() + row * shape_.rank();
    rounding_.bf16(r, shape_.rank());
    work_.expect_finite(r, shape_.rank());
    rounding_.input_of(layer.o_b, r, shape_.rank());
    activations_.fill_row(row, r);
  });
  if (work_.found_bad()) return not_finite(where + " o_a");
  const kernels::Product last[] = {{.weights = &layer.o_b, .out = out, .stride = shape_.hidden}};
  multiply(Operation::attention_output, activations_, rows, last);
  return {};
}

}  // namespace deepinfer::models
