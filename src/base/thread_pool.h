#pragma once

// ThreadPool: the workers that compute. One region runs at a time; a region is cut into numbered
// chunks, and whoever is free takes the next number, so that a worker whose core was taken away
// delays nobody. Between regions workers spin for a short while (tens of microseconds, a setting),
// then park.
//
//   ThreadPool pool({.threads = 2});
//   pool.run(chunk_count, [&](size_t chunk, size_t worker) { ... });
//
// Contract: `threads` counts the caller, which works too: a pool of 1 starts no thread and calls
// the function in order. run() returns when every chunk is done, and publishes all their writes to
// the caller. Chunks may run in any order, each exactly once; `worker` < thread_count() is constant
// within one chunk and no two chunks run at the same time with the same worker. The function must
// not throw and must not call run() on the same pool. Every worker sets flush-to-zero in MXCSR and
// leaves denormals-are-zero off (spec: bits of results depend on it); run() sets the same on the
// caller for the duration of the region.
//
// Threads: run() from one thread at a time.

#include <cstddef>
#include <memory>
#include <type_traits>

#include "base/result.h"

namespace deepinfer {

// CPUs this process may use: affinity mask, then the cgroup's CPU quota (v1 and v2), at least 1.
size_t usable_cpu_count();

class ThreadPool {
 public:
  struct Options {
    size_t threads = 0;         // 0: usable_cpu_count()
    size_t spin_pauses = 2000;  // before a worker parks: 25 us on Sapphire Rapids
    bool pin = false;           // one CPU of the affinity mask for each worker
  };
  static constexpr size_t kMaxThreads = 1024;

  // Fails when threads > kMaxThreads or the system refuses one.
  static Result<std::unique_ptr<ThreadPool>> create(Options options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t thread_count() const;

  template <class Function>
  void run(size_t chunk_count, Function&& function) {
    run_erased(chunk_count, const_cast<void*>(static_cast<const void*>(&function)),
               [](void* context, size_t chunk, size_t worker) {
                 (*static_cast<std::remove_reference_t<Function>*>(context))(chunk, worker);
               });
  }

 private:
  struct State;
  explicit ThreadPool(std::unique_ptr<State> state);
  void run_erased(size_t chunk_count, void* context, void (*call)(void*, size_t, size_t));

  std::unique_ptr<State> state_;
};

}  // namespace deepinfer
