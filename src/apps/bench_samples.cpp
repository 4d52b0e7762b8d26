#include "apps/bench_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "apps/forward_pass.h"
#include "base/memory.h"
#include "weights/disk_reader.h"

namespace deepinfer::apps {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<double> sample_engine(llm::Llm& llm, size_t prompt_tokens, size_t new_tokens,
                             size_t counted) {
  llm::Prompt prompt;
  prompt.input = spread_ids(llm.model().config(), prompt_tokens);
  prompt.want_text = false;
  prompt.ignore_eos = true;
  prompt.max_tokens = new_tokens;
  const std::vector<llm::Answer> answers = TRY(llm.generate({&prompt, 1}, {}));
  if (answers.front().error) return *answers.front().error;
  const llm::Speed& speed = llm.speed();
  const double seconds = speed.prefill_seconds + speed.decode_seconds;
  const size_t tokens = counted != 0 ? counted : answers.front().ids.size();
  return static_cast<double>(tokens) / std::max(seconds, 1e-9);
}

}  // namespace

std::vector<int32_t> spread_ids(const weights::ModelConfig& config, size_t count) {
  std::vector<int32_t> ids = {static_cast<int32_t>(config.bos_id.value_or(1 % config.vocab))};
  for (uint64_t i = 1; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((i * 2'654'435'761u + 17) % config.vocab));
  }
  return ids;
}

Result<double> sample_prefill(llm::Llm& llm) {
  const size_t length = std::min<size_t>(kPrefillTokens, llm.model().config().context - 1);
  return sample_engine(llm, length, 1, length);
}

Result<double> sample_decode(llm::Llm& llm) {
  return sample_engine(llm, 1, std::min<size_t>(kDecodeTokens, llm.model().config().context - 1),
                       0);
}

Result<double> sample_decode_at(models::Model& model, uint64_t context, size_t tokens) {
  if (context + tokens > model.config().context) {
    return Error::invalid("--context", fmt::format("{} tokens and {} new ones, the model has {}",
                                                   context, tokens, model.config().context));
  }
  ForwardPass pass = TRY(ForwardPass::create(model, 1, context + tokens));
  if (context > 0) TRY(pass.pretend(0, context));
  const std::vector<int32_t> ids = spread_ids(model.config(), tokens);
  const Clock::time_point start = Clock::now();
  for (const int32_t id : ids) {
    const Feed feed{0, {&id, 1}};
    TRY(pass.step({&feed, 1}, [](size_t, uint64_t, std::span<const float>) {}));
  }
  return static_cast<double>(tokens) / seconds_since(start);
}

Result<StreamSample> sample_stream(llm::Llm& llm) {
  const models::StreamCounters before = llm.model().stream_counters();
  const double speed = TRY(sample_decode(llm));
  const models::StreamCounters after = llm.model().stream_counters();
  const double tokens =
      static_cast<double>(std::min<size_t>(kDecodeTokens, llm.model().config().context - 1));
  const double hits = static_cast<double>(after.hits - before.hits);
  const double misses = static_cast<double>(after.misses - before.misses);
  StreamSample sample;
  sample.tokens_per_second = speed;
  sample.hit_rate = hits + misses > 0 ? hits / (hits + misses) : 1;
  sample.bytes_per_token = static_cast<double>(after.bytes_read - before.bytes_read) / tokens;
  sample.wait_share = (after.wait_seconds - before.wait_seconds) * speed / tokens;
  return sample;
}

Result<double> sample_disk(const weights::Checkpoint& checkpoint, size_t piece_bytes,
                           size_t total_bytes, uint64_t seed) {
  constexpr size_t kAlignment = 4096;
  constexpr size_t kTogether = 8;
  std::vector<uint64_t> sizes(checkpoint.files().size(), 0);
  for (const weights::NamedTensor& tensor : checkpoint.tensors()) {
    sizes[tensor.file] = std::max(sizes[tensor.file], tensor.file_offset + tensor.view.bytes());
  }
  const size_t file = static_cast<size_t>(std::ranges::max_element(sizes) - sizes.begin());
  const size_t piece = std::min<uint64_t>(piece_bytes, sizes[file]) / kAlignment * kAlignment;
  if (piece == 0) {
    return Error::unsupported(checkpoint.path(), "no file is large enough to measure the disk");
  }
  const auto reader = TRY(weights::DiskReader::open(checkpoint.files(), {}));
  Buffer target = TRY(Buffer::create(kTogether * piece));
  double seconds = 0;
  size_t done = 0;
  while (done < total_bytes) {
    std::vector<weights::DiskRange> ranges;
    for (size_t i = 0; i < kTogether; ++i) {
      seed = seed * 6'364'136'223'846'793'005u + 1'442'695'040'888'963'407u;
      const uint64_t place = (seed >> 33) % ((sizes[file] - piece) / kAlignment + 1);
      ranges.push_back(
          {static_cast<uint32_t>(file), place * kAlignment, piece, target.data() + i * piece});
    }
    const Clock::time_point start = Clock::now();
    TRY(reader->read(ranges));
    seconds += seconds_since(start);
    done += kTogether * piece;
  }
  return static_cast<double>(done) / seconds;
}

Result<StartSample> sample_start(const std::string& path, const llm::LlmOptions& options) {
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<llm::Llm> llm = TRY(llm::Llm::open(path, options));
  StartSample sample;
  sample.seconds = seconds_since(start);
  for (const weights::NamedTensor& tensor : llm->checkpoint().tensors()) {
    sample.file_bytes += tensor.view.bytes();
  }
  sample.stated_bytes = llm->model().resident_bytes();
  sample.resident_bytes = memory_use().resident_bytes;
  return sample;
}

}  // namespace deepinfer::apps
