#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "weights/deepseek/deepseek_tensors.h"
#include "weights/tensor_spec.h"
#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

using nlohmann::json;

Checkpoint open(const std::string& name) { return Checkpoint::open(golden_path(name)).value(); }

template <class T>
T must(Result<T> result) {
  if (!result.ok()) ADD_FAILURE() << result.error().text();
  return std::move(result).value();
}

TEST(DeepseekNames, FindsTheRolesOfV41) {
  const Checkpoint checkpoint = open("deepseek_v41/base");
  const DeepseekV41Config config = must(read_deepseek_v41_config(checkpoint));
  const DeepseekV41Tensors tensors = must(read_deepseek_v41_tensors(checkpoint, config));
  EXPECT_EQ(tensors.layers.size(), 10u);
  EXPECT_EQ(tensors.dspark_stages.size(), 3u);
  EXPECT_EQ(tensors.dspark_stages[2].moe.experts.size(), 4u);
  EXPECT_FALSE(tensors.vision.has_value());
  EXPECT_FALSE(tensors.layers[0].compressor.has_value());
  EXPECT_TRUE(tensors.layers[2].compressor->gate.has_value());
  EXPECT_FALSE(tensors.layers[6].compressor->gate.has_value());
  EXPECT_TRUE(tensors.layers[8].indexer.has_value());
  EXPECT_FALSE(tensors.layers[8].compressor.has_value());
  EXPECT_EQ(tensors.layers[1].engram->table.codes.shape, Shape({304, 32}));
  EXPECT_EQ(tensors.layers[4].engram->table.scales.shape, Shape({462, 1}));
  const ScaledView& q_b = tensors.layers[3].attention.q_b;
  EXPECT_EQ(q_b.codes.dtype, DType::f8_e4m3);
  EXPECT_EQ(q_b.tile_outputs, 32u);
  EXPECT_EQ(q_b.codes.data, checkpoint.find("layers.3.attn.wq_b.weight")->data);
  EXPECT_EQ(q_b.scales.data, checkpoint.find("layers.3.attn.wq_b.scale")->data);
  const ScaledView& up = tensors.layers[3].moe.experts[5].up;
  EXPECT_EQ(up.codes.dtype, DType::f4_e2m1);
  EXPECT_EQ(up.codes.shape, Shape({32, 64}));
  EXPECT_EQ(up.scales.shape, Shape({32, 2}));
  EXPECT_EQ(up.tile_outputs, 1u);
  EXPECT_EQ(up.codes.data, checkpoint.find("layers.3.ffn.experts.5.w3.weight")->data);
  EXPECT_EQ(tensors.layers[3].moe.experts[5].down.codes.data,
            checkpoint.find("layers.3.ffn.experts.5.w2.weight")->data);
  EXPECT_EQ(tensors.dspark->main_proj.codes.data, checkpoint.find("mtp.0.main_proj.weight")->data);
}

TEST(DeepseekNames, FindsTheRolesOfV4) {
  const Checkpoint checkpoint = open("deepseek_v4/quant");
  const DeepseekV4Config config = must(read_deepseek_v4_config(checkpoint));
  const DeepseekV4Tensors tensors = must(read_deepseek_v4_tensors(checkpoint, config));
  EXPECT_TRUE(tensors.layers[0].indexer.has_value());
  EXPECT_TRUE(tensors.layers[0].moe.by_id.has_value());
  EXPECT_FALSE(tensors.layers[0].moe.bias.has_value());
  EXPECT_TRUE(tensors.layers[1].moe.bias.has_value());
  EXPECT_FALSE(tensors.layers[1].indexer.has_value());
  EXPECT_EQ(tensors.layers[1].compressor->ape.shape, Shape({128, 128}));
  EXPECT_EQ(tensors.mtp->e_proj.codes.data, checkpoint.find("mtp.0.e_proj.weight")->data);
  EXPECT_FALSE(tensors.mtp->eh_proj.has_value());
  EXPECT_EQ(tensors.layers[1].attention.o_a.scales.shape, Shape({1, 2}));
  EXPECT_FALSE(tensors.dspark.has_value());
  const Checkpoint drafter = open("deepseek_v4/dspark");
  const DeepseekV4Config draft_config = must(read_deepseek_v4_config(drafter));
  const DeepseekV4Tensors drafts = must(read_deepseek_v4_tensors(drafter, draft_config));
  EXPECT_EQ(drafts.dspark->v4_stages.size(), 3u);
  EXPECT_FALSE(drafts.dspark->markov_embed.scaled());
  for (const char* name : {"deepseek_v4/flash", "deepseek_v4/pro", "deepseek_v4/long"}) {
    const Checkpoint one = open(name);
    const DeepseekV4Config its = must(read_deepseek_v4_config(one));
    EXPECT_TRUE(read_deepseek_v4_tensors(one, its).ok()) << name;
  }
}

TEST(DeepseekNames, FindsTheRolesOfV3AndV32) {
  for (const char* name : {"llama/deepseek_v3", "llama/deepseek_v32"}) {
    SCOPED_TRACE(name);
    const Checkpoint checkpoint = open(name);
    const DeepseekV3Config config = must(read_deepseek_v3_config(checkpoint));
    const DeepseekV3Tensors tensors = must(read_deepseek_v3_tensors(checkpoint, config));
    EXPECT_TRUE(tensors.layers[0].dense.has_value());
    EXPECT_FALSE(tensors.layers[0].moe.has_value());
    EXPECT_EQ(tensors.layers[1].moe->experts.size(), 12u);
    EXPECT_EQ(tensors.layers[1].indexer.has_value(), config.family == Family::deepseek_v32);
    EXPECT_EQ(tensors.layers[1].kv_b.codes.shape, Shape({160, 32}));
    EXPECT_TRUE(tensors.mtp.empty());
  }
}

// --------------------------------------------------------------------------- tables
std::map<std::string, std::string> lines(const std::vector<TensorSpec>& specs) {
  std::map<std::string, std::string> lines;
  for (const TensorSpec& spec : specs) {
    lines[spec.name] = std::string(dtype_info(spec.dtype).name) + " " + spec.shape.text();
  }
  EXPECT_EQ(lines.size(), specs.size());
  return lines;
}

std::map<std::string, std::string> lines(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> lines;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    lines[tensor.name] =
        std::string(dtype_info(tensor.view.dtype).name) + " " + tensor.view.shape.text();
  }
  return lines;
}

TEST(TensorSpecs, AreWhatTheFilesHold) {
  for (const char* name : {"deepseek_v41/base", "deepseek_v41/long"}) {
    const Checkpoint checkpoint = open(name);
    const DeepseekV41Config config = must(read_deepseek_v41_config(checkpoint));
    EXPECT_EQ(lines(must(deepseek_v41_specs(config))), lines(checkpoint)) << name;
  }
  for (const char* name : {"deepseek_v4/flash", "deepseek_v4/pro", "deepseek_v4/long",
                           "deepseek_v4/quant", "deepseek_v4/dspark"}) {
    const Checkpoint checkpoint = open(name);
    const DeepseekV4Config config = must(read_deepseek_v4_config(checkpoint));
    EXPECT_EQ(lines(must(deepseek_v4_specs(config))), lines(checkpoint)) << name;
  }
  for (const char* name : {"llama/deepseek_v3", "llama/deepseek_v32"}) {
    const Checkpoint checkpoint = open(name);
    const DeepseekV3Config config = must(read_deepseek_v3_config(checkpoint));
    EXPECT_EQ(lines(must(deepseek_v3_specs(config))), lines(checkpoint)) << name;
  }
}

std::string real_config(const std::string& name) {
  std::ifstream file(golden_path("configs/" + name + "/config.json"));
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Totals {
  size_t tensors = 0;
  uint64_t bytes = 0;
  size_t draft_tensors = 0;
  uint64_t draft_bytes = 0;
};
Totals totals(const std::vector<TensorSpec>& specs) {
  Totals totals;
  for (const TensorSpec& spec : specs) {
    ++totals.tensors;
    totals.bytes += spec.bytes();
    if (spec.part != Part::draft && spec.part != Part::draft_experts) continue;
    ++totals.draft_tensors;
    totals.draft_bytes += spec.bytes();
  }
  return totals;
}

Totals v4_totals(const std::string& name) {
  return totals(must(deepseek_v4_specs(must(parse_deepseek_v4_config(real_config(name), name)))));
}

uint64_t expert_bytes(const std::vector<TensorSpec>& specs) {
  uint64_t bytes = 0;
  for (const TensorSpec& spec : specs) {
    if (spec.name.starts_with("layers.3.ffn.experts.7.")) bytes += spec.bytes();
  }
  return bytes;
}

// The published figures and those of spec v4.md, section 2.
TEST(TensorSpecs, AddUpToThePublishedSizesOfV4) {
  const Totals flash = v4_totals("deepseek-v4-flash");
  EXPECT_EQ(flash.tensors, 69187u);
  EXPECT_EQ(flash.bytes, 159609485896u);
  EXPECT_EQ(flash.draft_tensors, 1575u);
  EXPECT_EQ(flash.draft_bytes, 3593787756u);
  const Totals dspark = v4_totals("deepseek-v4-flash-dspark");
  EXPECT_EQ(dspark.tensors, 72317u);
  EXPECT_EQ(dspark.bytes, 166878536440u);
  EXPECT_EQ(dspark.draft_tensors, 4705u);
  EXPECT_EQ(dspark.draft_bytes, 10862838300u);
  const Totals pro = v4_totals("deepseek-v4-pro");
  EXPECT_EQ(pro.tensors, 145116u);
  EXPECT_EQ(pro.bytes, 864704792696u);
  EXPECT_EQ(pro.draft_tensors, 2343u);
  EXPECT_EQ(pro.draft_bytes, 13956587692u);
  json pro_dspark = json::parse(real_config("deepseek-v4-pro"));
  pro_dspark.update({{"dspark_block_size", 5},
                     {"dspark_noise_token_id", 128799},
                     {"dspark_target_layer_ids", {58, 59, 60}},
                     {"dspark_markov_rank", 512}});
  pro_dspark["compress_ratios"].insert(pro_dspark["compress_ratios"].end(), {0, 0});
  const Totals drafter =
      totals(must(deepseek_v4_specs(must(parse_deepseek_v4_config(pro_dspark.dump(), "c")))));
  EXPECT_EQ(drafter.tensors, 149782u);
  EXPECT_EQ(drafter.bytes, 892727580904u);
}

TEST(TensorSpecs, KnowTheSizeOfAnExpert) {
  const auto of = [](const std::string& name) {
    return expert_bytes(
        must(deepseek_v4_specs(must(parse_deepseek_v4_config(real_config(name), name)))));
  };
  EXPECT_EQ(of("deepseek-v4-flash"), 13369344u);
  EXPECT_EQ(of("deepseek-v4-pro"), 35094528u);
}

TEST(TensorSpecs, HoldTheTablesOfV41Flash) {
  const std::vector<TensorSpec> specs = must(
      deepseek_v41_specs(must(parse_deepseek_v41_config(real_config("deepseek-v4.1-flash"), "c"))));
  std::map<std::string, const TensorSpec*> by_name;
  for (const TensorSpec& spec : specs) by_name[spec.name] = &spec;
  EXPECT_EQ(by_name.at("layers.14.engram.embed.weight")->shape, Shape({384016682, 256}));
  EXPECT_EQ(by_name.at("layers.1.engram.embed.scale")->shape, Shape({384006168, 8}));
  EXPECT_EQ(by_name.at("layers.1.engram.embed.scale")->part, Part::engram_table);
  EXPECT_EQ(by_name.at("layers.1.engram.wkv.weight")->shape, Shape({25600, 6144}));
  EXPECT_EQ(by_name.at("layers.0.attn.wo_a.weight")->shape, Shape({8192, 4096}));
  EXPECT_EQ(by_name.at("mtp.0.main_proj.weight")->shape, Shape({5120, 15360}));
  EXPECT_EQ(by_name.at("mtp.2.confidence_head.proj.weight")->shape, Shape({1, 5376}));
  EXPECT_EQ(by_name.at("vision.blocks.31.attn.wqkv.weight")->part, Part::vision);
  EXPECT_EQ(by_name.at("mtp.1.ffn.experts.127.w1.weight")->part, Part::draft_experts);
  EXPECT_EQ(by_name.at("layers.39.ffn.experts.383.w2.scale")->part, Part::experts);
}

TEST(TensorSpecs, RefuseFp4OfPartialBlocks) {
  json config = json::parse(real_config("deepseek-v4-flash"));
  config["moe_intermediate_size"] = 2050;
  expect_error(deepseek_v4_specs(must(parse_deepseek_v4_config(config.dump(), "c"))), "invalid",
               {"layers.0.ffn.experts.0.w2", "2050", "32"});
}

// --------------------------------------------------------------------------- wrong files
// The tiny V4 with quantised matrices as a file that a test can break.
class BrokenV4 {
 public:
  BrokenV4() : config_(json::parse(slurp("deepseek_v4/quant/config.json"))) {
    const DeepseekV4Config config = must(parse_deepseek_v4_config(config_.dump(), "config.json"));
    for (const TensorSpec& spec : must(deepseek_v4_specs(config))) {
      std::vector<uint64_t> shape;
      for (size_t axis = 0; axis < spec.shape.rank(); ++axis) shape.push_back(spec.shape[axis]);
      tensors_.push_back({spec.name, spec.dtype, shape});
    }
  }

  json& config() { return config_; }
  std::vector<TinyTensor>& tensors() { return tensors_; }
  TinyTensor& tensor(const std::string& name) {
    const auto found = std::ranges::find(tensors_, name, &TinyTensor::name);
    if (found == tensors_.end()) ADD_FAILURE() << name;
    return *found;
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TinyTensor& tensor) { return tensor.name == name; });
  }

  Result<DeepseekV4Tensors> read() const {
    folder_.write("config.json", config_.dump());
    folder_.write("model.safetensors", safetensors_file(tensors_));
    const Checkpoint checkpoint = TRY(Checkpoint::open(folder_.path()));
    return read_deepseek_v4_tensors(checkpoint, TRY(read_deepseek_v4_config(checkpoint)));
  }

 private:
  static std::string slurp(const std::string& name) {
    std::ifstream file(golden_path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TempFolder folder_;
  json config_;
  std::vector<TinyTensor> tensors_;
};

TEST(DeepseekNames, ReadsTheModelThatTheBrokenOnesStartFrom) {
  const Result<DeepseekV4Tensors> read = BrokenV4().read();
  EXPECT_TRUE(read.ok()) << read.error().text();
}

TEST(DeepseekNames, NamesEveryMissingTensor) {
  BrokenV4 broken;
  for (size_t i = 0; i < broken.tensors().size(); i += 3) {
    const TinyTensor tensor = broken.tensors()[i];
    if (tensor.name.starts_with("mtp.0.e_proj")) continue;  // decides whether there is an MTP layer
    broken.tensors().erase(broken.tensors().begin() + static_cast<ptrdiff_t>(i));
    expect_error(broken.read(), "corrupt", {tensor.name, "is missing"});
    broken.tensors().insert(broken.tensors().begin() + static_cast<ptrdiff_t>(i), tensor);
  }
}

TEST(DeepseekNames, NamesEveryWrongShapeWithBoth) {
  BrokenV4 broken;
  for (size_t i = 0; i < broken.tensors().size(); i += 3) {
    TinyTensor& tensor = broken.tensors()[i];
    const std::vector<uint64_t> shape = tensor.shape;
    tensor.shape[0] += 1;
    const std::string found = Shape::create(tensor.shape).value().text();
    expect_error(broken.read(), "corrupt",
                 {tensor.name, found, Shape::create(shape).value().text()});
    tensor.shape = shape;
  }
}

TEST(DeepseekNames, NamesWrongFormatsWithBoth) {
  struct Case {
    const char* name;
    DType dtype;
    std::vector<uint64_t> shape;  // when it changes too
    std::vector<std::string> error;
  };
  const Case cases[] = {
      {"layers.0.attn.wq_a.weight", DType::bf16, {}, {"BF16", "F8_E4M3"}},
      {"layers.0.attn.wq_a.scale", DType::f32, {}, {"F32", "F8_E8M0"}},
      {"layers.1.ffn.experts.2.w1.weight", DType::bf16, {}, {"BF16", "FP4"}},
      {"layers.1.ffn.experts.2.w1.scale", DType::f8_e4m3, {}, {"F8_E4M3", "F8_E8M0"}},
      {"layers.0.attn_norm.weight", DType::i8, {}, {"I8", "BF16"}},
      {"embed.weight", DType::f8_e4m3, {}, {"F8_E4M3", "BF16"}},
      {"layers.0.ffn.gate.tid2eid", DType::f32, {}, {"F32", "I64"}},
      {"layers.1.ffn.gate.bias", DType::i64, {}, {"I64", "BF16"}}};
  for (const Case& c : cases) {
    BrokenV4 broken;
    broken.tensor(c.name).dtype = c.dtype;
    std::vector<std::string> parts = c.error;
    parts.emplace_back(c.name);
    expect_error(broken.read(), "unsupported", parts);
  }
  BrokenV4 plain;
  plain.config().erase("quantization_config");
  plain.config().erase("expert_dtype");
  expect_error(plain.read(), "unsupported", {"layers.0.attn.wq_a.weight", "F8_E4M3", "BF16"});
}

TEST(DeepseekNames, TakesOtherSpellingsOfCodesAndScales) {
  BrokenV4 model;
  model.tensor("layers.1.ffn.experts.2.w1.weight").dtype = DType::u8;
  model.tensor("layers.1.ffn.experts.2.w1.scale").dtype = DType::u8;
  TinyTensor& codes = model.tensor("layers.1.ffn.experts.3.w1.weight");
  codes.dtype = DType::f4_e2m1;
  codes.shape[1] *= 2;
  model.tensor("layers.0.attn.wkv.scale").name = "layers.0.attn.wkv.weight_scale_inv";
  model.tensor("norm.weight").dtype = DType::f32;
  model.tensor("layers.0.ffn.gate.tid2eid").dtype = DType::i32;
  const Result<DeepseekV4Tensors> read = model.read();
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read.value().layers[1].moe.experts[2].gate.codes.shape, Shape({128, 128}));
  EXPECT_EQ(read.value().layers[1].moe.experts[2].gate.scales.dtype, DType::f8_e8m0);
}

TEST(DeepseekNames, TakesThePrefixAndWordsOfReuploads) {
  BrokenV4 model;
  for (TinyTensor& tensor : model.tensors()) {
    const auto replace = [&](std::string_view from, std::string_view to) {
      const size_t at = tensor.name.find(from);
      if (at != std::string::npos) tensor.name.replace(at, from.size(), to);
    };
    replace(".attn.", ".self_attn.");
    replace(".ffn.", ".mlp.");
    replace(".gate.bias", ".gate.e_score_correction_bias");
    tensor.name = "model." + tensor.name;
  }
  const Result<DeepseekV4Tensors> read = model.read();
  EXPECT_TRUE(read.ok()) << read.error().text();
}

TEST(DeepseekNames, NamesTheFirstTensorWithoutARole) {
  BrokenV4 model;
  model.tensors().push_back({"layers.2.attn_norm.weight", DType::bf16, {128}});
  model.tensors().push_back({"zeta", DType::f32, {1}});
  expect_error(model.read(), "unsupported", {"layers.2.attn_norm.weight", "128", "no place"});
}

TEST(DeepseekNames, CountsTheExperts) {
  BrokenV4 fewer;
  fewer.config()["n_routed_experts"] = 3;
  expect_error(fewer.read(), "corrupt", {"gate.weight", "4x128", "3x128"});
  BrokenV4 more;
  for (const char* name : {"w1", "w2", "w3"}) {
    for (const char* part : {"weight", "scale"}) {
      TinyTensor extra = more.tensor(std::string("layers.0.ffn.experts.0.") + name + "." + part);
      extra.name.replace(extra.name.find("experts.0"), 9, "experts.4");
      more.tensors().push_back(extra);
    }
  }
  expect_error(more.read(), "unsupported", {"layers.0.ffn.experts.4.w1", "no place"});
}

TEST(DeepseekNames, ComparesTheDrafterOfTheConfigWithTheTensors) {
  BrokenV4 mtp;
  mtp.config().update({{"dspark_block_size", 5},
                       {"dspark_noise_token_id", 3},
                       {"dspark_target_layer_ids", {0, 1}},
                       {"dspark_markov_rank", 8}});
  expect_error(mtp.read(), "corrupt", {"config.json", "dspark", "mtp.0.e_proj"});
  BrokenV4 dspark;
  dspark.tensors().push_back({"mtp.0.main_proj.weight", DType::f8_e4m3, {128, 256}});
  expect_error(dspark.read(), "corrupt", {"config.json", "dspark_block_size", "mtp.0.main_proj"});
}

// Files of a model in parts.
TEST(DeepseekNames, NamesShardsThatAreMissingTruncatedOrSwapped) {
  const TempFolder folder;
  BrokenV4 source;
  const size_t half = source.tensors().size() / 2;
  const std::vector<TinyTensor> first(source.tensors().begin(),
                                      source.tensors().begin() + static_cast<ptrdiff_t>(half));
  const std::vector<TinyTensor> second(source.tensors().begin() + static_cast<ptrdiff_t>(half),
                                       source.tensors().end());
  const std::string names[] = {"model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors"};
  json index = {{"weight_map", json::object()}};
  for (const TinyTensor& tensor : first) index["weight_map"][tensor.name] = names[0];
  for (const TinyTensor& tensor : second) index["weight_map"][tensor.name] = names[1];
  folder.write("config.json", source.config().dump());
  folder.write("model.safetensors.index.json", index.dump());
  const auto write = [&](const std::string& a, const std::string& b) {
    folder.write(names[0], a);
    folder.write(names[1], b);
  };
  const auto read = [&]() -> Result<DeepseekV4Tensors> {
    const Checkpoint checkpoint = TRY(Checkpoint::open(folder.path()));
    return read_deepseek_v4_tensors(checkpoint, TRY(read_deepseek_v4_config(checkpoint)));
  };
  const std::string a = safetensors_file(first), b = safetensors_file(second);
  write(a, b);
  EXPECT_TRUE(read().ok());
  write(b, a);  // swapped: each tensor is in the other file than the index says
  expect_error(read(), "corrupt", {names[0]});
  write(a, b.substr(0, b.size() - 1));
  expect_error(read(), "corrupt", {names[1], "data"});
  write(a, b.substr(0, 100));
  expect_error(read(), "corrupt", {names[1], "header"});
  std::filesystem::remove(folder.path() + "/" + names[1]);
  expect_error(read(), "not_found", {names[1]});
}

}  // namespace
}  // namespace deepinfer::weights
