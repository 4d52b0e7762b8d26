#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <xmmintrin.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace deepinfer {
namespace {

std::unique_ptr<ThreadPool> make_pool(size_t threads, size_t spin_pauses = 2000) {
  return ThreadPool::create({.threads = threads, .spin_pauses = spin_pauses}).value();
}

TEST(ThreadPool, RunsEveryChunkExactlyOnce) {
  for (size_t threads : {1, 2, 3, 8}) {
    const auto pool = make_pool(threads);
    for (size_t chunks : {0, 1, 2, 7, 100'000}) {
      std::vector<std::atomic<int>> hits(chunks);
      pool->run(chunks, [&](size_t chunk, size_t worker) {
        ASSERT_LT(worker, threads);
        hits[chunk].fetch_add(1);
      });
      for (size_t i = 0; i < chunks; ++i) ASSERT_EQ(hits[i].load(), 1) << i << " of " << chunks;
    }
  }
}

TEST(ThreadPool, TheSameWorkerIsNeverInTwoChunksAtOnce) {
  const auto pool = make_pool(4);
  std::vector<std::atomic<bool>> busy(4);
  pool->run(5000, [&](size_t, size_t worker) {
    EXPECT_FALSE(busy[worker].exchange(true));
    busy[worker].store(false);
  });
}

TEST(ThreadPool, PublishesWritesToTheCaller) {
  const auto pool = make_pool(3);
  std::vector<size_t> plain(512);
  for (size_t round = 1; round <= 200; ++round) {
    pool->run(plain.size(), [&](size_t chunk, size_t) { plain[chunk] += chunk * round; });
    const size_t sum = std::accumulate(plain.begin(), plain.end(), size_t{0});
    ASSERT_EQ(sum, 512 * 511 / 2 * (round * (round + 1) / 2));
  }
}

TEST(ThreadPool, OneThreadRunsInOrderOnTheCaller) {
  const auto pool = make_pool(1);
  std::vector<size_t> order;
  const std::thread::id self = std::this_thread::get_id();
  pool->run(10, [&](size_t chunk, size_t worker) {
    EXPECT_EQ(worker, 0u);
    EXPECT_EQ(std::this_thread::get_id(), self);
    order.push_back(chunk);
  });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(ThreadPool, AllThreadsTakePart) {
  const auto pool = make_pool(4);
  std::atomic<unsigned> seen{0};
  // Each chunk waits until four workers are inside: only four threads can get through.
  pool->run(4, [&](size_t, size_t worker) {
    seen.fetch_or(1u << worker);
    while (seen.load() != 0xf) std::this_thread::yield();
  });
  EXPECT_EQ(seen.load(), 0xfu);
}

TEST(ThreadPool, ManyTinyRegionsWithAndWithoutParking) {
  for (size_t spin : {0, 20, 2000}) {
    const auto pool = make_pool(3, spin);
    std::atomic<size_t> total{0};
    for (size_t round = 0; round < 5000; ++round) {
      pool->run(3, [&](size_t chunk, size_t) { total.fetch_add(chunk + 1); });
      ASSERT_EQ(total.load(), 6 * (round + 1));
    }
  }
}

TEST(ThreadPool, MoreThreadsThanCoresDoNotHang) {
  const auto pool = make_pool(64);
  EXPECT_EQ(pool->thread_count(), 64u);
  for (size_t round = 0; round < 200; ++round) {
    std::atomic<size_t> total{0};
    pool->run(256, [&](size_t, size_t) { total.fetch_add(1); });
    ASSERT_EQ(total.load(), 256u);
  }
}

TEST(ThreadPool, ParkedWorkersWakeAgain) {
  const auto pool = make_pool(2, 10);
  for (size_t round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<unsigned> seen{0};
    pool->run(2, [&](size_t, size_t worker) {
      seen.fetch_or(1u << worker);
      while (seen.load() != 3) std::this_thread::yield();
    });
  }
}

TEST(ThreadPool, TwoPoolsNest) {
  const auto outer = make_pool(2);
  const auto inner = make_pool(2);
  std::atomic<size_t> total{0};
  outer->run(1,
             [&](size_t, size_t) { inner->run(8, [&](size_t, size_t) { total.fetch_add(1); }); });
  EXPECT_EQ(total.load(), 8u);
}

TEST(ThreadPool, FlushesToZeroInsideAndKeepsDenormalInputs) {
  const auto pool = make_pool(2);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x0040);  // a caller with denormals-are-zero on
  std::atomic<unsigned> seen{0};
  std::atomic<unsigned> flush_and_daz[2] = {0, 0};
  pool->run(2, [&](size_t, size_t worker) {
    flush_and_daz[worker].store(_mm_getcsr() & 0x8040);
    seen.fetch_or(1u << worker);
    while (seen.load() != 3) std::this_thread::yield();
  });
  EXPECT_EQ(flush_and_daz[0].load(), 0x8000u);
  EXPECT_EQ(flush_and_daz[1].load(), 0x8000u);
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x0040u) << "the caller gets its own setting back";
  _mm_setcsr(before);
}

TEST(ThreadPool, PinnedWorkersStillWork) {
  const auto pool = ThreadPool::create({.threads = 3, .pin = true}).value();
  std::atomic<size_t> total{0};
  pool->run(100, [&](size_t, size_t) { total.fetch_add(1); });
  EXPECT_EQ(total.load(), 100u);
}

TEST(ThreadPool, ZeroThreadsMeansUsableCpus) {
  EXPECT_EQ(make_pool(0)->thread_count(), usable_cpu_count());
  EXPECT_GE(usable_cpu_count(), 1u);
}

TEST(ThreadPool, RefusesTenThousandThreadsByBothNumbers) {
  const auto pool = ThreadPool::create({.threads = 10'000});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().kind, ErrorKind::invalid);
  EXPECT_NE(pool.error().text().find("10000 asked for, the limit is 1024"), std::string::npos);
}

// Sanitizers reserve address space of their own for every thread.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DEEPINFER_OWN_ADDRESS_SPACE 0
#else
#define DEEPINFER_OWN_ADDRESS_SPACE 1
#endif

#if DEEPINFER_OWN_ADDRESS_SPACE
TEST(ThreadPool, WorkersReserveLittleAddressSpace) {
  const auto virtual_bytes = [] {
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages;
    return pages * 4096;
  };
  const size_t before = virtual_bytes();
  const auto pool = make_pool(64);
  EXPECT_LT(virtual_bytes() - before, size_t{128} << 20);
}
#endif

TEST(ThreadPoolDeathTest, NestedAndConcurrentUseAreBugs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto pool = make_pool(2);
        pool->run(4, [&](size_t, size_t) { pool->run(1, [](size_t, size_t) {}); });
      },
      "inside a region of the same pool");
  EXPECT_DEATH(
      {
        const auto pool = make_pool(1);
        pool->run(1, [&](size_t, size_t) {
          std::thread([&] { pool->run(1, [](size_t, size_t) {}); }).join();
        });
      },
      "two threads at the same time");
}

#if DEEPINFER_OWN_ADDRESS_SPACE
TEST(ThreadPoolDeathTest, ARefusedThreadIsAnErrorThatNamesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto child = [] {
    // No address space for more stacks.
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages;
    rlimit limit{};
    limit.rlim_cur = pages * 4096 + (8 << 20);
    limit.rlim_max = RLIM_INFINITY;
    setrlimit(RLIMIT_AS, &limit);
    const auto pool = ThreadPool::create({.threads = 500});
    const bool named = !pool.ok() && pool.error().kind == ErrorKind::exhausted &&
                       pool.error().text().find("of 500") != std::string::npos;
    std::_Exit(named ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace deepinfer
