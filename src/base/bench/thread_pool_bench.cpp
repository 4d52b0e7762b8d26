// Fork-join cost of ThreadPool: an empty region on every thread, and a region of 200 us of work, on
// a quiet machine and while a foreign process keeps one CPU busy. Reports median, 99th percentile
// and mean in microseconds.
//
//   base_bench --benchmark_filter=fork_join

#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"

namespace deepinfer {
namespace {

// A process that computes until it is ended; the pool's threads share their CPUs with it.
class BusyProcess {
 public:
  explicit BusyProcess(bool wanted) {
    if (!wanted) return;
    child_ = ::fork();
    if (child_ != 0) return;
    for (;;) benchmark::DoNotOptimize(child_);
  }
  ~BusyProcess() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  BusyProcess(const BusyProcess&) = delete;
  BusyProcess& operator=(const BusyProcess&) = delete;

 private:
  pid_t child_ = -1;
};

// Steps of a chain of multiplications: time on the CPU, however often the thread is interrupted.
void compute(uint64_t steps) {
  uint64_t value = steps;
  for (uint64_t i = 0; i < steps; ++i) value = value * 6364136223846793005u + 1;
  benchmark::DoNotOptimize(value);
}

// The best of several runs, so that an interruption does not count.
double steps_per_microsecond() {
  static const double rate = [] {
    constexpr uint64_t kSteps = 200'000;
    int64_t best = INT64_MAX;
    for (int round = 0; round < 50; ++round) {
      const int64_t start = system_clock().now_ns();
      compute(kSteps);
      best = std::min(best, system_clock().now_ns() - start);
    }
    return static_cast<double>(kSteps) * 1e3 / static_cast<double>(best);
  }();
  return rate;
}

uint64_t steps_of(double microseconds) {
  return static_cast<uint64_t>(microseconds * steps_per_microsecond());
}

// range(0): 1 with a busy process; range(1): microseconds of work per region, cut into 16 chunks
// for each thread; range(2): microseconds between regions (beyond the spin budget workers park).
void fork_join(benchmark::State& state) {
  const BusyProcess busy(state.range(0) != 0);
  const auto pool = ThreadPool::create({}).value();
  const size_t threads = pool->thread_count();
  const size_t chunks = state.range(1) == 0 ? threads : 16 * threads;
  const uint64_t chunk_steps = steps_of(static_cast<double>(state.range(1)) / 16);
  const uint64_t pause_steps = steps_of(static_cast<double>(state.range(2)));
  std::vector<double> samples;
  for (auto _ : state) {
    compute(pause_steps);
    const int64_t start = system_clock().now_ns();
    pool->run(chunks, [&](size_t, size_t) { compute(chunk_steps); });
    const double seconds = seconds_of(system_clock().now_ns() - start);
    samples.push_back(seconds * 1e6);
    state.SetIterationTime(seconds);
  }
  std::sort(samples.begin(), samples.end());
  double sum = 0.0;
  for (double sample : samples) sum += sample;
  state.counters["threads"] = static_cast<double>(threads);
  state.counters["median_us"] = samples[samples.size() / 2];
  state.counters["p99_us"] = samples[samples.size() * 99 / 100];
  state.counters["mean_us"] = sum / static_cast<double>(samples.size());
}

BENCHMARK(fork_join)
    ->ArgNames({"busy", "work_us", "pause_us"})
    ->ArgsProduct({{0, 1}, {0, 200}, {0, 500}})
    ->UseManualTime()
    ->Iterations(3000);

}  // namespace
}  // namespace deepinfer
