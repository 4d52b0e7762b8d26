#include "kernels/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>

#include "base/memory.h"
#include "kernels/limits_kernel.h"

namespace deepinfer::kernels {
namespace {

constexpr size_t kLeastProbeBytes = size_t{3} << 29;  // 1.5 GiB
constexpr size_t kStreamMultiple = 512;
// Pieces a thread takes in one pass: enough that a disturbed thread does not delay the pass.
constexpr size_t kPiecesPerThread = 8;
constexpr double kSliceSeconds = 0.002;

double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

const LimitKernels& kernels_of(Isa isa) {
  switch (isa) {
    case Isa::ref:
      return ref::limit_kernels();
    case Isa::avx512:
      return avx512::limit_kernels();
    case Isa::avx2:
    case Isa::emulated512:
      break;
  }
  return avx2::limit_kernels();
}

// Somewhere for results to go, so that the loops count as used.
std::atomic<uint64_t> sink{0};

double timed_run(const LimitLoop& loop, size_t rounds) {
  const double start = seconds_now();
  loop.run(rounds);
  return seconds_now() - start;
}

// Rounds that take about kSliceSeconds.
size_t slice_rounds(const LimitLoop& loop) {
  size_t rounds = 1024;
  while (timed_run(loop, rounds) < kSliceSeconds / 2 && rounds < (size_t{1} << 40)) rounds *= 2;
  return rounds;
}

Rate measure_loop(ThreadPool& pool, const LimitLoop& loop, double seconds) {
  Rate rate;
  if (loop.run == nullptr) return rate;
  const size_t rounds = slice_rounds(loop);
  const double operations = static_cast<double>(rounds) * loop.operations_per_round;
  for (const double end = seconds_now() + seconds; seconds_now() < end;) {
    rate.one_thread = std::max(rate.one_thread, operations / timed_run(loop, rounds));
  }
  const size_t threads = pool.thread_count();
  const size_t chunks = 4 * threads;
  for (const double end = seconds_now() + seconds; seconds_now() < end;) {
    const double start = seconds_now();
    pool.run(chunks, [&](size_t, size_t) { loop.run(rounds); });
    const double all = operations * static_cast<double>(chunks) / (seconds_now() - start);
    rate.all_threads = std::max(rate.all_threads, all);
  }
  return rate;
}

// "260M", "1024K" as sysfs writes sizes; 0 when it is something else.
size_t size_from_text(const std::string& text) {
  size_t value = 0, i = 0;
  for (; i < text.size() && i < 12 && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + static_cast<size_t>(text[i] - '0');
  }
  if (i == 0) return 0;
  if (i == text.size()) return value;
  if (text[i] == 'K') return value << 10;
  if (text[i] == 'M') return value << 20;
  if (text[i] == 'G') return value << 30;
  return 0;
}

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

size_t last_level_cache_bytes(const std::string& root) {
  size_t level = 0, bytes = 0;
  for (int index = 0; index < 10; ++index) {
    const std::string folder =
        fmt::format("{}/sys/devices/system/cpu/cpu0/cache/index{}/", root, index);
    const size_t own_level = size_from_text(first_word(folder + "level"));
    if (own_level == 0) break;
    if (own_level < level || first_word(folder + "type") == "Instruction") continue;
    level = own_level;
    bytes = size_from_text(first_word(folder + "size"));
  }
  return bytes;
}

size_t default_probe_bytes() {
  const size_t wanted = std::max(kLeastProbeBytes, 4 * last_level_cache_bytes());
  const size_t memory = std::min(total_memory_bytes(), available_memory_bytes());
  return memory == 0 ? kLeastProbeBytes : std::min(wanted, memory / 4);
}

Result<BandwidthProbe> BandwidthProbe::create(ThreadPool& pool, size_t bytes) {
  const size_t pieces = 2 * kPiecesPerThread * pool.thread_count();
  const size_t multiple = pieces * kStreamMultiple;
  const size_t wanted = bytes == 0 ? default_probe_bytes() : bytes;
  const size_t rounded = std::max(wanted / multiple, size_t{1}) * multiple;
  Buffer buffer = TRY(Buffer::create(rounded));
  const size_t piece = rounded / pieces;
  // Written, since untouched pages would all read the system's one page of zeros.
  pool.run(pieces, [&](size_t chunk, size_t) {
    std::memset(buffer.data() + chunk * piece, static_cast<int>(chunk % 250) + 1, piece);
  });
  return BandwidthProbe(std::move(buffer));
}

double BandwidthProbe::measure(ThreadPool& pool, Isa isa) const {
  const LimitKernels& kernels = kernels_of(isa);
  const size_t chunks = kPiecesPerThread * pool.thread_count();
  const size_t stream = buffer_.size() / chunks / 2 / kStreamMultiple * kStreamMultiple;
  const double start = seconds_now();
  pool.run(chunks, [&](size_t chunk, size_t) {
    const std::byte* first = buffer_.data() + 2 * chunk * stream;
    sink.fetch_add(kernels.read(first, first + stream, stream), std::memory_order_relaxed);
  });
  return static_cast<double>(2 * chunks * stream) / (seconds_now() - start);
}

double BandwidthProbe::measure_one_thread(Isa isa) const {
  const size_t stream = buffer_.size() / 16 / kStreamMultiple * kStreamMultiple;
  // The pieces follow each other, so that the last one has left the cache when it comes again.
  static std::atomic<size_t> turn{0};
  const std::byte* first =
      buffer_.data() + turn.fetch_add(1, std::memory_order_relaxed) % 8 * 2 * stream;
  const double start = seconds_now();
  sink.fetch_add(kernels_of(isa).read(first, first + stream, stream), std::memory_order_relaxed);
  return static_cast<double>(2 * stream) / (seconds_now() - start);
}

Rate measure_fma_peak(ThreadPool& pool, Isa isa, double seconds_each) {
  return measure_loop(pool, kernels_of(isa).f32, seconds_each);
}

Result<Limits> measure_limits(ThreadPool& pool, Isa isa, double seconds_each) {
  const LimitKernels& kernels = kernels_of(isa);
  Limits limits;
  limits.threads = pool.thread_count();
  limits.last_level_cache_bytes = last_level_cache_bytes();
  {
    const BandwidthProbe probe = TRY(BandwidthProbe::create(pool));
    limits.probe_bytes = probe.bytes();
    double end = seconds_now() + seconds_each;
    do {
      limits.read_bytes.one_thread =
          std::max(limits.read_bytes.one_thread, probe.measure_one_thread(isa));
    } while (seconds_now() < end);
    end = seconds_now() + seconds_each;
    do {
      limits.read_bytes.all_threads =
          std::max(limits.read_bytes.all_threads, probe.measure(pool, isa));
    } while (seconds_now() < end);
  }
  limits.f32 = measure_loop(pool, kernels.f32, seconds_each);
  limits.int8_unsigned = measure_loop(pool, kernels.int8_unsigned, seconds_each);
  limits.int8_signed = measure_loop(pool, kernels.int8_signed, seconds_each);
  limits.bf16 = measure_loop(pool, kernels.bf16, seconds_each);
  return limits;
}

}  // namespace deepinfer::kernels
