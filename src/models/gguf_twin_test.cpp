// GGUF files of V3 and V4 hold the same model as the safetensors they were made from: same logits,
// bit for bit.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "models/joined_half.h"
#include "models/model_runner.h"
#include "weights/deepseek/deepseek_tensors.h"
#include "weights/gguf/gguf_twins.h"

namespace deepinfer::models {
namespace {

std::string golden_path(const std::string& name) {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/" + name;
}

std::vector<int32_t> some_ids(size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * 37 + 11) % 500));
  return ids;
}

std::vector<float> logits_of(const std::string& path) {
  ModelRunner runner = ModelRunner::open(path, {});
  return runner.logits(some_ids(40), 13);
}

TEST(GgufTwin, OfV4GivesTheSameLogits) {
  for (const std::string name : {"flash", "pro"}) {
    SCOPED_TRACE(name);
    const weights::TempFolder folder;
    const std::string official = golden_path("deepseek_v4/" + name);
    const weights::Checkpoint checkpoint = value_or_die(weights::Checkpoint::open(official));
    const auto config = value_or_die(weights::read_deepseek_v4_config(checkpoint));
    const std::string twin = folder.write("m.gguf", weights::v4_twin(checkpoint, config));
    EXPECT_EQ(logits_of(twin), logits_of(official));
  }
}

TEST(GgufTwin, OfV4WithJoinedDraftProjectionsHasTheirHalves) {
  const weights::TempFolder folder;
  const weights::Checkpoint official =
      value_or_die(weights::Checkpoint::open(golden_path("deepseek_v4/flash")));
  const auto config = value_or_die(weights::read_deepseek_v4_config(official));
  const std::string path = folder.write("m.gguf", weights::v4_joined_twin(official, config));
  const weights::Checkpoint joined = value_or_die(weights::Checkpoint::open(path));
  const auto apart = value_or_die(weights::read_deepseek_v4_tensors(official, config));
  const auto tensors = value_or_die(weights::read_deepseek_v4_tensors(joined, config));
  const JoinedHalf e(*tensors.mtp->eh_proj, 0), h(*tensors.mtp->eh_proj, 1);
  EXPECT_EQ(e.view().codes.shape, apart.mtp->e_proj.codes.shape);
  EXPECT_EQ(weights::bytes_of(e.view().codes), weights::bytes_of(apart.mtp->e_proj.codes));
  EXPECT_EQ(weights::bytes_of(h.view().codes), weights::bytes_of(apart.mtp->h_proj.codes));
  EXPECT_EQ(logits_of(path), logits_of(golden_path("deepseek_v4/flash")));
}

TEST(GgufTwin, OfV3GivesTheSameLogits) {
  const std::string official = golden_path("llama/deepseek_v3");
  const weights::Checkpoint checkpoint = value_or_die(weights::Checkpoint::open(official));
  const auto config = value_or_die(weights::read_deepseek_v3_config(checkpoint));
  for (const bool absorbed : {false, true}) {
    SCOPED_TRACE(absorbed);
    const weights::TempFolder folder;
    const std::string twin = folder.write("m.gguf", weights::v3_twin(checkpoint, config, absorbed));
    EXPECT_EQ(logits_of(twin), logits_of(official));
  }
}

}  // namespace
}  // namespace deepinfer::models
