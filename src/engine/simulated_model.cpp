#include "engine/simulated_model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace deepinfer::engine {
namespace {

constexpr int64_t kStepNs = 200'000, kRowNs = 20'000;
constexpr float kNever = -1e4f;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  return x ^ (x >> 27);
}

std::byte* entry(const cache::SequenceCache& cache, uint64_t position) {
  return cache.page(position / cache::kTokensPerPage, 0) +
         position % cache::kTokensPerPage * sizeof(int32_t);
}

int32_t entry_at(const cache::SequenceCache& cache, uint64_t position) {
  int32_t word = 0;
  std::memcpy(&word, entry(cache, position), sizeof(word));
  return word;
}

}  // namespace

void SimulatedText::logits(std::span<float> out) const {
  uint64_t x = mix(state_);
  const uint64_t whole = x;
  for (float& logit : out) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    logit = static_cast<float>(x >> 44) * 1e-6f;  // [0, 1.05)
  }
  const uint64_t pair =
      mix(static_cast<uint64_t>(last_) * 64 + static_cast<uint64_t>(before_last_));
  if (whole % 8 != 0) out[pair % (kLastId + 1)] += 2.0f;
  out[kFails] = out[kNan] = kNever;
}

struct SimulatedModel::Row {
  cache::SequenceCache* cache;
  models::SequenceStart start;
  uint64_t position;
  int32_t word;
};

SimulatedModel::SimulatedModel(const Family& family, size_t context, ManualClock& clock)
    : family_(family), clock_(clock) {
  config_.vocab = SimulatedText::kVocab;
  config_.context = static_cast<uint32_t>(context);
  config_.eos_ids = {static_cast<uint32_t>(SimulatedText::kEos)};
  layout_.growing = {{"ids", cache::kTokensPerPage * sizeof(int32_t)}};
  if (family.window > 0) layout_.frontier = {{"ring", slots() * sizeof(Slot)}};
}

// Rows whose windows are not whole yet (SequenceStart::window).
bool SimulatedModel::approximate(const models::SequenceStart& start, uint64_t position) const {
  if (start.window == 0 || family_.window == 0) return false;
  return family_.exact_replay == UINT64_MAX || position < start.window + family_.exact_replay;
}

void SimulatedModel::store(const Row& row) const {
  if (row.position >= row.start.entries) {
    std::memcpy(entry(*row.cache, row.position), &row.word, sizeof(row.word));
  }
  if (family_.window == 0 || row.position < row.start.decoder) return;
  Slot slot{row.position, row.word};
  std::memcpy(row.cache->frontier() + row.position % slots() * sizeof(Slot), &slot, sizeof(slot));
}

void SimulatedModel::answer(const Row& row, float* logits) const {
  SimulatedText text;
  for (uint64_t position = 0; position <= row.position; ++position) {
    text.append(entry_at(*row.cache, position));
  }
  if (row.start.decoder > 0 && row.position + 1 < row.start.decoder + family_.tail) text.spoil();
  const uint64_t first = std::max(row.start.window, row.start.decoder);
  uint64_t position = row.position + 1 - std::min(row.position + 1, family_.window);
  for (position = std::max(position, first); position <= row.position; ++position) {
    Slot slot;
    std::memcpy(&slot, row.cache->frontier() + position % slots() * sizeof(Slot), sizeof(slot));
    const int32_t word = entry_at(*row.cache, position) & ~SimulatedText::kApproximateBit;
    const bool right =
        slot.position == position && (slot.word & ~int64_t{SimulatedText::kApproximateBit}) == word;
    if (!right) text.spoil();
  }
  if (approximate(row.start, row.position)) text.spoil();
  text.logits({logits, SimulatedText::kVocab});
}

// A failing step may leave anything in entries that do not stand yet.
std::optional<Error> SimulatedModel::fault_of(const models::StepBatch& batch) {
  std::optional<Error> fault;
  if (std::ranges::count(batch.ids, SimulatedText::kFails) > 0) {
    fault = Error{ErrorKind::internal, "layer 3 ffn down", "poison", ""};
  } else if (fail_next_ > 0 && batch.caches.size() >= fail_next_) {
    fail_next_ = 0;
    fault = failures_ % 2 == 0 ? Error::io("weights at byte 4096", "injected: Input/output error")
                               : Error::exhausted("activations", "injected: no memory");
    ++failures_;
  }
  if (!fault) return fault;
  for (size_t s = 0; s < batch.caches.size(); ++s) {
    const uint64_t entries = batch.starts.empty() ? 0 : batch.starts[s].entries;
    for (size_t row = batch.row_start[s]; row < batch.row_start[s + 1]; ++row) {
      const uint64_t position = batch.positions[row];
      if (position < std::max(entries, batch.caches[s]->length())) continue;
      const int32_t garbage = -7;
      std::memcpy(entry(*batch.caches[s], position), &garbage, sizeof(garbage));
    }
  }
  return fault;
}

Result<void> SimulatedModel::forward(const models::StepBatch& batch, models::StepOutput& output) {
  clock_.advance_ns(kStepNs + kRowNs * static_cast<int64_t>(batch.ids.size()));
  most_rows_ = std::max(most_rows_, batch.ids.size());
  if (const std::optional<Error> fault = fault_of(batch)) return *fault;
  const size_t wanted = static_cast<size_t>(std::ranges::count(batch.want_logits, 1));
  const size_t bytes = std::max<size_t>(wanted, 1) * SimulatedText::kVocab * sizeof(float);
  if (output.logits.size() < bytes) output.logits = Buffer(bytes);
  output.wanted_rows = 0;
  for (size_t s = 0; s < batch.caches.size(); ++s) {
    const models::SequenceStart start =
        batch.starts.empty() ? models::SequenceStart{} : batch.starts[s];
    check(batch.positions[batch.row_start[s]] == batch.caches[s]->length(), "rows leave a gap");
    for (size_t r = batch.row_start[s]; r < batch.row_start[s + 1]; ++r) {
      const bool image = !batch.embeddings.empty() && batch.embeddings[r] != nullptr;
      Row row{batch.caches[s], start, batch.positions[r], batch.ids[r]};
      if (image) row.word = static_cast<int32_t>(*batch.embeddings[r]) | SimulatedText::kImageBit;
      if (approximate(start, row.position)) row.word |= SimulatedText::kApproximateBit;
      store(row);
      if (batch.want_logits[r] == 0) continue;
      check(row.position >= start.decoder, "logits of a row that stops early");
      float* logits =
          output.logits.as<float>() + output.wanted_rows++ * size_t{SimulatedText::kVocab};
      answer(row, logits);
      if (batch.ids[r] == SimulatedText::kNan) logits[7] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return {};
}

}  // namespace deepinfer::engine
