// Pictures in prompts, from files to answers: a tiny V4.1 text model with the tiny vision part.

#include "llm/prompt_images.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llm/llm.h"

namespace deepinfer::llm {
namespace {

using nlohmann::ordered_json;

const std::string kGolden = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/";
constexpr int32_t kPlaceholder = 500;

std::string bytes_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// Adds the tensors of a safetensors file whose names `wanted` accepts.
template <class Wanted>
void add_tensors(const std::string& path, Wanted wanted, ordered_json& header, std::string& data) {
  const std::string file = bytes_of(path);
  uint64_t length = 0;
  ASSERT_GE(file.size(), 8u) << path;
  std::memcpy(&length, file.data(), 8);
  const ordered_json own = ordered_json::parse(file.substr(8, length));
  for (const auto& [name, tensor] : own.items()) {
    if (name == "__metadata__" || !wanted(name)) continue;
    const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    header[name] = tensor;
    header[name]["data_offsets"] = {data.size(), data.size() + end - begin};
    data += file.substr(8 + length + begin, end - begin);
  }
}

// The text model of the V4.1 goldens whose width is that of the vision goldens, with both.
std::string make_checkpoint() {
  const std::string folder = testing::TempDir() + "v41_with_vision_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  ordered_json config = ordered_json::parse(bytes_of(kGolden + "deepseek_v41/long/config.json"));
  const ordered_json vision = ordered_json::parse(bytes_of(kGolden + "vision/config.json"));
  config["image_token_id"] = kPlaceholder;
  config["vision_config"] = vision["vision_config"];
  ordered_json header = ordered_json::object();
  std::string data;
  add_tensors(
      kGolden + "deepseek_v41/long/model.safetensors", [](const auto&) { return true; }, header,
      data);
  add_tensors(
      kGolden + "vision/model.safetensors",
      [](const std::string& name) { return name != "embed.weight"; }, header, data);
  std::string text = header.dump();
  text += std::string((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(folder + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << text << data;
  std::ofstream(folder + "/config.json") << config.dump();
  std::ofstream(folder + "/engram.json") << bytes_of(kGolden + "deepseek_v41/long/engram.json");
  return folder;
}

const std::string& checkpoint() {
  static const std::string folder = make_checkpoint();
  return folder;
}

std::unique_ptr<Llm> open(size_t max_rows, size_t threads = 2) {
  LlmOptions options;
  options.model.max_rows = max_rows;
  options.model.target = {kernels::choose_isa("auto").value(), kernels::Numerics::exact};
  options.model.kv = models::KvMode::f32;
  options.pool.threads = threads;
  options.context = 512;
  Result<std::unique_ptr<Llm>> llm = Llm::open(checkpoint(), options);
  EXPECT_TRUE(llm.ok()) << (llm.ok() ? "" : llm.error().text());
  return std::move(llm).value();
}

Prompt prompt_of(std::vector<int32_t> ids, const std::vector<std::string>& files) {
  Prompt prompt;
  prompt.input = std::move(ids);
  prompt.max_tokens = 6;
  prompt.want_text = false;
  prompt.ignore_eos = true;
  prompt.sampling.temperature = 0.0f;
  for (const std::string& file : files) {
    prompt.images.push_back({bytes_of(kGolden + "vision/images/" + file), file});
  }
  return prompt;
}

Answer answer_of(Llm& llm, const Prompt& prompt) {
  auto answers = llm.generate({&prompt, 1}, {});
  EXPECT_TRUE(answers.ok()) << (answers.ok() ? "" : answers.error().text());
  return std::move(answers).value().front();
}

TEST(PromptImages, PicturesChangeTheAnswer) {
  const auto llm = open(64);
  const std::vector<int32_t> ids = {3, 4, kPlaceholder, 9};
  const Answer one = answer_of(*llm, prompt_of(ids, {"rgba.png"}));
  const Answer other = answer_of(*llm, prompt_of(ids, {"grey.png"}));  // a span of the same size
  ASSERT_FALSE(one.error.has_value()) << one.error->text();
  EXPECT_EQ(one.stats.prompt_tokens, 13u);
  EXPECT_EQ(one.ids.size(), 6u);
  EXPECT_NE(one.logprobs, other.logprobs);
  EXPECT_EQ(answer_of(*llm, prompt_of(ids, {"rgba.png"})).logprobs, one.logprobs);
}

// Steps that hold little more than a picture, other prompts beside it, other thread counts.
TEST(PromptImages, ChunksCompanyAndThreadsDoNotChangeAnswers) {
  const std::vector<Prompt> prompts = {
      prompt_of({3, kPlaceholder, 5, 6, 7, 8, 9, 10, 11, kPlaceholder},
                {"very_wide.png", "huge.png"}),
      prompt_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, {}),
      prompt_of({kPlaceholder, kPlaceholder, kPlaceholder},
                {"one_pixel.png", "jpeg_420.jpg", "webp_lossy.webp"}),
      prompt_of({30, kPlaceholder, 31}, {"one_pixel.png"})};
  std::vector<Answer> alone;
  const auto whole = open(256, 1);
  for (const Prompt& prompt : prompts) alone.push_back(answer_of(*whole, prompt));
  for (const size_t max_rows : {1, 30, 41, 256}) {  // 26 rows are the least, whatever is asked
    const auto llm = open(max_rows, 3);
    const auto answers = llm->generate(prompts, {});
    ASSERT_TRUE(answers.ok()) << answers.error().text();
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_FALSE(answers.value()[i].error.has_value()) << answers.value()[i].error->text();
      EXPECT_EQ(answers.value()[i].ids, alone[i].ids) << max_rows << " rows, prompt " << i;
      EXPECT_EQ(answers.value()[i].logprobs, alone[i].logprobs) << max_rows << ", prompt " << i;
    }
  }
}

TEST(PromptImages, MistakesEndTheirPromptOnly) {
  const auto llm = open(64);
  Prompt broken = prompt_of({kPlaceholder}, {"rgba.png"});
  broken.images[0].bytes.resize(1000);
  const std::vector<Prompt> prompts = {prompt_of({1, kPlaceholder, 2}, {}),
                                       prompt_of({1, 2}, {"rgba.png"}), broken,
                                       prompt_of({1, kPlaceholder, 2}, {"rgba.png"})};
  const auto answers = llm->generate(prompts, {});
  ASSERT_TRUE(answers.ok());
  const auto text = [&](size_t i) {
    const auto& error = answers.value()[i].error;
    return error ? error->text() : std::string();
  };
  EXPECT_EQ(
      text(0),
      "prompt: ImageCountMismatch: the prompt has 1 image placeholders, the request 0 images");
  EXPECT_EQ(
      text(1),
      "prompt: ImageCountMismatch: the prompt has 0 image placeholders, the request 1 images");
  EXPECT_EQ(text(2).substr(0, 16), "rgba.png: Decode");
  EXPECT_EQ(text(3), "");
  EXPECT_EQ(answers.value()[3].ids.size(), 6u);
}

TEST(PromptImages, ModelsWithoutVisionRefuseThem) {
  LlmOptions options;
  options.pool.threads = 1;
  const auto llm = Llm::open(kGolden + "llama/llama", options).value();
  const Answer answer = answer_of(*llm, prompt_of({1, 2}, {"grey.png"}));
  ASSERT_TRUE(answer.error.has_value());
  EXPECT_EQ(answer.error->kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace deepinfer::llm
