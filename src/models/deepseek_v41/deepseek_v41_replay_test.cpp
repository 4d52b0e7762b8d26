// V4.1 continued from less than everything, against the reference: bounded replays of decoder and
// encoder, and an exact resumption at an odd position.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "models/deepseek_v41/v41_goldens_test.h"

namespace deepinfer::models {
namespace {

std::vector<int32_t> greedy_from(ModelRunner& runner, cache::SequenceCache& sequence,
                                 const std::vector<float>& logits, size_t count,
                                 SequenceStart start) {
  std::span<const float> last = std::span(logits).last(runner.vocab());
  std::vector<int32_t> out = {static_cast<int32_t>(argmax(last))};
  while (out.size() < count) {
    const std::vector<float> row = runner.step({{&sequence, {out.back()}, true, start}});
    out.push_back(static_cast<int32_t>(argmax(row)));
  }
  return out;
}

class V41Replay : public ::testing::TestWithParam<kernels::Isa> {
 protected:
  ModelRunner open(KvMode kv) const {
    return ModelRunner::open(v41_path("base"),
                             {.isa = GetParam(), .kv = kv, .max_rows = 128, .pages = 16});
  }
};

// Chunks of the prompt, some of them entirely below the decoder's first position.
TEST_P(V41Replay, Decoder) {
  ModelRunner runner = open(KvMode::f32);
  const GoldenFile golden = v41_golden("d_replay");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const SequenceStart start = {.decoder = 86};
  for (size_t chunk : {100, 33, 7}) {
    cache::SequenceCache sequence = runner.new_sequence();
    std::vector<float> logits;
    for (size_t first = 0; first < ids.size(); first += chunk) {
      const std::vector<float> step = runner.step(
          {{&sequence, part(ids, first, std::min(ids.size(), first + chunk)), true, start}});
      logits.insert(logits.end(), step.begin(), step.end());
    }
    const Difference d = difference(logits, golden["dec.logits"].as<float>());
    expect_error("deepseek_v41/d_replay", "decoder replay: logits, largest", d.largest, 1e-3,
                 "chunks of " + std::to_string(chunk));
    EXPECT_EQ(greedy_from(runner, sequence, logits, 16, start),
              golden_ids(golden["dec.greedy_tokens"]));
  }
}

TEST_P(V41Replay, FullPrefill) {
  ModelRunner runner = open(KvMode::f32);
  const GoldenFile golden = v41_golden("d_replay");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const Difference d =
      difference(runner.logits(ids, ids.size()), golden["full.logits"].as<float>());
  expect_error("deepseek_v41/d_replay", "no replay: logits, largest", d.largest, 1e-3);
}

// The entries of a prefix come back without its windows; the last window of tokens runs again.
TEST_P(V41Replay, Encoder) {
  ModelRunner runner = open(KvMode::f32);
  const GoldenFile golden = v41_golden("d_replay");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  struct Replay {
    std::string name;
    size_t prefix;
    uint64_t decoder;
  };
  for (const Replay& replay : {Replay{"enc80", 80, 0}, {"enc81", 81, 0}, {"both", 80, 86}}) {
    cache::SequenceCache whole = runner.new_sequence();
    runner.step({{&whole, part(ids, 0, replay.prefix), false}});
    cache::SequenceCache sequence = copy_of(runner, whole, false);
    const std::vector<std::byte> restored(
        sequence.page(0, 0), sequence.page(0, 0) + runner.model().cache_layout().page_bytes());
    const SequenceStart start = {
        .window = replay.prefix - 8, .decoder = replay.decoder, .entries = replay.prefix};
    sequence.set_length(start.window);
    std::vector<float> logits;
    for (size_t first = start.window; first < ids.size(); first += 5) {
      const std::vector<float> step = runner.step(
          {{&sequence, part(ids, first, std::min(ids.size(), first + 5)), true, start}});
      logits.insert(logits.end(), step.begin(), step.end());
    }
    const Difference d = difference(logits, golden[replay.name + ".logits"].as<float>());
    expect_error("deepseek_v41/d_replay", "replay " + replay.name + ": logits, largest", d.largest,
                 1e-3);
    EXPECT_EQ(greedy_from(runner, sequence, logits, 16, start),
              golden_ids(golden[replay.name + ".greedy_tokens"]))
        << replay.name;
    // Restored entries stand as they were.
    const DeepseekV41& model = v41_model(runner);
    for (size_t source = 0; source < 3; ++source) {
      const V41EntryStreams& streams = model.entries().streams(source);
      const size_t bytes =
          replay.prefix / streams.ratio * model.entries().entry_format().row_bytes();
      const size_t offset = model.cache_layout().page_offset(streams.entries);
      EXPECT_EQ(std::memcmp(sequence.page(0, streams.entries), restored.data() + offset, bytes), 0)
          << replay.name << " source " << source;
    }
  }
}

class V41Resume : public V41Replay {};

TEST_P(V41Resume, AtAnOddPosition) {
  for (const bool official : {false, true}) {
    ModelRunner runner = open(official ? KvMode::official : KvMode::f32);
    const std::string prefix = official ? "kvquant." : "";
    const GoldenFile golden = v41_golden("e_resume");
    const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
    const size_t at = static_cast<size_t>(golden["snapshot_pos"].as<int32_t>()[0]);
    cache::SequenceCache sequence = runner.new_sequence();
    runner.step({{&sequence, part(ids, 0, at), false}});
    cache::SequenceCache copy = copy_of(runner, sequence, true);

    const std::vector<float> suffix = runner.step({{&copy, part(ids, at, ids.size())}});
    const Difference d = difference(suffix, golden[prefix + "suffix_logits"].as<float>());
    if (official) {
      expect_error("deepseek_v41/e_resume", "official cache rows: logits, rms", d.rms, 0.1);
    } else {
      expect_error("deepseek_v41/e_resume", "logits, largest", d.largest, 1e-3);
    }
    EXPECT_TRUE(runner.step({{&sequence, part(ids, at, ids.size())}}) == suffix);
    EXPECT_EQ(greedy_from(runner, copy, suffix, 32, {}),
              golden_ids(golden[prefix + "greedy_tokens"]));
  }
}

// What the copy holds is what the reference's snapshot holds.
TEST_P(V41Resume, SnapshotHoldsTheReferencesRows) {
  ModelRunner runner = open(KvMode::f32);
  const GoldenFile golden = v41_golden("e_resume");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const size_t at = static_cast<size_t>(golden["snapshot_pos"].as<int32_t>()[0]);
  cache::SequenceCache sequence = runner.new_sequence();
  for (size_t i = 0; i < at; ++i) runner.step({{&sequence, {ids[i]}, false}});
  size_t offset = 0, windows = 0;
  for (const cache::FrontierStream& stream : runner.model().cache_layout().frontier) {
    if (stream.name.starts_with("drafter")) {
      offset += stream.bytes_per_sequence;
      continue;
    }
    const std::string layer = stream.name.substr(6, stream.name.find(' ', 6) - 6);
    const bool window = stream.name.find("window") != std::string::npos;
    const size_t width = window ? 64 : 128;
    const size_t rows = stream.bytes_per_sequence / (width * sizeof(float));
    const GoldenTensor& expected = golden[(window ? "snap.window." : "snap.pending.") + layer];
    const size_t count = expected.shape[0];
    for (size_t i = 0; i < count; ++i) {
      const float* row = reinterpret_cast<const float*>(sequence.frontier() + offset) +
                         (at - count + i) % rows * width;
      expect_error("deepseek_v41/e_resume", "window and open rows, largest",
                   difference({row, width}, expected.as<float>().subspan(i * width, width)).largest,
                   1e-4, stream.name + " row " + std::to_string(i));
    }
    windows += window ? 1 : 0;
    offset += stream.bytes_per_sequence;
  }
  EXPECT_EQ(windows, 10u);
  const DeepseekV41& model = v41_model(runner);
  for (const auto& [source, layer] : {std::pair{0, "2"}, {1, "4"}, {2, "6"}}) {
    const V41EntryStreams& streams = model.entries().streams(static_cast<size_t>(source));
    const auto check = [&](const std::string& name, size_t stream,
                           const kernels::LatentFormat& format) {
      const std::span<const float> expected = golden[name + layer].as<float>();
      const std::vector<float> entries =
          decoded_entries(sequence, stream, streams.per_page, format, at / streams.ratio);
      expect_error("deepseek_v41/e_resume", "entries and index keys, largest",
                   difference(entries, expected).largest, 1e-4, name + layer);
    };
    check("snap.compressed.", streams.entries, model.entries().entry_format());
    check("snap.index.", streams.keys, model.entries().key_format());
  }
}

const auto kIsaName = [](const auto& parameter) {
  return std::string(kernels::isa_name(parameter.param));
};
INSTANTIATE_TEST_SUITE_P(AllIsas, V41Replay, ::testing::ValuesIn(isas_of_this_machine()), kIsaName);
INSTANTIATE_TEST_SUITE_P(AllIsas, V41Resume, ::testing::ValuesIn(isas_of_this_machine()), kIsaName);

}  // namespace
}  // namespace deepinfer::models
