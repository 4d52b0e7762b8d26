// What V4.1 reports: damaged weights by place, shapes it does not compute, steps that fail; and
// rows that are images.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>

#include "models/changed_model_test.h"
#include "models/deepseek_v41/v41_goldens_test.h"

namespace deepinfer::models {
namespace {

using ::testing::HasSubstr;

struct ChangedBase : ChangedModel {
  ChangedBase() : ChangedModel(v41_path("base")) {}
};

const std::string kNanBf16("\xC0\x7F", 2);
const std::string kNanFp8("\x7F", 1);

std::string forward_error(const std::string& path) {
  ModelRunner runner = ModelRunner::open(path, {.isa = kernels::Isa::ref});
  cache::SequenceCache sequence = runner.new_sequence();
  std::vector<int32_t> ids(30);
  std::iota(ids.begin(), ids.end(), 3);
  const auto result = runner.try_step({{&sequence, ids}});
  if (result.ok()) return "no error";
  EXPECT_EQ(result.error().kind, ErrorKind::internal);
  return result.error().text();
}

std::string open_error(const std::string& path) {
  const auto checkpoint = value_or_die(weights::Checkpoint::open(path));
  const auto pool = value_or_die(ThreadPool::create({.threads = 1}));
  const auto model = open_model(checkpoint, {.target = {kernels::Isa::ref}, .max_rows = 8}, *pool);
  return model.ok() ? "no error" : model.error().text();
}

TEST(V41Faults, ErrorNamesLayerAndOperation) {
  const auto damaged = [](const std::string& tensor, const std::string& bytes, size_t offset = 0) {
    return forward_error(ChangedBase().write(tensor, offset, bytes).path());
  };
  EXPECT_THAT(damaged("embed.weight", kNanBf16, 5 * 64 * 2), HasSubstr("embedding"));
  EXPECT_THAT(damaged("layers.2.attn.compressor.wkv.weight", kNanBf16),
              HasSubstr("layer 2 attention compressor"));
  EXPECT_THAT(damaged("layers.6.attn.indexer.wk.weight", kNanBf16),
              HasSubstr("layer 6 attention index key"));
  EXPECT_THAT(damaged("layers.8.attn.indexer.weights_proj.weight", kNanBf16),
              HasSubstr("layer 8 indexer weights"));
  EXPECT_THAT(damaged("layers.3.ffn.gate.weight", kNanBf16), HasSubstr("layer 3 ffn"));
  EXPECT_THAT(damaged("head.weight", kNanBf16), HasSubstr("output head"));
  // Tables are too large to be read at start: every row of this one is damaged.
  EXPECT_THAT(damaged("layers.1.engram.embed.weight", std::string(304 * 32, '\x7F')),
              HasSubstr("layer 1 engram table"));
}

TEST(V41Faults, DamagedMatricesAreRefusedAtTheStart) {
  EXPECT_THAT(open_error(ChangedBase().write("layers.5.attn.wq_b.weight", 7, kNanFp8).path()),
              HasSubstr("layer 5 attention q_b"));
  EXPECT_THAT(open_error(ChangedBase().write("layers.9.attn_norm.weight", 0, kNanBf16).path()),
              HasSubstr("layer 9 attention norm"));
}

TEST(V41Faults, WhatIsMissingOrNotComputedIsNamed) {
  EXPECT_THAT(open_error(ChangedBase().remove("engram.json").path()), HasSubstr("no engram.json"));
  EXPECT_THAT(open_error(ChangedBase()
                             .edit("\"engram_compressed_vocab_size\": 400",
                                   "\"engram_compressed_vocab_size\": 300")
                             .path()),
              HasSubstr("engram_compressed_vocab_size is 300"));
  EXPECT_THAT(open_error(ChangedBase().edit("\"o_groups\": 2", "\"o_groups\": 3").path()),
              HasSubstr("o_groups"));
}

// A step that fails in a late layer leaves the sequence as it was: the same rows run again.
TEST(V41Faults, AFailedStepCanBeRepeated) {
  ModelRunner runner = ModelRunner::open(v41_path("base"), {.kv = KvMode::official});
  const std::vector<int32_t> ids = golden_ids(v41_golden("a_fp32")["input_ids"]);
  const std::vector<float> whole = runner.logits(ids, ids.size());
  cache::SequenceCache sequence = runner.new_sequence();
  runner.step({{&sequence, part(ids, 0, 31), false}});
  v41_model(runner).observe([](const V41LayerView& view) {
    if (view.layer == 8 && !view.after) {
      view.streams->row(0)[3] = std::numeric_limits<float>::quiet_NaN();
    }
  });
  const auto failed = runner.try_step({{&sequence, part(ids, 31, 60)}});
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().text(), HasSubstr("layer 8"));
  v41_model(runner).observe(nullptr);
  EXPECT_EQ(sequence.length(), 31u);
  const std::vector<float> again = runner.step({{&sequence, part(ids, 31, ids.size())}});
  EXPECT_TRUE(std::equal(again.begin(), again.end(),
                         whole.begin() + static_cast<long>(31 * runner.vocab())));
}

// Logits of all rows; rows of `image` are positions of an image whose embedding is that of their
// id.
std::vector<float> logits_with_image(ModelRunner& runner, std::vector<int32_t> ids,
                                     const std::vector<uint8_t>& image, size_t chunk) {
  const DeepseekV41& model = v41_model(runner);
  const size_t hidden = model.config().hidden;
  std::vector<float> rows(ids.size() * hidden);
  std::vector<const float*> embeddings(ids.size(), nullptr);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (image[i] == 0) continue;
    const TensorView& table = model.weights().embedding;
    decode_row(table.dtype, table.row(static_cast<size_t>(ids[i])), rows.data() + i * hidden,
               hidden);
    embeddings[i] = rows.data() + i * hidden;
    ids[i] = -7;  // is not read
  }
  std::vector<uint64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), uint64_t{0});
  const std::vector<uint8_t> want(ids.size(), 1);
  cache::SequenceCache sequence = runner.new_sequence();
  cache::SequenceCache* caches[] = {&sequence};
  EXPECT_TRUE(sequence.reserve(ids.size()).ok());
  std::vector<float> logits;
  StepOutput output;
  for (size_t first = 0; first < ids.size(); first += chunk) {
    const size_t count = std::min(chunk, ids.size() - first);
    const uint32_t row_start[] = {0, static_cast<uint32_t>(count)};
    const StepBatch batch = {.ids = std::span(ids).subspan(first, count),
                             .positions = std::span(positions).subspan(first, count),
                             .row_start = row_start,
                             .want_logits = std::span(want).subspan(first, count),
                             .caches = caches,
                             .embeddings = std::span(embeddings).subspan(first, count)};
    const Result<void> done = runner.model().forward(batch, output);
    EXPECT_TRUE(done.ok()) << done.error().text();
    sequence.set_length(first + count);
    const float* row = output.row(0, runner.vocab());
    logits.insert(logits.end(), row, row + count * runner.vocab());
  }
  return logits;
}

// Images take their own router bias and no Engram, in any chunking; rows before them do not change.
TEST(V41Images, RowsOfAnImage) {
  ModelRunner runner = ModelRunner::open(v41_path("base"), {.kv = KvMode::official});
  std::vector<int32_t> ids = golden_ids(v41_golden("a_fp32")["input_ids"]);
  std::vector<uint8_t> image(ids.size(), 0);
  const std::vector<float> text = logits_with_image(runner, ids, image, ids.size());
  EXPECT_TRUE(text == runner.logits(ids, ids.size()));
  std::fill(image.begin() + 20, image.begin() + 30, uint8_t{1});
  const std::vector<float> whole = logits_with_image(runner, ids, image, ids.size());
  const auto same_row = [&](size_t row) {
    const auto at = static_cast<long>(row * runner.vocab());
    return std::equal(whole.begin() + at, whole.begin() + at + static_cast<long>(runner.vocab()),
                      text.begin() + at);
  };
  EXPECT_TRUE(same_row(19));
  EXPECT_FALSE(same_row(20));
  EXPECT_FALSE(same_row(31));
  for (const size_t chunk : {1, 3, 7, 24}) {
    EXPECT_TRUE(logits_with_image(runner, ids, image, chunk) == whole) << "chunks of " << chunk;
  }
}

}  // namespace
}  // namespace deepinfer::models
