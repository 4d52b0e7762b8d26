#include "weights/deepseek/deepseek_roles.h"

#include <fmt/format.h>

#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

constexpr uint32_t kFp4Block = 32;

uint64_t tiles(uint64_t extent, uint64_t tile) { return (extent + tile - 1) / tile; }

std::string_view name_of(DType dtype) { return dtype_info(dtype).name; }

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// "a.attn.b" -> "a.self_attn.b".
std::string replaced(std::string name, std::string_view from, std::string_view to) {
  const size_t at = name.find(from);
  if (at != std::string::npos) name.replace(at, from.size(), to);
  return name;
}

struct Tile {
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  DType scales = DType::f8_e8m0;
};

Tile tile_of(MatrixStorage storage) {
  switch (storage) {
    case MatrixStorage::plain:
      return {};
    case MatrixStorage::fp8_32:
      return {32, 32, DType::f8_e8m0};
    case MatrixStorage::fp8_128:
      return {128, 128, DType::f8_e8m0};
    case MatrixStorage::fp8_128_f32:
      return {128, 128, DType::f32};
  }
  check(false, "every storage has a tile");
  return {};
}

}  // namespace

std::string_view part_name(Part part) {
  switch (part) {
    case Part::embedding:
      return "embedding";
    case Part::head:
      return "head";
    case Part::attention:
      return "attention";
    case Part::engram:
      return "Engram projections";
    case Part::engram_table:
      return "Engram tables";
    case Part::dense:
      return "dense feed-forward";
    case Part::router:
      return "router";
    case Part::experts:
      return "routed experts";
    case Part::shared_experts:
      return "shared experts";
    case Part::draft:
      return "drafts";
    case Part::draft_experts:
      return "draft experts";
    case Part::vision:
      return "vision";
  }
  check(false, "every part has a name");
  return {};
}

uint64_t TensorSpec::bytes() const {
  if (file_bytes != 0) return file_bytes;
  return row_bytes(dtype, shape.row_elements()) * shape.rows();
}

DeepseekRoles::DeepseekRoles(const Checkpoint& checkpoint, const QuantizationConfig& quantization,
                             Translation gguf)
    : checkpoint_(&checkpoint), quantization_(quantization), gguf_(std::move(gguf)) {
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (tensor.name.find(".self_attn.") != std::string::npos) self_attn_ = true;
    if (tensor.name.find(".mlp.") != std::string::npos) mlp_ = true;
  }
}

DeepseekRoles::DeepseekRoles(const QuantizationConfig& quantization)
    : quantization_(quantization) {}

std::string DeepseekRoles::file_name(const std::string& name) const {
  if (gguf_) return gguf_(name).value_or(name);
  if (checkpoint_->find(name) != nullptr) return name;
  std::string other = name;
  if (self_attn_) other = replaced(other, ".attn.", ".self_attn.");
  if (mlp_) other = replaced(other, ".ffn.", ".mlp.");
  const std::string corrected = replaced(other, ".gate.bias", ".gate.e_score_correction_bias");
  for (const std::string& variant : {other, corrected}) {
    if (checkpoint_->find(variant) != nullptr) return variant;
    if (checkpoint_->find("model." + variant) != nullptr) return "model." + variant;
  }
  return name;
}

bool DeepseekRoles::has(const std::string& name) const {
  return checkpoint_ != nullptr && checkpoint_->find(file_name(name)) != nullptr;
}

std::string DeepseekRoles::thing(const std::string& name) const {
  return tensor_thing(checkpoint_->path(), name);
}

void DeepseekRoles::note(const std::string& name, DType dtype, const Shape& shape) {
  specs_.push_back({name, dtype, shape, part_});
}

Result<const TensorView*> DeepseekRoles::take(const std::string& name,
                                              const std::string& expected) {
  const TensorView* view = checkpoint_->find(name);
  if (view == nullptr) {
    return Error::corrupt(thing(name),
                          fmt::format("is missing, config asks for one of shape {}", expected));
  }
  claim(name, *view);
  return view;
}

void DeepseekRoles::claim(const std::string& name, const TensorView& view) {
  if (!used_.insert(&view).second) return;
  const bool expert = name.find(".experts.") != std::string::npos || name.ends_with("_exps.weight");
  const uint64_t bytes = checkpoint_->find_tensor(name)->bytes;
  specs_.push_back({name, view.dtype, view.shape, expert ? expert_part_ : part_, bytes});
}

Result<TensorView> DeepseekRoles::shaped(const std::string& name, const Shape& shape) {
  const std::string file = file_name(name);
  const TensorView* view = TRY(take(file, shape.text()));
  if (view->shape == shape) return *view;
  // GGUF files write the groups of attn_output_a flat or as a dimension of their own.
  const Shape& found = view->shape;
  if (gguf() && shape.rank() == 2 && found.rank() == 3 && found[0] * found[1] == shape[0] &&
      found[2] == shape[1]) {
    return TensorView{view->dtype, shape, view->data};
  }
  return Error::corrupt(thing(file),
                        fmt::format("file has {}, config says {}", found.text(), shape.text()));
}

Result<TensorView> DeepseekRoles::plain(const std::string& name, const Shape& shape, DType usual) {
  if (listing()) {
    note(name, usual, shape);
    return TensorView{usual, shape, nullptr};
  }
  const TensorView view = TRY(shaped(name, shape));
  if (is_float(view.dtype) || gguf()) return view;
  return Error::unsupported(
      thing(file_name(name)),
      fmt::format("is stored as {}, expected BF16, F16 or F32", name_of(view.dtype)));
}

Result<TensorView> DeepseekRoles::integers(const std::string& name, const Shape& shape) {
  if (listing()) {
    note(name, DType::i64, shape);
    return TensorView{DType::i64, shape, nullptr};
  }
  const TensorView view = TRY(shaped(name, shape));
  if (view.dtype == DType::i64 || view.dtype == DType::i32) return view;
  return Error::unsupported(
      thing(file_name(name)),
      fmt::format("is stored as {}, expected I64 or I32", name_of(view.dtype)));
}

Result<void> DeepseekRoles::copy(const std::string& name, const Shape& shape) {
  if (listing()) {
    note(name, DType::bf16, shape);
    return {};
  }
  if (has(name)) TRY(shaped(name, shape));
  return {};
}

Result<ScaledView> DeepseekRoles::matrix(const std::string& base, uint64_t outputs, uint64_t inputs,
                                         Storage storage) {
  return stored(base, outputs, inputs, storage);
}

Result<ScaledView> DeepseekRoles::expert(const std::string& base, const char* name, uint64_t index,
                                         uint64_t count, uint64_t outputs, uint64_t inputs) {
  if (!gguf()) {
    return stored(fmt::format("{}.{}.{}", base, index, name), outputs, inputs, Storage::expert);
  }
  const TensorView all =
      TRY(shaped(fmt::format("{}.{}.weight", base, name), {count, outputs, inputs}));
  ScaledView one;
  one.codes = {all.dtype, {outputs, inputs}, all.row(index * outputs)};
  return one;
}

Result<ScaledView> DeepseekRoles::stacked(const std::string& name, uint64_t heads, uint64_t rows,
                                          uint64_t columns) {
  const TensorView all = TRY(shaped(name, {heads, rows, columns}));
  ScaledView flat;
  flat.codes = {all.dtype, {heads * rows, columns}, all.data};
  return flat;
}

Result<ScaledView> DeepseekRoles::stored(const std::string& base, uint64_t outputs, uint64_t inputs,
                                         Storage storage) {
  if (storage == Storage::expert) {
    if (!quantization_.fp4_experts) storage = Storage::matrix;
  }
  const bool quantised = quantization_.matrices != MatrixStorage::plain;
  if (storage == Storage::matrix && !quantised) storage = Storage::plain;
  if (storage == Storage::either_quantised && (listing() || !quantised)) {
    storage = quantised ? Storage::matrix : Storage::plain;
  }
  const Shape shape = {outputs, inputs};
  if (listing()) return list(base, shape, storage);
  const std::string name = base + ".weight";
  const TensorView* view = checkpoint_->find(file_name(name));
  // Panels of a packed checkpoint and blocks of GGUF carry their scales inside.
  if (gguf() || (view != nullptr && view->panels != PanelLayout::rows)) {
    ScaledView whole;
    whole.codes = TRY(shaped(name, shape));
    return whole;
  }
  if (storage == Storage::either || storage == Storage::either_quantised) {
    const bool codes = quantised && view != nullptr && view->dtype == DType::f8_e4m3;
    storage = codes ? Storage::matrix : Storage::plain;
  }
  if (storage == Storage::matrix) return read_fp8(base, shape);
  if (storage == Storage::expert) return read_fp4(base, shape);
  if (storage == Storage::table) {
    const TensorView codes = TRY(shaped(name, shape));
    return scaled(base, codes, DType::f8_e8m0, 1, kFp4Block);
  }
  ScaledView whole;
  whole.codes = TRY(plain(name, shape, DType::bf16));
  return whole;
}

Result<ScaledView> DeepseekRoles::read_fp8(const std::string& base, const Shape& shape) {
  const TensorView codes = TRY(shaped(base + ".weight", shape));
  const Tile tile = tile_of(quantization_.matrices);
  return scaled(base, codes, tile.scales, tile.outputs, tile.inputs);
}

// Files call FP4 codes I8 or U8 [outputs, inputs / 2], or F4 [outputs, inputs].
Result<ScaledView> DeepseekRoles::read_fp4(const std::string& base, const Shape& shape) {
  const std::string file = file_name(base + ".weight");
  const Shape bytes = {shape[0], shape[1] / 2};
  const TensorView* view = TRY(take(file, bytes.text()));
  const bool packed = view->dtype == DType::i8 || view->dtype == DType::u8;
  if (!packed && view->dtype != DType::f4_e2m1) {
    return Error::unsupported(
        thing(file), fmt::format("is stored as {}, config says FP4 (I8)", name_of(view->dtype)));
  }
  const Shape& expected = packed ? bytes : shape;
  if (view->shape != expected || shape[1] % kFp4Block != 0) {
    return Error::corrupt(thing(file),
                          fmt::format("file has {}, config says {} (FP4 {})", view->shape.text(),
                                      expected.text(), shape.text()));
  }
  return scaled(base, {DType::f4_e2m1, shape, view->data}, DType::f8_e8m0, 1, kFp4Block);
}

const TensorView* DeepseekRoles::find_scales(const std::string& base, std::string& name) const {
  for (const char* suffix : {".scale", ".weight_scale_inv"}) {
    const std::string candidate = file_name(base + suffix);
    if (const TensorView* view = checkpoint_->find(candidate)) {
      name = candidate;
      return view;
    }
  }
  const bool inverse = quantization_.matrices == MatrixStorage::fp8_128_f32;
  name = base + (inverse ? ".weight_scale_inv" : ".scale");
  return nullptr;
}

Result<ScaledView> DeepseekRoles::scaled(const std::string& base, const TensorView& codes,
                                         DType scale_dtype, uint32_t tile_outputs,
                                         uint32_t tile_inputs) {
  const std::string weight = file_name(base + ".weight");
  if (codes.dtype != DType::f4_e2m1 && codes.dtype != DType::f8_e4m3) {
    return Error::unsupported(thing(weight),
                              fmt::format("is stored as {}, config says {}", name_of(codes.dtype),
                                          name_of(DType::f8_e4m3)));
  }
  const Shape expected = {tiles(codes.shape[0], tile_outputs), tiles(codes.shape[1], tile_inputs)};
  std::string name;
  const TensorView* scales = find_scales(base, name);
  if (scales == nullptr) {
    return Error::corrupt(
        thing(name), fmt::format("is missing, {} needs one of shape {}", weight, expected.text()));
  }
  claim(name, *scales);
  if (scales->shape != expected) {
    return Error::corrupt(
        thing(name),
        fmt::format("file has {}, {} of shape {} in tiles of {}x{} needs {}", scales->shape.text(),
                    weight, codes.shape.text(), tile_outputs, tile_inputs, expected.text()));
  }
  // Some writers call UE8M0 bytes U8.
  const bool bytes = scale_dtype == DType::f8_e8m0 && scales->dtype == DType::u8;
  if (scales->dtype != scale_dtype && !bytes) {
    return Error::unsupported(thing(name),
                              fmt::format("is stored as {}, config says {}", name_of(scales->dtype),
                                          name_of(scale_dtype)));
  }
  return ScaledView{codes, {scale_dtype, expected, scales->data}, tile_outputs, tile_inputs};
}

Result<ScaledView> DeepseekRoles::list(const std::string& base, const Shape& shape,
                                       Storage storage) {
  const Part outside = part_;
  if (storage == Storage::expert || base.find(".experts.") != std::string::npos) {
    part_ = expert_part_;
  }
  ScaledView view;
  view.codes.shape = shape;
  const auto with_scales = [&](DType dtype, uint32_t outputs, uint32_t inputs, const char* suffix) {
    const Shape scales = {tiles(shape[0], outputs), tiles(shape[1], inputs)};
    note(base + suffix, dtype, scales);
    view.scales = {dtype, scales, nullptr};
    view.tile_outputs = outputs;
    view.tile_inputs = inputs;
  };
  if (storage == Storage::matrix) {
    const Tile tile = tile_of(quantization_.matrices);
    view.codes.dtype = DType::f8_e4m3;
    note(base + ".weight", DType::f8_e4m3, shape);
    with_scales(tile.scales, tile.outputs, tile.inputs,
                tile.scales == DType::f32 ? ".weight_scale_inv" : ".scale");
  } else if (storage == Storage::expert) {
    if (shape[1] % kFp4Block != 0) {
      return Error::invalid(base, fmt::format("of shape {} cannot be FP4: {} inputs are not a "
                                              "multiple of {}",
                                              shape.text(), shape[1], kFp4Block));
    }
    view.codes.dtype = DType::f4_e2m1;
    note(base + ".weight", DType::i8, {shape[0], shape[1] / 2});
    with_scales(DType::f8_e8m0, 1, kFp4Block, ".scale");
  } else if (storage == Storage::table) {
    view.codes.dtype = DType::f8_e4m3;
    note(base + ".weight", DType::f8_e4m3, shape);
    with_scales(DType::f8_e8m0, 1, kFp4Block, ".scale");
  } else {
    view.codes.dtype = DType::bf16;
    note(base + ".weight", DType::bf16, shape);
  }
  part_ = outside;
  return view;
}

Result<void> DeepseekRoles::check_all_used(
    const std::function<bool(std::string_view)>& other) const {
  for (const NamedTensor& tensor : checkpoint_->tensors()) {
    if (used_.contains(&tensor.view) || (other && other(tensor.name))) continue;
    return Error::unsupported(
        tensor_thing(checkpoint_->files()[tensor.file], tensor.name),
        fmt::format("of shape {} has no place in the model the config describes",
                    tensor.view.shape.text()));
  }
  return {};
}

// --------------------------------------------------------------------------- shared pieces
Result<HyperTensors> read_hyper(DeepseekRoles& roles, const std::string& prefix, uint64_t streams,
                                uint64_t hidden) {
  const uint64_t mixes = 2 * streams + streams * streams;
  HyperTensors hyper;
  hyper.fn = TRY(roles.plain(prefix + "_fn", {mixes, streams * hidden}, DType::f32));
  hyper.base = TRY(roles.plain(prefix + "_base", {mixes}, DType::f32));
  hyper.scale = TRY(roles.plain(prefix + "_scale", {3}, DType::f32));
  return hyper;
}

Result<HyperTensors> read_hyper_head(DeepseekRoles& roles, const std::string& prefix,
                                     uint64_t streams, uint64_t hidden) {
  HyperTensors hyper;
  hyper.fn = TRY(roles.plain(prefix + "hc_head_fn", {streams, streams * hidden}, DType::f32));
  hyper.base = TRY(roles.plain(prefix + "hc_head_base", {streams}, DType::f32));
  hyper.scale = TRY(roles.plain(prefix + "hc_head_scale", {1}, DType::f32));
  return hyper;
}

template <class Config>
Result<LatentAttentionTensors> read_latent_tensors(DeepseekRoles& roles, const std::string& prefix,
                                                   const Config& config) {
  const uint64_t hidden = config.hidden, heads = config.heads, dim = config.head_dim;
  const uint64_t group_inputs = heads / config.o_groups * dim;
  const uint64_t group_outputs = uint64_t{config.o_groups} * config.o_lora;
  const std::string attn = prefix + "attn.";
  LatentAttentionTensors tensors;
  tensors.q_a = TRY(roles.matrix(attn + "wq_a", config.q_lora, hidden));
  tensors.q_norm = TRY(roles.norm(attn + "q_norm.weight", config.q_lora));
  tensors.q_b = TRY(roles.matrix(attn + "wq_b", heads * dim, config.q_lora));
  tensors.kv = TRY(roles.matrix(attn + "wkv", dim, hidden));
  tensors.kv_norm = TRY(roles.norm(attn + "kv_norm.weight", dim));
  tensors.sink = TRY(roles.plain(attn + "attn_sink", {heads}, DType::f32));
  tensors.o_a = TRY(roles.matrix(attn + "wo_a", group_outputs, group_inputs));
  tensors.o_b = TRY(roles.matrix(attn + "wo_b", hidden, group_outputs));
  return tensors;
}
template Result<LatentAttentionTensors> read_latent_tensors(DeepseekRoles&, const std::string&,
                                                            const DeepseekV4Config&);
template Result<LatentAttentionTensors> read_latent_tensors(DeepseekRoles&, const std::string&,
                                                            const DeepseekV41Config&);

Result<std::vector<ExpertTensors>> read_experts(DeepseekRoles& roles, const std::string& base,
                                                const ExpertNames& names, uint64_t count,
                                                uint64_t hidden, uint64_t width) {
  std::vector<ExpertTensors> experts;
  experts.reserve(count);
  for (uint64_t e = 0; e < count; ++e) {
    ExpertTensors expert;
    expert.gate = TRY(roles.expert(base, names.gate, e, count, width, hidden));
    expert.up = TRY(roles.expert(base, names.up, e, count, width, hidden));
    expert.down = TRY(roles.expert(base, names.down, e, count, hidden, width));
    experts.push_back(expert);
  }
  return experts;
}

Result<ExpertTensors> read_feed_forward(DeepseekRoles& roles, const std::string& base,
                                        const ExpertNames& names, uint64_t hidden, uint64_t width) {
  ExpertTensors tensors;
  tensors.gate = TRY(roles.matrix(base + "." + names.gate, width, hidden));
  tensors.up = TRY(roles.matrix(base + "." + names.up, width, hidden));
  tensors.down = TRY(roles.matrix(base + "." + names.down, hidden, width));
  return tensors;
}

}  // namespace deepinfer::weights
