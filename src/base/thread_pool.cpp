#include "base/thread_pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/process_limits.h"

// Invariants
//   1. ticket = epoch << kIndexBits | next chunk. A chunk is taken by a compare-and-swap of the
//   whole
//      word, so a worker that slept through regions can never take a number with stale parameters.
//   2. Region parameters lie in slots[epoch % 2]. They are written only while the ticket shows the
//      previous epoch, so whatever a worker read between its load of a ticket and a successful swap
//      belongs to that ticket.
//   3. done counts finished chunks of the current epoch; run() leaves only when done == count, so
//   no
//      worker is inside a function of a region that has been left.

namespace deepinfer {
namespace {

constexpr unsigned kIndexBits = 24;
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;
constexpr size_t kMaxChunksAtOnce = kIndexMask;  // index == count must be representable
constexpr size_t kStackBytes = size_t{1} << 20;
constexpr size_t kLineBytes = 64;

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr,
            nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, size_t count) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE,
            static_cast<int>(std::min<size_t>(count, INT_MAX)), nullptr, nullptr, 0);
}

// Flush-to-zero on, denormals-are-zero off, the rest as it was.
unsigned compute_mxcsr(unsigned before) {
  constexpr unsigned kFlushToZero = 1u << 15;
  constexpr unsigned kDenormalsAreZero = 1u << 6;
  return (before | kFlushToZero) & ~kDenormalsAreZero;
}

class ComputeRounding {
 public:
  ComputeRounding() : before_(_mm_getcsr()) { _mm_setcsr(compute_mxcsr(before_)); }
  ~ComputeRounding() { _mm_setcsr(before_); }
  ComputeRounding(const ComputeRounding&) = delete;
  ComputeRounding& operator=(const ComputeRounding&) = delete;

 private:
  unsigned before_;
};

// The pools whose regions the current thread is inside of, innermost first: run() on one of them
// would wait for itself.
struct RegionFrame {
  const void* pool;
  const RegionFrame* outer;
};
thread_local const RegionFrame* current_region = nullptr;

class RegionScope {
 public:
  explicit RegionScope(const void* pool) : frame_{pool, current_region} {
    current_region = &frame_;
  }
  ~RegionScope() { current_region = frame_.outer; }
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

  static bool inside(const void* pool) {
    for (const RegionFrame* frame = current_region; frame; frame = frame->outer) {
      if (frame->pool == pool) return true;
    }
    return false;
  }

 private:
  RegionFrame frame_;
};

// Relaxed atomics because a late worker may read while the next-but-one region writes (invariant
// 2).
struct RegionSlot {
  std::atomic<size_t> first{0};  // number of the chunk with index 0
  std::atomic<size_t> count{0};
  std::atomic<void*> context{nullptr};
  std::atomic<void (*)(void*, size_t, size_t)> call{nullptr};
};

}  // namespace

struct ThreadPool::State {
  struct Start {
    State* state;
    size_t worker;
  };

  explicit State(Options chosen) : options(chosen) {}

  Options options;
  std::vector<pthread_t> threads;  // [thread_count - 1]
  std::vector<Start> starts;       // [thread_count], addresses handed to the threads
  std::atomic<bool> stop{false};
  std::atomic<bool> running{false};
  std::atomic<uint32_t> caller_waits{0};

  alignas(kLineBytes) std::atomic<uint64_t> ticket{0};
  alignas(kLineBytes) RegionSlot slots[2];
  alignas(kLineBytes) std::atomic<uint32_t> generation{0};  // futex word of the workers
  alignas(kLineBytes) std::atomic<uint32_t> sleepers{0};
  alignas(kLineBytes) std::atomic<uint32_t> done{0};  // futex word of the caller

  static void* enter(void* argument);
  Result<void> start_threads();
  void join();
  void work(size_t worker);
  size_t drain(size_t worker);
  void publish(size_t first, size_t count, void* context, void (*call)(void*, size_t, size_t));
  void wait_for_chunks(size_t count);
};

void* ThreadPool::State::enter(void* argument) {
  const Start start = *static_cast<const Start*>(argument);
  _mm_setcsr(compute_mxcsr(_mm_getcsr()));
  start.state->work(start.worker);
  return nullptr;
}

// Takes and runs chunks until the region has no more; returns how many.
size_t ThreadPool::State::drain(size_t worker) {
  const RegionScope scope(this);
  size_t finished = 0;
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (true) {
    const RegionSlot& slot = slots[(seen >> kIndexBits) & 1];
    const size_t index = seen & kIndexMask;
    if (index >= slot.count.load(std::memory_order_relaxed)) return finished;
    const size_t first = slot.first.load(std::memory_order_relaxed);
    void* const context = slot.context.load(std::memory_order_relaxed);
    const auto call = slot.call.load(std::memory_order_relaxed);
    if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    call(context, first + index, worker);
    ++finished;
    seen = ticket.load(std::memory_order_acquire);
  }
}

void ThreadPool::State::work(size_t worker) {
  while (true) {
    const uint32_t seen = generation.load(std::memory_order_seq_cst);
    if (stop.load(std::memory_order_acquire)) return;
    // A worker may finish chunks of one region only: the next one cannot start before it reported.
    if (const size_t finished = drain(worker); finished > 0) {
      done.fetch_add(static_cast<uint32_t>(finished), std::memory_order_seq_cst);
      if (caller_waits.load(std::memory_order_seq_cst)) futex_wake(done, 1);
    }
    for (size_t i = 0; i < options.spin_pauses; ++i) {
      if (generation.load(std::memory_order_relaxed) != seen) break;
      _mm_pause();
    }
    if (generation.load(std::memory_order_seq_cst) != seen) continue;
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(generation, seen);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void ThreadPool::State::publish(size_t first, size_t count, void* context,
                                void (*call)(void*, size_t, size_t)) {
  const uint64_t epoch = (ticket.load(std::memory_order_relaxed) >> kIndexBits) + 1;
  RegionSlot& slot = slots[epoch & 1];
  slot.first.store(first, std::memory_order_relaxed);
  slot.count.store(count, std::memory_order_relaxed);
  slot.context.store(context, std::memory_order_relaxed);
  slot.call.store(call, std::memory_order_relaxed);
  done.store(0, std::memory_order_relaxed);
  ticket.store(epoch << kIndexBits, std::memory_order_release);
  generation.fetch_add(1, std::memory_order_seq_cst);
  // A worker that adds itself to sleepers after this load compares the new generation in the kernel
  // and does not sleep.
  if (const size_t asleep = sleepers.load(std::memory_order_seq_cst); asleep > 0) {
    futex_wake(generation, std::min(asleep, count - 1));
  }
}

void ThreadPool::State::wait_for_chunks(size_t count) {
  for (size_t i = 0; i < options.spin_pauses; ++i) {
    if (done.load(std::memory_order_acquire) == count) return;
    _mm_pause();
  }
  // The core goes back to the system, which may give it to the worker that we wait for.
  caller_waits.store(1, std::memory_order_seq_cst);
  for (uint32_t seen; (seen = done.load(std::memory_order_seq_cst)) != count;) {
    futex_wait(done, seen);
  }
  caller_waits.store(0, std::memory_order_relaxed);
}

namespace {

// Worker i goes to the i-th CPU of the mask; the caller's thread is left alone.
void pin_thread(pthread_t thread, size_t worker) {
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  const size_t cpus = static_cast<size_t>(CPU_COUNT(&mask));
  if (cpus == 0) return;
  size_t left = worker % cpus;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::pthread_setaffinity_np(thread, sizeof(one), &one);
    return;
  }
}

}  // namespace

Result<void> ThreadPool::State::start_threads() {
  starts.resize(options.threads);
  threads.reserve(options.threads);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  int code = 0;
  for (size_t worker = 1; worker < options.threads && code == 0; ++worker) {
    starts[worker] = {this, worker};
    pthread_t thread;
    code = ::pthread_create(&thread, &attributes, &State::enter, &starts[worker]);
    if (code != 0) break;
    threads.push_back(thread);
    if (options.pin) pin_thread(thread, worker);
  }
  ::pthread_attr_destroy(&attributes);
  if (code == 0) return {};
  return Error::exhausted("threads",
                          "the system refused thread " + std::to_string(threads.size() + 2) +
                              " of " + std::to_string(options.threads) + ": " + std::strerror(code),
                          "ask for fewer threads");
}

void ThreadPool::State::join() {
  stop.store(true, std::memory_order_release);
  generation.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(generation, INT_MAX);
  for (pthread_t thread : threads) ::pthread_join(thread, nullptr);
  threads.clear();
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(Options options) {
  if (options.threads > kMaxThreads) {
    return Error::invalid(
        "threads",
        std::to_string(options.threads) + " asked for, the limit is " + std::to_string(kMaxThreads),
        std::to_string(usable_cpu_count()) + " CPUs are usable here");
  }
  if (options.threads == 0) options.threads = std::min(usable_cpu_count(), kMaxThreads);
  auto state = std::make_unique<State>(options);
  if (Result<void> started = state->start_threads(); !started.ok()) {
    state->join();
    return std::move(started).error();
  }
  return std::unique_ptr<ThreadPool>(new ThreadPool(std::move(state)));
}

ThreadPool::ThreadPool(std::unique_ptr<State> state) : state_(std::move(state)) {}

ThreadPool::~ThreadPool() {
  check(!state_->running.load(std::memory_order_acquire), "pool destroyed during a region");
  state_->join();
}

size_t ThreadPool::thread_count() const { return state_->options.threads; }

void ThreadPool::run_erased(size_t chunk_count, void* context,
                            void (*call)(void*, size_t, size_t)) {
  State& state = *state_;
  check(!RegionScope::inside(&state), "run() inside a region of the same pool");
  check(!state.running.exchange(true, std::memory_order_acquire),
        "run() from two threads at the same time");
  {
    const ComputeRounding rounding;
    if (state.options.threads == 1 || chunk_count == 1) {
      const RegionScope scope(&state);
      for (size_t chunk = 0; chunk < chunk_count; ++chunk) call(context, chunk, 0);
    } else {
      for (size_t first = 0; first < chunk_count; first += kMaxChunksAtOnce) {
        const size_t count = std::min(chunk_count - first, kMaxChunksAtOnce);
        state.publish(first, count, context, call);
        const size_t own = state.drain(0);
        state.done.fetch_add(static_cast<uint32_t>(own), std::memory_order_acq_rel);
        state.wait_for_chunks(count);
      }
    }
  }
  state.running.store(false, std::memory_order_release);
}

}  // namespace deepinfer
