#include "models/deepseek_v3/mla_block.h"

#include <algorithm>
#include <cstring>

#include "models/measured_product.h"

namespace deepinfer::models {
namespace {

// Of the latent queries of a block; as much again for what attention gives.
constexpr size_t kBlockBytes = size_t{32} << 20;
constexpr size_t kLeastBlockRows = 16;

}  // namespace

MlaBlock::MlaBlock(const MlaShape& shape, kernels::Target target, RowWork& work, Profile& profile)
    : shape_(shape), target_(target), work_(work), profile_(profile) {
  if (shape_.index_topk > 0) indexer_.emplace(shape_, target_.isa, work_, profile_);
}

Result<void> MlaBlock::create(size_t max_rows, size_t threads) {
  const size_t row_bytes = shape_.heads * shape_.latent() * sizeof(float);
  block_rows_ = std::min(max_rows, std::max(kLeastBlockRows, kBlockBytes / row_bytes));
  query_input_ = TRY(Buffer::create(max_rows * shape_.query_input() * sizeof(float)));
  kv_ = TRY(Buffer::create(max_rows * shape_.latent() * sizeof(float)));
  query_ = TRY(Buffer::create(block_rows_ * shape_.query() * sizeof(float)));
  latent_query_ = TRY(Buffer::create(block_rows_ * row_bytes));
  latent_out_ = TRY(Buffer::create(block_rows_ * shape_.heads * shape_.kv_lora * sizeof(float)));
  attended_ = TRY(Buffer::create(block_rows_ * shape_.attended() * sizeof(float)));
  scratch_ = TRY(Buffer::create(threads * shape_.hidden * sizeof(float)));
  if (indexer_) TRY(indexer_->create(max_rows, block_rows_));
  return {};
}

size_t MlaBlock::bytes() const {
  return query_input_.size() + kv_.size() + query_.size() + latent_query_.size() +
         latent_out_.size() + attended_.size() + scratch_.size() +
         (indexer_ ? indexer_->bytes() : 0);
}

Result<void> MlaBlock::append(const MlaLayer& layer, const RopeRows& rope,
                              std::span<const MlaRow> rows, const float* x,
                              const std::string& where, const std::string& before) {
  const kernels::RowOps& ops = work_.ops();
  const size_t hidden = shape_.hidden, lora = shape_.kv_lora;
  products_.clear();
  if (layer.q_a) {
    products_.push_back({.weights = &*layer.q_a, .out = query_input(0), .stride = shape_.q_lora});
  }
  products_.push_back({.weights = &layer.kv_a, .out = kv(0), .stride = shape_.latent()});
  if (indexer_) {
    products_.push_back(
        {.weights = &layer.index->key, .out = indexer_->key(0), .stride = shape_.index_dim});
    products_.push_back({.weights = &layer.index->weights,
                         .out = indexer_->weights(0),
                         .stride = shape_.index_heads});
  }
  {
    const auto timer = profile_.measure(Operation::norm);
    kernels::ActivationForms forms = kernels::kRefined;
    for (const kernels::Product& product : products_) forms |= product.weights->form();
    activations_.begin(target_, rows.size(), hidden, forms);
    work_.for_rows(rows.size(), hidden, [&](size_t row, size_t worker) {
      work_.expect_finite(x + row * hidden, hidden);
      float* n = layer.q_a ? scratch_.as<float>() + worker * hidden : query_input(row);
      ops.rms_norm(x + row * hidden, layer.norm.data(), shape_.norm_eps, n, hidden);
      activations_.fill_row(row, n);
    });
  }
  if (work_.found_bad()) return not_finite(before);
  measured_matmul(work_.pool(), profile_, Operation::qkv, rows.size(), activations_, products_);

  const auto timer = profile_.measure(Operation::rope);
  const kernels::LatentRowOps& latent_ops = kernels::latent_row_ops(target_.isa);
  work_.for_rows(rows.size(), shape_.query_input() + shape_.latent(), [&](size_t row, size_t) {
    const size_t page = rows[row].position / cache::kTokensPerPage;
    const size_t entry = rows[row].position % cache::kTokensPerPage;
    if (layer.q_a) {
      float* q = query_input(row);
      ops.rms_norm(q, layer.q_norm.data(), shape_.norm_eps, q, shape_.q_lora);
      work_.expect_finite(q, shape_.q_lora);
    }
    float* c = kv(row);
    ops.rms_norm(c, layer.kv_norm.data(), shape_.norm_eps, c, lora);
    rope.rotate(ops, row, c, shape_.latent());
    work_.expect_finite(c, shape_.latent());
    latent_ops.encode(shape_.row, c, rows[row].pages[page] + entry * shape_.row.row_bytes());
    if (indexer_) {
      indexer_->finish_key(*layer.index, rope, row,
                           rows[row].index_pages[page] + entry * shape_.index_row.row_bytes());
    }
  });
  if (work_.found_bad()) return not_finite(where + " q_a, kv_a");
  return {};
}

Result<void> MlaBlock::make_queries(const MlaLayer& layer, const RopeRows& rope,
                                    std::span<const uint32_t> live, const std::string& where) {
  const size_t head = shape_.head(), nope = shape_.nope, latent = shape_.latent();
  products_.clear();
  products_.push_back({.weights = &layer.q_b, .out = query(0), .stride = shape_.query()});
  if (indexer_) {
    products_.push_back({.weights = &layer.index->q_b,
                         .out = indexer_->query(0),
                         .stride = shape_.index_heads * shape_.index_dim});
  }
  kernels::ActivationForms forms = shape_.q_lora > 0 ? 0 : kernels::kRefined;
  for (const kernels::Product& product : products_) forms |= product.weights->form();
  activations_.begin(target_, live.size(), shape_.query_input(), forms);
  work_.for_rows(live.size(), shape_.query_input(), [&](size_t slot, size_t) {
    activations_.fill_row(slot, query_input(live[slot]));
  });
  measured_matmul(work_.pool(), profile_, Operation::query, live.size(), activations_, products_);

  const auto timer = profile_.measure(Operation::rope);
  segments_.assign(shape_.heads, static_cast<uint32_t>(live.size()));
  forms = 0;
  for (const kernels::PackedMatrix& matrix : layer.keys) forms |= matrix.form();
  activations_.begin(target_, segments_, nope, forms);
  work_.for_rows(live.size(), 2 * shape_.query(), [&](size_t slot, size_t) {
    work_.expect_finite(query(slot), shape_.query());
    for (size_t h = 0; h < shape_.heads; ++h) {
      float* q = query(slot) + h * head;
      rope.rotate(work_.ops(), live[slot], q, head);
      activations_.fill_row(h * live.size() + slot, q);
      std::memcpy(latent_query(slot) + h * latent + shape_.kv_lora, q + nope,
                  shape_.rope * sizeof(float));
    }
    if (indexer_) indexer_->finish_query(rope, live[slot], slot);
  });
  if (work_.found_bad()) return not_finite(where + " q_b");
  return {};
}

void MlaBlock::absorb_keys(const MlaLayer& layer, size_t rows) {
  products_.clear();
  for (size_t h = 0; h < shape_.heads; ++h) {
    products_.push_back({.weights = &layer.keys[h],
                         .segment = static_cast<uint32_t>(h),
                         .out = latent_query(0) + h * shape_.latent(),
                         .stride = shape_.heads * shape_.latent()});
  }
  measured_matmul(work_.pool(), profile_, Operation::absorb, rows, activations_, products_);
}

Result<void> MlaBlock::attend_latent(std::span<const MlaRow> rows, std::span<const uint32_t> live,
                                     const std::string& where) {
  if (indexer_) {
    index_rows_.clear();
    for (const uint32_t row : live) {
      index_rows_.push_back({.row = row,
                             .pages = rows[row].index_pages,
                             .visible = static_cast<size_t>(rows[row].position) + 1});
    }
    TRY(indexer_->select(index_rows_, where));
  }
  latent_queries_.clear();
  double keys = 0;
  for (size_t slot = 0; slot < live.size(); ++slot) {
    const MlaRow& row = rows[live[slot]];
    kernels::LatentQuery query;
    query.query = latent_query(slot);
    query.out = latent_out(slot);
    query.pages = row.pages;
    query.entry_count = static_cast<size_t>(row.position) + 1;
    if (indexer_ && indexer_->selected(slot) != nullptr) {
      query.selected = indexer_->selected(slot);
      query.entry_count = indexer_->selected_count(slot);
    }
    keys += static_cast<double>(query.entry_count);
    latent_queries_.push_back(query);
  }
  const auto timer = profile_.measure(
      Operation::attention, 0,
      2.0 * keys * static_cast<double>(shape_.heads * (shape_.latent() + shape_.kv_lora)));
  kernels::latent_attention(work_.pool(), target_.isa,
                            {.heads = shape_.heads,
                             .dim = shape_.latent(),
                             .value_dim = shape_.kv_lora,
                             .window = shape_.row,
                             .entries = shape_.row,
                             .entries_per_page = cache::kTokensPerPage,
                             .scale = shape_.softmax_scale},
                            latent_queries_, workspace_);
  return {};
}

Result<void> MlaBlock::project_values(const MlaLayer& layer, size_t rows,
                                      const std::string& where) {
  const size_t lora = shape_.kv_lora;
  kernels::ActivationForms forms = 0;
  for (const kernels::PackedMatrix& matrix : layer.values) forms |= matrix.form();
  activations_.begin(target_, segments_, lora, forms);
  work_.for_rows(rows, shape_.heads * lora, [&](size_t slot, size_t) {
    work_.expect_finite(latent_out(slot), shape_.heads * lora);
    for (size_t h = 0; h < shape_.heads; ++h) {
      activations_.fill_row(h * rows + slot, latent_out(slot) + h * lora);
    }
  });
  if (work_.found_bad()) return not_finite(where);
  products_.clear();
  for (size_t h = 0; h < shape_.heads; ++h) {
    products_.push_back({.weights = &layer.values[h],
                         .segment = static_cast<uint32_t>(h),
                         .out = attended(0) + h * shape_.value,
                         .stride = shape_.attended()});
  }
  measured_matmul(work_.pool(), profile_, Operation::absorb, rows, activations_, products_);
  return {};
}

void MlaBlock::project_output(const MlaLayer& layer, size_t rows, float* x) {
  activations_.begin(target_, rows, shape_.attended(), layer.o.form());
  work_.for_rows(rows, shape_.attended(),
                 [&](size_t slot, size_t) { activations_.fill_row(slot, attended(slot)); });
  const kernels::Product product[] = {
      {.weights = &layer.o, .out = x, .stride = shape_.hidden, .epilogue = kernels::Epilogue::add}};
  measured_matmul(work_.pool(), profile_, Operation::attention_output, rows, activations_, product);
}

Result<void> MlaBlock::attend(const MlaLayer& layer, const RopeRows& rope,
                              std::span<const MlaRow> rows, std::span<const uint32_t> live,
                              float* x, const std::string& where) {
  for (size_t first = 0; first < live.size(); first += block_rows_) {
    const std::span<const uint32_t> block =
        live.subspan(first, std::min(block_rows_, live.size() - first));
    TRY(make_queries(layer, rope, block, where));
    absorb_keys(layer, block.size());
    TRY(attend_latent(rows, block, where));
    TRY(project_values(layer, block.size(), where));
    project_output(layer, block.size(), x + first * shape_.hidden);
  }
  return {};
}

}  // namespace deepinfer::models
