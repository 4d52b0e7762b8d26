// Prompts with images: rows instead of ids, never cut.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_run.h"

namespace deepinfer::engine {
namespace {

using ::testing::HasSubstr;

// Positions first .. first + count take embeddings whose value stands for an id of FakeModel.
PromptImage image_at(size_t first, size_t count, int32_t id) {
  auto values = std::make_shared<std::vector<float>>(count, static_cast<float>(id));
  PromptImage image = {.start = first};
  for (size_t i = 0; i < count; ++i) {
    (*values)[i] += static_cast<float>(i % 3);
    image.embeddings.push_back(values->data() + i);
  }
  image.owner = values;
  return image;
}

// What FakeModel makes of the prompt.
std::vector<int32_t> seen(std::vector<int32_t> prompt, const std::vector<PromptImage>& images) {
  for (const PromptImage& image : images) {
    for (size_t i = 0; i < image.embeddings.size(); ++i) {
      prompt[image.start + i] = static_cast<int32_t>(*image.embeddings[i]);
    }
  }
  return prompt;
}

// Counts the images whose positions came in more than one step.
class WatchingModel final : public models::Model {
 public:
  size_t cut = 0, image_rows = 0;

  const weights::ModelConfig& config() const override { return inner_.config(); }
  const cache::CacheLayout& cache_layout() const override { return inner_.cache_layout(); }
  size_t weight_bytes_per_step() const override { return 0; }
  size_t resident_bytes() const override { return 0; }
  const std::vector<kernels::Choice>& choices() const override { return inner_.choices(); }
  void set_profiling(bool) override {}
  std::vector<models::OperationTime> take_profile() override { return {}; }
  Result<void> forward(const models::StepBatch& batch, models::StepOutput& output) override {
    for (size_t s = 0; s < batch.caches.size() && !batch.embeddings.empty(); ++s) {
      size_t rows = 0;
      for (size_t row = batch.row_start[s]; row < batch.row_start[s + 1]; ++row) {
        rows += batch.embeddings[row] != nullptr ? 1 : 0;
      }
      image_rows += rows;
      cut += rows % kImage != 0 ? 1 : 0;
    }
    return inner_.forward(batch, output);
  }
  static constexpr size_t kImage = 20;  // positions of every image here

 private:
  FakeModel inner_;
};

TEST(EngineImages, RowsTakeThePlaceOfIds) {
  FakeModel model;
  EngineRun run(model, {.max_rows = 64});
  const std::vector<int32_t> prompt = prompt_of(100, 4);
  const std::vector<PromptImage> images = {image_at(0, 30, 5), image_at(30, 7, 11),
                                           image_at(90, 10, 21)};
  run.add({.id = 1, .prompt = prompt, .max_tokens = 12, .ignore_eos = true, .images = images});
  run.add({.id = 2, .prompt = prompt, .max_tokens = 12, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[1].ids, FakeModel::continuation(seen(prompt, images), 12, {}));
  EXPECT_EQ(run.outcomes[2].ids, FakeModel::continuation(prompt, 12, {}));
}

// Many requests, steps barely larger than an image: none is cut, every answer is that of the
// request alone, and decoding rows do not keep an image waiting for ever.
TEST(EngineImages, AreNeverCutAndNeverStarve) {
  WatchingModel model;
  ManualClock clock;
  const auto engine =
      Engine::create(model, {.max_sequences = 12, .max_rows = WatchingModel::kImage + 1}, clock)
          .value();
  std::map<uint64_t, std::vector<int32_t>> answers;
  std::vector<std::pair<std::vector<int32_t>, std::vector<PromptImage>>> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    requests.push_back(
        {prompt_of(60 + i, i),
         {image_at(i, WatchingModel::kImage, 3), image_at(i + 30, WatchingModel::kImage, 9)}});
    if (i % 4 == 3) requests.back().second.clear();
    ASSERT_TRUE(engine
                    ->add({.id = i,
                           .prompt = requests[i].first,
                           .max_tokens = 40,
                           .ignore_eos = true,
                           .images = requests[i].second})
                    .ok());
  }
  for (size_t steps = 0; engine->busy() && steps < 2000; ++steps) {
    ASSERT_TRUE(engine
                    ->step([&](Event event) {
                      if (event.has_token) answers[event.request].push_back(event.token.id);
                    })
                    .ok());
    engine->check_invariants();
  }
  EXPECT_FALSE(engine->busy());
  EXPECT_EQ(model.cut, 0u);
  EXPECT_GE(model.image_rows, 9 * 2 * WatchingModel::kImage);
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_EQ(answers[i],
              FakeModel::continuation(seen(requests[i].first, requests[i].second), 40, {}))
        << i;
  }
}

TEST(EngineImages, AreRefusedWhenTheyDoNotFit) {
  FakeModel model;
  EngineRun run(model, {.max_rows = 16});
  const auto refusal = [&](std::vector<PromptImage> images, bool scores = false) {
    return run.refusal({.id = 1,
                        .prompt = prompt_of(40, 1),
                        .want_prompt_logprobs = scores,
                        .images = std::move(images)});
  };
  EXPECT_THAT(refusal({image_at(30, 11, 2)}), HasSubstr("position 30 has 11 positions"));
  EXPECT_THAT(refusal({image_at(3, 0, 2)}), HasSubstr("has 0 positions"));
  EXPECT_THAT(refusal({image_at(3, 5, 2), image_at(7, 5, 2)}), HasSubstr("free are 8 to 40"));
  EXPECT_THAT(refusal({image_at(3, 17, 2)}), HasSubstr("17 positions, a step has 16 rows"));
  EXPECT_THAT(refusal({image_at(3, 5, 2)}, true), HasSubstr("no log-probabilities"));
  EXPECT_EQ(refusal({image_at(24, 16, 2)}), "accepted");
}

}  // namespace
}  // namespace deepinfer::engine
