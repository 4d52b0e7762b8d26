#pragma once

// What this machine can do, measured: the roofs that benchmarks and `bench limits` state shares of.
//
// Every figure is the best of many short slices, so that other processes lower it little. A rate
// "of one thread" is measured while the others are parked.
//
// Threads: from one thread at a time; uses the pool.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "tensor/tensor.h"

namespace deepinfer::kernels {

struct Rate {
  double one_thread = 0.0;
  double all_threads = 0.0;
};

// Rates per second; a multiplication and an addition count as two operations.
struct Limits {
  size_t threads = 0;
  size_t last_level_cache_bytes = 0;
  size_t probe_bytes = 0;
  Rate read_bytes;     // from memory, beyond every cache when probe_bytes is far larger
  Rate f32;            // fma on fp32 vectors; ref: multiply and add
  Rate int8_unsigned;  // unsigned codes x int8: AVX2 vpmaddubsw with eight sums before widening;
                       // AVX-512 vpdpbusd; 0 where the set has no such body
  Rate int8_signed;    // int8 x int8: AVX2 vpsignb, vpmaddubsw, vpmaddwd; AVX-512 vpdpbusd
  Rate bf16;           // vdpbf16ps, 0 where the machine lacks it
};

// Of CPU 0, from sysfs below `root`; 0 when it does not say.
size_t last_level_cache_bytes(const std::string& root = "");

// max(1.5 GiB, 4 x last-level cache), at most a quarter of the memory this process may use.
size_t default_probe_bytes();

// A buffer larger than the caches, kept between measurements, so that benchmarks can measure the
// memory bandwidth between their own runs at the cost of one pass.
class BandwidthProbe {
 public:
  // Fails (exhausted) when there is no such memory. bytes: 0 takes default_probe_bytes().
  static Result<BandwidthProbe> create(ThreadPool& pool, size_t bytes = 0);

  size_t bytes() const { return buffer_.size(); }
  // Bytes per second of one pass over the buffer by all threads, two streams each.
  double measure(ThreadPool& pool, Isa isa) const;
  // The same by the calling thread alone, over an eighth of the buffer.
  double measure_one_thread(Isa isa) const;

 private:
  explicit BandwidthProbe(Buffer buffer) : buffer_(std::move(buffer)) {}
  Buffer buffer_;
};

// One pass of the probe: bytes per second.
inline double measure_read_bandwidth(ThreadPool& pool, Isa isa, const BandwidthProbe& probe) {
  return probe.measure(pool, isa);
}

// fp32 alone, for benchmarks that state shares of it.
Rate measure_fma_peak(ThreadPool& pool, Isa isa, double seconds_each);

// Takes about 10 * seconds_each. Fails when there is no memory for the probe.
Result<Limits> measure_limits(ThreadPool& pool, Isa isa, double seconds_each);

}  // namespace deepinfer::kernels
