#include "apps/bench_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "apps/disk_sampler.h"
#include "apps/forward_pass.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/system.h"
#include "kernels/limits.h"

namespace deepinfer::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleSeconds = 2;
constexpr double kWarmSeconds = 10;
constexpr size_t kLeastTokens = 4;
// A sequence is begun anew after this many tokens.
constexpr uint64_t kSequenceTokens = 4096;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// What the disk had to do while tokens were decoded.
struct StreamSample {
  double tokens_per_second = 0;
  double hit_rate = 0;         // of experts asked for
  double bytes_per_token = 0;  // read from disk
  double wait_share = 0;       // of the time
};

// One sequence that goes on from sample to sample, so that every token is new to the cache.
class StreamSampler {
 public:
  explicit StreamSampler(models::Model& model)
      : model_(model), most_(std::min<uint64_t>(kSequenceTokens, model.config().context)) {}
  Result<StreamSample> sample(double seconds);

 private:
  Result<void> step();

  models::Model& model_;
  const uint64_t most_;
  std::optional<ForwardPass> pass_;
  uint64_t length_ = 0;
  uint64_t tokens_ = 0;  // of all samples
};

Result<void> StreamSampler::step() {
  if (!pass_ || length_ == most_) {
    pass_.reset();
    pass_.emplace(TRY(ForwardPass::create(model_, 1, most_)));
    length_ = 0;
  }
  const auto id = static_cast<int32_t>((++tokens_ * 2'654'435'761u + 17) % model_.config().vocab);
  const Feed feed{0, {&id, 1}};
  ++length_;
  return pass_->step({&feed, 1}, [](size_t, uint64_t, std::span<const float>) {});
}

Result<StreamSample> StreamSampler::sample(double seconds) {
  const models::StreamCounters before = model_.stream_counters();
  const Clock::time_point start = Clock::now();
  size_t count = 0;
  double passed = 0;
  while (passed < seconds || count < kLeastTokens) {
    TRY(step());
    ++count;
    passed = seconds_since(start);
  }
  const models::StreamCounters after = model_.stream_counters();
  const double tokens = static_cast<double>(count);
  const double hits = static_cast<double>(after.hits - before.hits);
  const double misses = static_cast<double>(after.misses - before.misses);
  StreamSample sample;
  sample.tokens_per_second = tokens / passed;
  sample.hit_rate = hits + misses > 0 ? hits / (hits + misses) : 1;
  sample.bytes_per_token = static_cast<double>(after.bytes_read - before.bytes_read) / tokens;
  sample.wait_share = (after.wait_seconds - before.wait_seconds) / passed;
  return sample;
}

void add_memory(Measured& result, uint64_t stated) {
  const MemoryUse use = memory_use();
  result.details.emplace_back("stated_bytes", static_cast<double>(stated));
  result.details.emplace_back("resident_bytes", static_cast<double>(use.resident_bytes));
  result.details.emplace_back("anonymous_bytes", static_cast<double>(use.anonymous_bytes));
  result.details.emplace_back("peak_resident_bytes", static_cast<double>(use.peak_resident_bytes));
  result.notes.push_back(fmt::format(
      "memory: the model states {:.0f} MB of weights and caches; the process has {:.0f} MB, {:.0f} "
      "MB of it not pages of files; peak {:.0f} MB; it may use {:.0f} MB",
      megabytes(stated), megabytes(use.resident_bytes), megabytes(use.anonymous_bytes),
      megabytes(use.peak_resident_bytes), megabytes(usable_memory_bytes())));
}

}  // namespace

Result<Measured> measure_start(const std::string& path, const llm::LlmOptions& options,
                               size_t rounds) {
  std::vector<double> milliseconds;
  uint64_t bytes = 0;
  Measured result;
  const LoadSampler load;
  for (size_t round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    const std::unique_ptr<llm::Llm> llm = TRY(llm::Llm::open(path, options));
    milliseconds.push_back(1e3 * seconds_since(start));
    if (round + 1 < rounds) continue;
    result.threads = llm->pool().thread_count();
    bytes = llm->checkpoint().weight_bytes();
    add_memory(result, llm->model().resident_bytes());
  }
  const MachineLoad seen = load.sample();
  result.load = seen.others + seen.stolen;
  result.name = "start";
  result.unit = "ms";
  result.spread = spread_of(milliseconds);
  result.limit = static_cast<double>(bytes) / 1e7;
  result.limit_name = fmt::format("ms: one second for 10 GB, of {:.1f} MB", megabytes(bytes));
  return result;
}

Result<Measured> measure_stream(llm::Llm& llm, kernels::Isa isa, size_t rounds, bool show_progress,
                                const InterruptScope& interrupt) {
  models::Model& model = llm.model();
  const auto stop = [&]() -> Result<void> {
    if (!interrupt.interrupted()) return {};
    return Error{ErrorKind::cancelled, "bench stream", "stopped", ""};
  };
  StreamSampler stream(model);
  Progress bar("bench stream", rounds + 1, Progress::Unit::count, show_progress);
  // Warm when two seconds hit as often as the two before.
  const Clock::time_point start = Clock::now();
  StreamSample last = TRY(stream.sample(kSampleSeconds));
  const models::StreamCounters seen = model.stream_counters();
  if (seen.hits + seen.misses == 0) {
    return Error::invalid("bench stream", "all weights are resident, nothing streams",
                          "state a budget with --stream-memory");
  }
  for (double before = -1; std::abs(last.hit_rate - before) > 0.02 &&
                           seconds_since(start) + kSampleSeconds < kWarmSeconds;) {
    TRY(stop());
    before = last.hit_rate;
    last = TRY(stream.sample(kSampleSeconds));
  }
  // The memory of a running model, before the probes take theirs.
  Measured result;
  add_memory(result, model.resident_bytes());
  const kernels::BandwidthProbe probe = TRY(kernels::BandwidthProbe::create(llm.pool()));
  DiskSampler disk = TRY(DiskSampler::create(llm.checkpoint()));
  std::vector<double> speeds, limits, disks, memories, hits, megabytes_read, waits, others;
  for (size_t round = 0; round < rounds; ++round) {
    bar.update(round + 1);
    TRY(stop());
    memories.push_back(probe.measure(llm.pool(), isa));
    disks.push_back(TRY(disk.sample()));
    const LoadSampler load;
    last = TRY(stream.sample(kSampleSeconds));
    const MachineLoad now = load.sample();
    others.push_back(now.others + now.stolen);
    speeds.push_back(last.tokens_per_second);
    hits.push_back(last.hit_rate);
    megabytes_read.push_back(last.bytes_per_token / 1e6);
    waits.push_back(last.wait_share);
    limits.push_back(1 /
                     std::max(static_cast<double>(model.weight_bytes_per_step()) / memories.back(),
                              last.bytes_per_token / disks.back()));
  }
  result.name = "stream";
  result.unit = "tokens/s";
  result.spread = spread_of(speeds);
  result.limit = spread_of(limits).median;
  const double per_token = static_cast<double>(model.weight_bytes_per_step()) / 1e6;
  result.limit_name = fmt::format(
      "tokens/s by the slower floor; {:.1f} % hits, {:.1f} MB a token from a disk of "
      "{:.2f} GB/s, {:.1f} MB from memory of {:.1f} GB/s, {:.0f} % of the time waited for the disk",
      100 * spread_of(hits).median, spread_of(megabytes_read).median, spread_of(disks).median / 1e9,
      per_token, spread_of(memories).median / 1e9, 100 * spread_of(waits).median);
  result.load = spread_of(others).median;
  result.details.insert(result.details.end(),
                        {{"hit_rate", spread_of(hits).median},
                         {"bytes_per_token", 1e6 * spread_of(megabytes_read).median},
                         {"disk_bytes_per_second", spread_of(disks).median},
                         {"memory_bytes_per_second", spread_of(memories).median},
                         {"wait_share", spread_of(waits).median}});
  return result;
}

}  // namespace deepinfer::apps
