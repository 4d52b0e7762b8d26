#include "weights/gguf/gguf_deepseek.h"

#include <gtest/gtest.h>

#include "weights/deepseek/deepseek_tensors.h"
#include "weights/gguf/gguf.h"
#include "weights/gguf/gguf_twins.h"
#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

Checkpoint open_golden(const std::string& name) {
  return Checkpoint::open(golden_path(name)).value();
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) ADD_FAILURE() << result.error().text();
  return std::move(result).value();
}

void expect_same(const TensorView& a, const TensorView& b) {
  EXPECT_EQ(a.shape, b.shape);
  ASSERT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(bytes_of(a), bytes_of(b));
}
void expect_same(const ScaledView& a, const ScaledView& b) { expect_same(a.codes, b.codes); }
void expect_same(const ExpertTensors& a, const ExpertTensors& b) {
  expect_same(a.gate, b.gate);
  expect_same(a.up, b.up);
  expect_same(a.down, b.down);
}

void expect_same(const HyperTensors& a, const HyperTensors& b) {
  expect_same(a.fn, b.fn);
  expect_same(a.base, b.base);
  expect_same(a.scale, b.scale);
}

void expect_same(const CompressorTensors& a, const CompressorTensors& b) {
  expect_same(a.ape, b.ape);
  expect_same(a.kv, b.kv);
  expect_same(a.gate, b.gate);
  expect_same(a.norm, b.norm);
}

void expect_same(const V4BlockTensors& a, const V4BlockTensors& b) {
  expect_same(a.attn_norm, b.attn_norm);
  expect_same(a.ffn_norm, b.ffn_norm);
  expect_same(a.hc_attn, b.hc_attn);
  expect_same(a.hc_ffn, b.hc_ffn);
  const LatentAttentionTensors &x = a.attention, &y = b.attention;
  for (const auto member :
       {&LatentAttentionTensors::q_a, &LatentAttentionTensors::q_b, &LatentAttentionTensors::kv,
        &LatentAttentionTensors::o_a, &LatentAttentionTensors::o_b}) {
    expect_same(x.*member, y.*member);
  }
  for (const auto member : {&LatentAttentionTensors::q_norm, &LatentAttentionTensors::kv_norm,
                            &LatentAttentionTensors::sink}) {
    expect_same(x.*member, y.*member);
  }
  ASSERT_EQ(a.compressor.has_value(), b.compressor.has_value());
  if (a.compressor) expect_same(*a.compressor, *b.compressor);
  ASSERT_EQ(a.indexer.has_value(), b.indexer.has_value());
  if (a.indexer) {
    expect_same(a.indexer->q_b, b.indexer->q_b);
    expect_same(a.indexer->weights, b.indexer->weights);
    expect_same(a.indexer->compressor, b.indexer->compressor);
  }
  expect_same(a.moe.router, b.moe.router);
  ASSERT_EQ(a.moe.bias.has_value(), b.moe.bias.has_value());
  if (a.moe.bias) expect_same(*a.moe.bias, *b.moe.bias);
  if (a.moe.by_id) EXPECT_EQ(as_i32(*a.moe.by_id), bytes_of(*b.moe.by_id));
  ASSERT_EQ(a.moe.experts.size(), b.moe.experts.size());
  for (size_t e = 0; e < a.moe.experts.size(); ++e) {
    expect_same(a.moe.experts[e], b.moe.experts[e]);
  }
  expect_same(a.moe.shared, b.moe.shared);
}

TEST(GgufV4, IsTheSameModelAsTheSafetensors) {
  for (const char* name : {"deepseek_v4/flash", "deepseek_v4/pro", "deepseek_v4/long"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const Checkpoint official = open_golden(name);
    const DeepseekV4Config config = must(read_deepseek_v4_config(official));
    const Checkpoint gguf =
        must(Checkpoint::open(folder.write("m.gguf", v4_twin(official, config))));
    EXPECT_EQ(read_family(gguf).value(), Family::deepseek_v4);
    const DeepseekV4Config its = must(read_deepseek_v4_config(gguf));
    EXPECT_EQ(its, config);
    const DeepseekV4Tensors a = must(read_deepseek_v4_tensors(official, config));
    const DeepseekV4Tensors b = must(read_deepseek_v4_tensors(gguf, its));
    expect_same(a.embedding, b.embedding);
    expect_same(a.output, b.output);
    expect_same(a.norm, b.norm);
    expect_same(a.head, b.head);
    for (size_t n = 0; n < a.layers.size(); ++n) expect_same(a.layers[n], b.layers[n]);
    ASSERT_EQ(a.mtp.has_value(), b.mtp.has_value());
    if (!a.mtp) continue;
    expect_same(a.mtp->block, b.mtp->block);
    expect_same(a.mtp->e_proj, b.mtp->e_proj);
    expect_same(a.mtp->h_proj, b.mtp->h_proj);
    expect_same(a.mtp->e_norm, b.mtp->e_norm);
    expect_same(a.mtp->norm, b.mtp->norm);
    expect_same(a.mtp->head, b.mtp->head);
  }
}

TEST(GgufV3, IsTheSameModelAsTheSafetensors) {
  const Checkpoint official = open_golden("llama/deepseek_v3");
  const DeepseekV3Config config = must(read_deepseek_v3_config(official));
  const DeepseekV3Tensors a = must(read_deepseek_v3_tensors(official, config));
  for (const bool absorbed : {false, true}) {
    SCOPED_TRACE(absorbed);
    const TempFolder folder;
    const Checkpoint gguf =
        must(Checkpoint::open(folder.write("m.gguf", v3_twin(official, config, absorbed))));
    DeepseekV3Config its = must(read_deepseek_v3_config(gguf));
    EXPECT_NEAR(its.softmax_scale, config.softmax_scale, 1e-9);
    its.softmax_scale = config.softmax_scale;
    EXPECT_EQ(its, config);
    const DeepseekV3Tensors b = must(read_deepseek_v3_tensors(gguf, its));
    expect_same(a.embedding, b.embedding);
    expect_same(a.output, b.output);
    for (size_t n = 0; n < a.layers.size(); ++n) {
      expect_same(*a.layers[n].q_a, *b.layers[n].q_a);
      expect_same(a.layers[n].q_b, b.layers[n].q_b);
      expect_same(a.layers[n].kv_a, b.layers[n].kv_a);
      expect_same(a.layers[n].o, b.layers[n].o);
      ASSERT_EQ(a.layers[n].dense.has_value(), b.layers[n].dense.has_value());
      if (a.layers[n].dense) expect_same(*a.layers[n].dense, *b.layers[n].dense);
      if (!a.layers[n].moe) continue;
      for (size_t e = 0; e < a.layers[n].moe->experts.size(); ++e) {
        expect_same(a.layers[n].moe->experts[e], b.layers[n].moe->experts[e]);
      }
    }
    EXPECT_EQ(b.layers[0].k_b.has_value(), absorbed);
    if (!absorbed) {
      expect_same(a.layers[1].kv_b, b.layers[1].kv_b);
      continue;
    }
    EXPECT_EQ(b.layers[1].kv_b.codes.data, nullptr);
    EXPECT_EQ(b.layers[1].k_b->codes.shape, Shape({4 * 32, 16}));
    EXPECT_EQ(b.layers[1].v_b->codes.shape, Shape({4 * 24, 32}));
  }
}

TEST(GgufV4, TakesTheJointProjectionOfSomeFiles) {
  const TempFolder folder;
  const Checkpoint official = open_golden("deepseek_v4/flash");
  const DeepseekV4Config config = must(read_deepseek_v4_config(official));
  const Checkpoint checkpoint =
      must(Checkpoint::open(folder.write("m.gguf", v4_joined_twin(official, config))));
  const DeepseekV4Tensors tensors =
      must(read_deepseek_v4_tensors(checkpoint, must(read_deepseek_v4_config(checkpoint))));
  ASSERT_TRUE(tensors.mtp->eh_proj.has_value());
  EXPECT_EQ(tensors.mtp->e_proj.codes.data, nullptr);
}

// --------------------------------------------------------------------------- bad input
Metadata metadata_of(const GgufBuilder& gguf) {
  const std::string file = gguf.build();
  return parse_gguf(as_bytes(file), file.size(), "m.gguf").value().metadata;
}

MetadataValue value_of(const nlohmann::json& value) {
  if (value.is_boolean()) return MetadataValue(std::in_place_type<bool>, value.get<bool>());
  if (value.is_number_integer()) {
    return MetadataValue(std::in_place_type<int64_t>, value.get<int64_t>());
  }
  if (value.is_number()) return MetadataValue(std::in_place_type<double>, value.get<double>());
  if (value.is_string()) {
    return MetadataValue(std::in_place_type<std::string>, value.get<std::string>());
  }
  if (value.at(0).is_number_float()) return value.get<std::vector<double>>();
  return value.get<std::vector<int64_t>>();
}

Metadata base_metadata(const std::string& base) {
  if (base == "deepseek4") {
    const Checkpoint official = open_golden("deepseek_v4/flash");
    return metadata_of(v4_metadata(must(read_deepseek_v4_config(official))));
  }
  const Checkpoint official = open_golden("llama/deepseek_v3");
  return metadata_of(v3_metadata(must(read_deepseek_v3_config(official)), true));
}

Result<ModelConfig> parse(const std::string& base, const Metadata& metadata) {
  if (base == "deepseek4") return TRY(parse_gguf_deepseek_v4_config(metadata, "m.gguf"));
  return TRY(parse_gguf_deepseek_v3_config(metadata, "m.gguf"));
}

TEST(GgufDeepseek, NamesEveryKeyThatIsMissingOrOfTheWrongType) {
  for (const std::string base : {"deepseek4", "deepseek2"}) {
    const Metadata whole = base_metadata(base);
    ASSERT_TRUE(parse(base, whole).ok()) << parse(base, whole).error().text();
    for (const auto& [key, value] : whole) {
      if (!key.starts_with(base)) continue;
      SCOPED_TRACE(key);
      Metadata broken = whole;
      broken.insert_or_assign(key, MetadataValue(std::in_place_type<std::string>, "odd"));
      // Lengths of the absorbed form are not read when those of the heads are there.
      const bool unread =
          base == "deepseek2" && (key.ends_with(".key_length") || key.ends_with(".value_length") ||
                                  key.ends_with("head_count_kv"));
      if (unread) continue;
      const Result<ModelConfig> read = parse(base, broken);
      ASSERT_FALSE(read.ok());
      EXPECT_NE(read.error().text().find(key), std::string::npos) << read.error().text();
      EXPECT_NE(read.error().text().find("odd"), std::string::npos) << read.error().text();
      broken.erase(key);
      const Result<ModelConfig> without = parse(base, broken);
      if (without.ok()) continue;  // a key with a default
      const std::string text = without.error().text();
      EXPECT_EQ(text.find("m.gguf: metadata " + base), 0u) << text;
    }
  }
}

TEST(GgufDeepseek, RefusesEveryContradictionByName) {
  for (const nlohmann::json& line : broken_files("gguf_deepseek.jsonl")) {
    SCOPED_TRACE(line["name"]);
    const std::string base = line["base"];
    Metadata metadata = base_metadata(base);
    for (const auto& [key, value] : line["patch"].items()) {
      metadata.erase(base + "." + key);
      if (!value.is_null()) metadata.emplace(base + "." + key, value_of(value));
    }
    expect_error(parse(base, metadata), line["kind"].get<std::string>(), line["error"]);
  }
}

TEST(GgufDeepseek, RefusesV41ByName) {
  const TempFolder folder;
  GgufBuilder gguf;
  gguf.text("general.architecture", "deepseek41").tensor({"x", DType::f32, {1}});
  const Checkpoint checkpoint = must(Checkpoint::open(folder.write("m.gguf", gguf.build())));
  expect_error(read_family(checkpoint), "unsupported", {"m.gguf", "deepseek41", "safetensors"});
}

TEST(GgufDeepseek, NamesTensorsAsTheFileDoes) {
  const TempFolder folder;
  const Checkpoint official = open_golden("deepseek_v4/long");
  const DeepseekV4Config config = must(read_deepseek_v4_config(official));
  GgufBuilder gguf = v4_metadata(config);
  add_tensors(
      gguf, official, [&](const std::string& name) { return gguf_v4_name(name, config.layers); },
      "wq_a.weight");
  const Checkpoint missing = must(Checkpoint::open(folder.write("a.gguf", gguf.build())));
  expect_error(read_deepseek_v4_tensors(missing, config), "corrupt",
               {"blk.0.attn_q_a.weight", "is missing"});
  DeepseekV4Config wider = config;
  wider.moe.experts += 1;
  const Checkpoint whole =
      must(Checkpoint::open(folder.write("b.gguf", v4_twin(official, config))));
  expect_error(read_deepseek_v4_tensors(whole, wider), "corrupt",
               {"blk.0.ffn_gate_inp.weight", "4x64", "5x64"});
}

}  // namespace
}  // namespace deepinfer::weights
