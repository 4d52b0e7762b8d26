#include "models/deepseek_v3/mla_layer.h"

#include <cstring>

#include "models/row_work.h"

namespace deepinfer::models {
namespace {

// A matrix that was made here; view points into it.
struct MadeMatrix {
  std::vector<std::byte> codes, scales;
  ScaledView view;
};

TensorView matrix_view(DType dtype, uint64_t rows, uint64_t columns,
                       const std::vector<std::byte>& bytes) {
  return {.dtype = dtype, .shape = {rows, columns}, .data = bytes.data()};
}

// rows x columns elements of `size` bytes -> columns x rows.
std::vector<std::byte> transpose(const std::byte* from, size_t rows, size_t columns, size_t size) {
  std::vector<std::byte> to(rows * columns * size);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      std::memcpy(to.data() + (c * rows + r) * size, from + (r * columns + c) * size, size);
    }
  }
  return to;
}

// Outputs [first, first + count) as floats.
MadeMatrix decoded(const ScaledView& matrix, uint64_t first, uint64_t count) {
  const uint64_t columns = matrix.inputs();
  MadeMatrix made;
  made.codes.resize(count * columns * sizeof(float));
  for (uint64_t r = 0; r < count; ++r) {
    decode_row(matrix, first + r, reinterpret_cast<float*>(made.codes.data()) + r * columns);
  }
  made.view.codes = matrix_view(DType::f32, count, columns, made.codes);
  return made;
}

bool slices(const ScaledView& matrix, uint64_t first) {
  return !matrix.scaled() || first % matrix.tile_outputs == 0;
}

// The same values with rows and columns exchanged.
MadeMatrix transposed(const ScaledView& matrix, uint64_t first, uint64_t count) {
  const DTypeInfo& info = dtype_info(matrix.codes.dtype);
  const bool square = matrix.tile_outputs == matrix.tile_inputs;
  const bool elements =
      info.block_elements == 1 && slices(matrix, first) && (!matrix.scaled() || square);
  MadeMatrix from;  // floats, where the codes do not turn
  ScaledView view;
  if (elements) {
    view = matrix.slice_outputs(first, count);
  } else {
    from = decoded(matrix, first, count);
    view = from.view;
  }
  MadeMatrix made;
  made.codes =
      transpose(view.codes.data, count, view.inputs(), dtype_info(view.codes.dtype).block_bytes);
  made.view.codes = matrix_view(view.codes.dtype, view.inputs(), count, made.codes);
  if (view.scaled()) {
    const uint64_t rows = view.scales.rows(), columns = view.scales.row_elements();
    made.scales =
        transpose(view.scales.data, rows, columns, dtype_info(view.scales.dtype).block_bytes);
    made.view.scales = matrix_view(view.scales.dtype, columns, rows, made.scales);
    made.view.tile_outputs = view.tile_inputs;
    made.view.tile_inputs = view.tile_outputs;
  }
  return made;
}

// Matrices that the file has per head already.
Result<void> load_heads(const ScaledView& k_b, const ScaledView& v_b, const MlaShape& shape,
                        const std::string& name, MatrixLoader& loader, MlaLayer& layer) {
  for (size_t h = 0; h < shape.heads; ++h) {
    const std::string head = " head " + std::to_string(h);
    layer.keys.push_back(TRY(
        loader.matrix(k_b.slice_outputs(h * shape.kv_lora, shape.kv_lora), name + " k_b" + head)));
    layer.values.push_back(
        TRY(loader.matrix(v_b.slice_outputs(h * shape.value, shape.value), name + " v_b" + head)));
  }
  return {};
}

Result<void> load_heads(const ScaledView& kv_b, const MlaShape& shape, const std::string& name,
                        MatrixLoader& loader, MlaLayer& layer) {
  for (size_t h = 0; h < shape.heads; ++h) {
    const uint64_t first = h * (shape.nope + shape.value);
    const std::string head = name + " kv_b head " + std::to_string(h);
    layer.keys.push_back(
        TRY(loader.matrix(transposed(kv_b, first, shape.nope).view, head + " keys")));
    const uint64_t second = first + shape.nope;
    layer.values.push_back(
        slices(kv_b, second)
            ? TRY(loader.matrix(kv_b.slice_outputs(second, shape.value), head + " values"))
            : TRY(loader.matrix(decoded(kv_b, second, shape.value).view, head + " values")));
  }
  return {};
}

Result<void> multiple_of_8(const char* field, size_t value) {
  if (value % 8 == 0) return {};
  return Error::unsupported(field, std::to_string(value) + " is no multiple of 8");
}

}  // namespace

cache::CacheLayout mla_cache(size_t layers, const MlaShape& shape) {
  cache::CacheLayout layout;
  for (size_t i = 0; i < layers; ++i) {
    layout.growing.push_back(
        {in_layer(i, "latent rows"), shape.row.row_bytes() * cache::kTokensPerPage});
    if (shape.index_topk == 0) continue;
    layout.growing.push_back(
        {in_layer(i, "index keys"), shape.index_row.row_bytes() * cache::kTokensPerPage});
  }
  return layout;
}

Result<MlaShape> mla_shape(const weights::DeepseekV3Config& config, KvMode kv) {
  const kernels::LatentCode code =
      kv == KvMode::f32 ? kernels::LatentCode::f32 : kernels::LatentCode::bf16;
  MlaShape shape = {.hidden = config.hidden,
                    .heads = config.heads,
                    .q_lora = config.q_lora,
                    .kv_lora = config.kv_lora,
                    .nope = config.nope_dim,
                    .rope = config.rope_dim,
                    .value = config.value_dim,
                    .norm_eps = static_cast<float>(config.norm_eps),
                    .softmax_scale = static_cast<float>(config.softmax_scale),
                    .row = {.code = code, .width = config.kv_lora + config.rope_dim, .rope = 0},
                    .index_heads = config.index_heads,
                    .index_dim = config.index_dim,
                    .index_topk = config.index_topk,
                    .index_row = {.code = code, .width = config.index_dim, .rope = 0}};
  TRY(multiple_of_8("kv_lora_rank", shape.kv_lora));
  TRY(multiple_of_8("qk_rope_head_dim", shape.rope));
  TRY(multiple_of_8("index_head_dim", shape.index_dim));
  if (shape.index_topk > 0 && shape.index_dim < shape.rope) {
    return Error::invalid("index_head_dim", std::to_string(shape.index_dim) +
                                                " is below qk_rope_head_dim " +
                                                std::to_string(shape.rope));
  }
  if (shape.index_topk > 0 && shape.q_lora == 0) {
    return Error::unsupported("q_lora_rank", "0 with an indexer, whose queries come from it");
  }
  return shape;
}

size_t MlaLayer::bytes() const {
  size_t bytes = q_b.bytes() + kv_a.bytes() + o.bytes();
  if (q_a) bytes += q_a->bytes();
  for (const kernels::PackedMatrix& matrix : keys) bytes += matrix.bytes();
  for (const kernels::PackedMatrix& matrix : values) bytes += matrix.bytes();
  if (index) bytes += index->q_b.bytes() + index->key.bytes() + index->weights.bytes();
  return bytes;
}

Result<MlaLayer> load_mla_layer(const weights::V3LayerTensors& tensors, const MlaShape& shape,
                                const std::string& name, MatrixLoader& loader) {
  MlaLayer layer;
  layer.norm = TRY(loader.floats(tensors.attn_norm, name + " norm"));
  if (tensors.q_a) layer.q_a = TRY(loader.matrix(*tensors.q_a, name + " q_a"));
  if (tensors.q_norm) layer.q_norm = TRY(loader.floats(*tensors.q_norm, name + " q norm"));
  layer.q_b = TRY(loader.matrix(tensors.q_b, name + " q_b"));
  layer.kv_a = TRY(loader.matrix(tensors.kv_a, name + " kv_a"));
  layer.kv_norm = TRY(loader.floats(tensors.kv_norm, name + " kv norm"));
  if (tensors.k_b && tensors.v_b) {
    TRY(load_heads(*tensors.k_b, *tensors.v_b, shape, name, loader, layer));
  } else {
    TRY(load_heads(tensors.kv_b, shape, name, loader, layer));
  }
  layer.o = TRY(loader.matrix(tensors.o, name + " output"));
  if (tensors.indexer) {
    const weights::V3IndexerTensors& from = *tensors.indexer;
    layer.index =
        MlaIndexLayer{.q_b = TRY(loader.matrix(from.q_b, name + " index q_b")),
                      .key = TRY(loader.matrix(from.key, name + " index key")),
                      .weights = TRY(loader.matrix(from.weights, name + " index weights")),
                      .key_norm = TRY(loader.floats(from.key_norm, name + " index key norm")),
                      .key_bias = TRY(loader.floats(from.key_bias, name + " index key norm bias"))};
  }
  return layer;
}

}  // namespace deepinfer::models
