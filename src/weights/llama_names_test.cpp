#include "weights/llama_names.h"

#include <gtest/gtest.h>

#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

std::string gguf_path(const TempFolder& folder, const std::vector<TinyTensor>& tensors) {
  GgufBuilder gguf = TinyModel().gguf_metadata();
  for (const TinyTensor& tensor : tensors) gguf.tensor(tensor);
  return folder.write("m.gguf", gguf.build());
}

Result<LlamaTensors> read(const std::string& path) {
  const Checkpoint checkpoint = TRY(Checkpoint::open(path));
  const LlamaConfig config = TRY(read_llama_config(checkpoint));
  return read_llama_tensors(checkpoint, config);
}

TEST(LlamaNames, FindsTheRolesOfTheGoldens) {
  for (const char* name : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const std::string path = golden_path(std::string("llama/") + name);
    const Checkpoint checkpoint = Checkpoint::open(path).value();
    const LlamaConfig config = read_llama_config(checkpoint).value();
    const LlamaTensors tensors = read_llama_tensors(checkpoint, config).value();
    ASSERT_EQ(tensors.layers.size(), 2u);
    EXPECT_FALSE(tensors.qk_interleaved);
    EXPECT_EQ(tensors.embedding.shape, Shape({512, 64}));
    const std::string second = "model.layers.1.";
    EXPECT_EQ(tensors.layers[1].q.data, checkpoint.find(second + "self_attn.q_proj.weight")->data);
    EXPECT_EQ(tensors.layers[1].down.data, checkpoint.find(second + "mlp.down_proj.weight")->data);
    EXPECT_EQ(tensors.layers[1].q_bias.has_value(), std::string(name) == "qwen2");
    EXPECT_EQ(tensors.layers[1].k_norm.has_value(), std::string(name) == "qwen3");
    EXPECT_EQ(tensors.output.data == tensors.embedding.data, std::string(name) != "qwen2");
  }
}

TEST(LlamaNames, GivesEveryRoleTheSameTensorFromBothContainers) {
  const TempFolder folder;
  TinyModel model;
  model.tied = false;
  model.qkv_bias = true;
  model.output_bias = true;
  model.config["tie_word_embeddings"] = false;
  model.config["attention_bias"] = true;
  const Checkpoint hf_file = Checkpoint::open(write_hf(folder, model)).value();
  const Checkpoint gguf_file = Checkpoint::open(folder.write("m.gguf", model.gguf_file())).value();
  const LlamaConfig config = read_llama_config(hf_file).value();
  const LlamaTensors hf = read_llama_tensors(hf_file, config).value();
  const LlamaTensors gguf = read_llama_tensors(gguf_file, config).value();
  EXPECT_TRUE(gguf.qk_interleaved);
  // The files are filled with a number per tensor, in the same order.
  const auto expect_same = [](const TensorView& a, const TensorView& b) {
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.data[0], b.data[0]);
  };
  expect_same(hf.embedding, gguf.embedding);
  expect_same(hf.output_norm, gguf.output_norm);
  expect_same(hf.output, gguf.output);
  const LlamaTensors::Layer& a = hf.layers[0];
  const LlamaTensors::Layer& b = gguf.layers[0];
  for (const auto member :
       {&LlamaTensors::Layer::attn_norm, &LlamaTensors::Layer::q, &LlamaTensors::Layer::k,
        &LlamaTensors::Layer::v, &LlamaTensors::Layer::o, &LlamaTensors::Layer::ffn_norm,
        &LlamaTensors::Layer::gate, &LlamaTensors::Layer::up, &LlamaTensors::Layer::down}) {
    expect_same(a.*member, b.*member);
  }
  for (const auto member : {&LlamaTensors::Layer::q_bias, &LlamaTensors::Layer::k_bias,
                            &LlamaTensors::Layer::v_bias, &LlamaTensors::Layer::o_bias}) {
    expect_same((a.*member).value(), (b.*member).value());
  }
}

TEST(LlamaNames, OnlyLlamaInGgufHasPermutedHeads) {
  const TempFolder folder;
  TinyModel model;
  EXPECT_TRUE(read(folder.write("llama.gguf", model.gguf_file())).value().qk_interleaved);
  EXPECT_FALSE(read(write_hf(folder, model)).value().qk_interleaved);
  model.family = "qwen3";
  model.qk_norm = true;
  const LlamaTensors qwen3 = read(folder.write("qwen3.gguf", model.gguf_file())).value();
  EXPECT_FALSE(qwen3.qk_interleaved);
  EXPECT_EQ(qwen3.layers[0].q_norm->shape, Shape({16}));
}

TEST(LlamaNames, NamesAMissingTensor) {
  const TempFolder folder;
  std::vector<TinyTensor> tensors = TinyModel().gguf_tensors();
  std::erase_if(tensors, [](const TinyTensor& t) { return t.name == "blk.0.ffn_up.weight"; });
  expect_error(read(gguf_path(folder, tensors)), "corrupt",
               {"m.gguf: tensor blk.0.ffn_up.weight", "is missing", "96x64"});
}

TEST(LlamaNames, NamesAWrongShapeWithBoth) {
  const TempFolder folder;
  std::vector<TinyTensor> tensors = TinyModel().gguf_tensors();
  for (TinyTensor& tensor : tensors) {
    if (tensor.name == "blk.0.attn_k.weight") tensor.shape = {64, 64};
  }
  expect_error(read(gguf_path(folder, tensors)), "corrupt",
               {"blk.0.attn_k.weight: file has 64x64, config says 32x64"});
}

TEST(LlamaNames, NamesTheFirstTensorWithoutARole) {
  const TempFolder folder;
  std::vector<TinyTensor> tensors = TinyModel().gguf_tensors();
  tensors.push_back({"rope_freqs.weight", DType::f32, {8}, 0x40});
  ASSERT_TRUE(read(gguf_path(folder, tensors)).ok());
  tensors.push_back({"blk.1.attn_q.weight", DType::f32, {64, 64}});
  tensors.push_back({"zeta", DType::f32, {1}});
  expect_error(read(gguf_path(folder, tensors)), "unsupported",
               {"blk.1.attn_q.weight", "64x64", "no place"});
}

TEST(LlamaNames, IgnoresStoredFrequencies) {
  const TempFolder folder;
  const TinyModel model;
  std::vector<TinyTensor> tensors = model.hf_tensors();
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {8}});
  write_hf(folder, model);
  folder.write("model.safetensors", safetensors_file(tensors));
  EXPECT_TRUE(read(folder.path()).ok());
}

TEST(LlamaNames, RefusesIntegersAsWeights) {
  const TempFolder folder;
  const TinyModel model;
  std::vector<TinyTensor> tensors = model.hf_tensors();
  for (TinyTensor& tensor : tensors) {
    if (tensor.name.ends_with("up_proj.weight")) tensor.dtype = DType::i64;
  }
  write_hf(folder, model);
  folder.write("model.safetensors", safetensors_file(tensors));
  expect_error(read(folder.path()), "unsupported", {"mlp.up_proj.weight", "I64"});
}

}  // namespace
}  // namespace deepinfer::weights
