#pragma once

// What the benchmarks of products share: one pool, and the limits of this machine, measured when
// first asked for.

#include "kernels/limits.h"

namespace deepinfer::kernels {

inline ThreadPool& bench_pool() {
  static const auto made = ThreadPool::create({}).value();
  return *made;
}

// Bytes per second that all threads read now: neighbours change it within minutes.
inline double bench_bandwidth(Isa isa) {
  static const BandwidthProbe probe = BandwidthProbe::create(bench_pool()).value();
  return probe.measure(bench_pool(), isa);
}

inline const Limits& bench_limits(Isa isa) {
  static Limits known[4];
  Limits& limits = known[static_cast<size_t>(isa)];
  if (limits.threads == 0) limits = measure_limits(bench_pool(), isa, 0.1).value();
  return limits;
}

}  // namespace deepinfer::kernels
