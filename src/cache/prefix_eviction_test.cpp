#include <gtest/gtest.h>

#include <optional>

#include "cache/prefix_cache.h"
#include "cache/toy_sequence.h"

namespace deepinfer::cache {
namespace {

struct Fixture {
  Fixture(size_t pages, uint64_t snapshots, size_t max_pages = 0)
      : pool(toy_pool(pages, snapshots > 0)),
        prefixes(*pool, {.identity = {},
                         .max_pages = max_pages,
                         .max_snapshot_bytes = snapshots * kToyFrontierBytes}) {}
  // Computes ids and makes them known; the sequence is returned and still holds its pages.
  ToySequence run(std::vector<int32_t> ids, std::optional<SnapshotKind> kind = {}) {
    ToySequence sequence = toy_sequence(*pool, std::move(ids));
    EXPECT_TRUE(sequence.compute(sequence.ids.size()));
    if (kind) {
      kept = prefixes.snapshot(sequence.key(), sequence.cache, sequence.ids.size(), {}, *kind,
                               exactness);
    } else {
      prefixes.insert(sequence.key(), sequence.cache, sequence.ids.size(), exactness);
    }
    prefixes.check_invariants();
    return sequence;
  }
  PrefixCache::Lease lookup(const std::vector<int32_t>& ids) {
    return prefixes.lookup({.ids = ids}, ids.size(), exactness);
  }
  // Without counting as a use of more than `ids` itself.
  uint64_t matched(const std::vector<int32_t>& ids) { return lookup(ids).matched(); }
  uint64_t resumed(const std::vector<int32_t>& ids) { return lookup(ids).resume(); }

  std::unique_ptr<PagePool> pool;
  PrefixCache prefixes;
  Exactness exactness = Exactness::exact;  // of all that is run and looked for
  bool kept = false;
};

std::vector<int32_t> joined(std::vector<int32_t> head, const std::vector<int32_t>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

TEST(PrefixEviction, AChainIsEatenFromItsEnd) {
  Fixture fixture(10, 0);
  {
    const auto ended = fixture.run(toy_ids(10 * kTokensPerPage));
  }
  EXPECT_EQ(fixture.prefixes.evictable_pages(), 10u);
  for (size_t freed = 1; freed <= 10; ++freed) {
    EXPECT_EQ(fixture.prefixes.make_free(freed), freed);
    fixture.prefixes.check_invariants();
    // A look that goes no further than the head does not change which page is the next.
    EXPECT_EQ(fixture.matched(toy_ids(10 * kTokensPerPage)), (10 - freed) * kTokensPerPage);
  }
  EXPECT_EQ(fixture.prefixes.counters().evicted_pages, 10u);
  EXPECT_EQ(fixture.prefixes.make_free(11), 10u);
}

TEST(PrefixEviction, WhatWasUsedLongestAgoGoesFirst) {
  Fixture fixture(12, 0);
  for (int32_t i = 0; i < 4; ++i) {
    const auto ended = fixture.run(toy_ids(3 * kTokensPerPage, 100 * i));
  }
  EXPECT_EQ(fixture.matched(toy_ids(3 * kTokensPerPage, 0)), 384u);  // a use
  fixture.prefixes.make_free(4);
  EXPECT_EQ(fixture.matched(toy_ids(3 * kTokensPerPage, 100)), 0u);
  EXPECT_EQ(fixture.matched(toy_ids(3 * kTokensPerPage, 200)), 256u);
  EXPECT_EQ(fixture.matched(toy_ids(3 * kTokensPerPage, 300)), 384u);
  EXPECT_EQ(fixture.matched(toy_ids(3 * kTokensPerPage, 0)), 384u);
}

// Ten tokens are computed again sooner than 128, and a page is a page.
TEST(PrefixEviction, APageOfFewTokensGoesBeforeAFullOneThatIsOlder) {
  Fixture fixture(4, 0);
  {
    const auto ended = fixture.run(toy_ids(kTokensPerPage, 5000));
  }
  {
    const auto ended = fixture.run(toy_ids(10, 6000));
  }
  fixture.prefixes.make_free(3);
  EXPECT_EQ(fixture.matched(toy_ids(kTokensPerPage, 5000)), 128u);
  EXPECT_EQ(fixture.matched(toy_ids(10, 6000)), 0u);
}

TEST(PrefixEviction, SharedHeadsOutliveTheirBranches) {
  Fixture fixture(40, 0);
  const auto head = toy_ids(2 * kTokensPerPage);
  for (int32_t i = 0; i < 10; ++i) {
    ToySequence next = toy_sequence(*fixture.pool, joined(head, toy_ids(300, 2000 + i)));
    const auto lease = fixture.lookup(next.ids);
    ASSERT_TRUE(fixture.prefixes.restore(lease, next.cache).ok());
    ASSERT_TRUE(next.compute(next.ids.size()));
    fixture.prefixes.insert(next.key(), next.cache, next.ids.size());
  }
  EXPECT_EQ(fixture.prefixes.pages(), 2u + 10 * 3);
  fixture.prefixes.make_free(38);
  EXPECT_EQ(fixture.matched(head), 256u);
}

TEST(PrefixEviction, NothingOfARunningSequenceIsFreedOrCounted) {
  Fixture fixture(10, 0);
  std::optional<ToySequence> running = fixture.run(toy_ids(500));
  {
    const auto ended = fixture.run(toy_ids(300, 400));
  }
  EXPECT_EQ(fixture.prefixes.evictable_pages(), 3u);
  EXPECT_EQ(fixture.prefixes.idle_pages(), 3u);
  EXPECT_EQ(fixture.prefixes.make_free(10), 6u);
  running->expect_exact();
  EXPECT_EQ(fixture.matched(toy_ids(500)), 500u);
  running.reset();
  EXPECT_EQ(fixture.prefixes.evictable_pages(), 4u);
  EXPECT_EQ(fixture.prefixes.make_free(10), 10u);
  fixture.prefixes.check_invariants();
}

// The second sequence computed the same head at the same time: the tree keeps the first one's
// pages, which nobody uses any more, below a page that somebody does.
TEST(PrefixEviction, PagesBelowOneInUseAreNotEvictable) {
  Fixture fixture(12, 0);
  ToySequence second = toy_sequence(*fixture.pool, toy_ids(500));
  ASSERT_TRUE(second.compute(500));
  {
    const auto first = fixture.run(toy_ids(300));
  }
  fixture.prefixes.insert(second.key(), second.cache, 500);
  fixture.prefixes.check_invariants();
  EXPECT_EQ(fixture.prefixes.pages(), 4u);
  EXPECT_EQ(fixture.prefixes.idle_pages(), 2u);
  EXPECT_EQ(fixture.prefixes.evictable_pages(), 0u);
  const size_t free = fixture.pool->free_count();
  EXPECT_EQ(fixture.prefixes.make_free(12), free);
}

TEST(PrefixEviction, ALeaseProtectsItsPathAndItsSnapshot) {
  Fixture fixture(8, 1);
  const auto ids = toy_ids(500);
  {
    const auto ended = fixture.run(ids, SnapshotKind::prompt);
  }
  std::optional<PrefixCache::Lease> lease = fixture.lookup(ids);
  EXPECT_EQ(fixture.prefixes.evictable_pages(), 0u);
  EXPECT_EQ(fixture.prefixes.make_free(8), 4u);
  {
    const auto other = fixture.run(toy_ids(200, 400), SnapshotKind::system);
  }
  EXPECT_FALSE(fixture.kept);
  fixture.prefixes.clear();
  EXPECT_EQ(fixture.prefixes.pages(), 4u);
  ToySequence resumed = toy_sequence(*fixture.pool, ids);
  ASSERT_TRUE(fixture.prefixes.restore(*lease, resumed.cache).ok());
  resumed.expect_exact();
  PrefixCache::Lease moved = std::move(*lease);
  lease.reset();
  EXPECT_EQ(moved.resume(), 500u);
  EXPECT_EQ(fixture.prefixes.evictable_pages(), 0u);
  moved = PrefixCache::Lease();
  EXPECT_EQ(fixture.prefixes.evictable_pages(), 1u);  // the copied page; the others are shared
  fixture.prefixes.check_invariants();
}

TEST(PrefixEviction, ClearForgetsWhatSequencesGoOnUsing) {
  Fixture fixture(20, 4);
  ToySequence running = fixture.run(toy_ids(500), SnapshotKind::prompt);
  {
    const auto ended = fixture.run(joined(toy_ids(300), toy_ids(300, 3000)), SnapshotKind::output);
  }
  fixture.prefixes.clear();
  fixture.prefixes.check_invariants();
  EXPECT_EQ(fixture.prefixes.pages(), 0u);
  EXPECT_EQ(fixture.prefixes.snapshot_bytes(), 0u);
  EXPECT_EQ(fixture.matched(toy_ids(500)), 0u);
  running.expect_exact();
  EXPECT_EQ(fixture.pool->free_count(), 16u);
  EXPECT_EQ(fixture.prefixes.counters().evicted_pages, 0u);
  // And it can be known again.
  fixture.prefixes.insert(running.key(), running.cache, 500);
  EXPECT_EQ(fixture.matched(toy_ids(500)), 500u);
}

TEST(PrefixEviction, TheTreeKeepsToItsOwnLimitOfPages) {
  Fixture fixture(40, 10, 5);
  std::vector<ToySequence> running;
  for (int32_t i = 0; i < 4; ++i) {
    running.push_back(fixture.run(toy_ids(4 * kTokensPerPage, 100 * i), SnapshotKind::output));
    EXPECT_LE(fixture.prefixes.pages(), 5u);
    EXPECT_TRUE(fixture.kept);
  }
  EXPECT_EQ(fixture.matched(toy_ids(512, 300)), 512u);
  EXPECT_EQ(fixture.matched(toy_ids(512, 200)), 128u);
  {
    const auto ended = fixture.run(toy_ids(8 * kTokensPerPage, 700), SnapshotKind::output);
  }
  EXPECT_FALSE(fixture.kept);  // its last page found no room
  EXPECT_EQ(fixture.matched(toy_ids(1024, 700)), 5u * kTokensPerPage);
  for (const ToySequence& sequence : running) sequence.expect_exact();
}

TEST(PrefixEviction, SnapshotsGoByKind) {
  const SnapshotKind by_value[] = {SnapshotKind::grid, SnapshotKind::output, SnapshotKind::branch,
                                   SnapshotKind::system};
  Fixture fixture(100, 4);
  // The most valuable is the oldest.
  for (int32_t i = 3; i >= 0; --i) {
    const auto ended = fixture.run(toy_ids(200, 100 * i), by_value[i]);
    EXPECT_TRUE(fixture.kept);
  }
  for (int32_t gone = 0; gone < 3; ++gone) {
    {
      const auto ended = fixture.run(toy_ids(200, 1000 + 10 * gone), SnapshotKind::system);
    }
    EXPECT_TRUE(fixture.kept);
    const PrefixCache::Counters counters = fixture.prefixes.counters();
    EXPECT_EQ(counters.evicted_snapshots, static_cast<uint64_t>(gone) + 1);
    EXPECT_EQ(fixture.resumed(toy_ids(200, 100 * gone)), 0u) << gone;
  }
  EXPECT_EQ(fixture.resumed(toy_ids(200, 300)), 200u);
}

TEST(PrefixEviction, ASnapshotThatSavesMoreTokensStaysLonger) {
  Fixture fixture(200, 2);
  {
    const auto ended = fixture.run(toy_ids(5000), SnapshotKind::output);
  }
  {
    const auto ended = fixture.run(toy_ids(50, 300), SnapshotKind::output);
  }
  {
    const auto ended = fixture.run(toy_ids(1000, 600), SnapshotKind::output);
  }
  EXPECT_EQ(fixture.resumed(toy_ids(50, 300)), 0u);
  EXPECT_EQ(fixture.resumed(toy_ids(5000)), 5000u);
  EXPECT_EQ(fixture.resumed(toy_ids(1000, 600)), 1000u);
}

// What nobody asks for any more makes room in the end, however valuable it was.
TEST(PrefixEviction, OldSystemSnapshotsGiveWayToANewLoad) {
  Fixture fixture(2000, 4);
  for (int32_t i = 0; i < 4; ++i) {
    const auto ended = fixture.run(toy_ids(1000, 100 * i), SnapshotKind::system);
  }
  size_t kept = 0;
  for (int32_t i = 0; i < 60; ++i) {
    {
      const auto ended = fixture.run(toy_ids(130, 1000 + i), SnapshotKind::output);
    }
    kept += fixture.kept ? 1 : 0;
  }
  EXPECT_GT(kept, 4u);
  EXPECT_EQ(fixture.prefixes.snapshot_bytes(), 4 * kToyFrontierBytes);
  EXPECT_EQ(fixture.prefixes.counters().snapshots_refused, 60 - kept);
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(fixture.resumed(toy_ids(1000, 100 * i)), 0u);
}

TEST(PrefixEviction, APreemptedSnapshotStaysUntilItIsTaken) {
  Fixture fixture(200, 2);
  {
    const auto ended = fixture.run(toy_ids(40), SnapshotKind::preempted);
  }
  for (int32_t i = 0; i < 20; ++i) {
    {
      const auto ended = fixture.run(toy_ids(300, 100 + 10 * i), SnapshotKind::system);
    }
    EXPECT_TRUE(fixture.kept);
  }
  ToySequence back = toy_sequence(*fixture.pool, toy_ids(40));
  {
    const auto lease = fixture.lookup(back.ids);
    ASSERT_EQ(lease.resume(), 40u);
    ASSERT_TRUE(fixture.prefixes.restore(lease, back.cache).ok());
  }
  back.expect_exact();
  for (int32_t i = 0; i < 20; ++i) {
    const auto ended = fixture.run(toy_ids(300, 500 + 10 * i), SnapshotKind::system);
  }
  EXPECT_EQ(fixture.resumed(back.ids), 0u);
  fixture.prefixes.check_invariants();
}

TEST(PrefixEviction, PreemptedSnapshotsDoNotOverrunTheBudgetAndCanBeGivenUp) {
  Fixture fixture(100, 2);
  for (int32_t i = 0; i < 3; ++i) {
    {
      const auto ended = fixture.run(toy_ids(200, 100 * i), SnapshotKind::preempted);
    }
    EXPECT_EQ(fixture.kept, i < 2);
  }
  {
    const auto ended = fixture.run(toy_ids(200, 400), SnapshotKind::system);
  }
  EXPECT_FALSE(fixture.kept);
  const auto cancelled = toy_ids(200, 0);
  fixture.prefixes.unpin({.ids = cancelled}, 200);
  fixture.prefixes.unpin({.ids = cancelled}, 100);  // there is none: nothing happens
  {
    const auto ended = fixture.run(toy_ids(200, 400), SnapshotKind::system);
  }
  EXPECT_TRUE(fixture.kept);
  EXPECT_EQ(fixture.resumed(cancelled), 0u);
  // Its page goes: so does the pinned snapshot.
  fixture.prefixes.make_free(100);
  EXPECT_EQ(fixture.prefixes.snapshot_bytes(), 0u);
  fixture.prefixes.check_invariants();
}

// The snapshot of a shared head outlives the branch whose page covered it first.
TEST(PrefixEviction, ASnapshotGoesWithTheLastPageThatCoversIt) {
  for (const Exactness exactness : {Exactness::exact, Exactness::approximate}) {
    Fixture fixture(40, 10);
    fixture.exactness = exactness;
    const auto head = toy_ids(300);
    {
      const auto ended = fixture.run(head, SnapshotKind::system);
    }
    {
      const auto ended = fixture.run(joined(head, toy_ids(20, 2000)));
    }
    {
      const auto ended = fixture.run(joined(head, toy_ids(60, 3000)), SnapshotKind::output);
    }
    EXPECT_EQ(fixture.prefixes.pages(), 4u);
    fixture.prefixes.make_free(37);
    EXPECT_EQ(fixture.prefixes.pages(), 3u);
    EXPECT_EQ(fixture.resumed(joined(head, toy_ids(20, 2000))), 300u);
    EXPECT_EQ(fixture.resumed(joined(head, toy_ids(60, 3000))), 360u);
    fixture.prefixes.make_free(38);
    EXPECT_EQ(fixture.prefixes.snapshot_bytes(), 0u);
    EXPECT_EQ(fixture.matched(head), 256u);
    fixture.prefixes.check_invariants();
  }
}

// Saving what was just computed must not push out what the next request is about to load.
TEST(PrefixEviction, NoLimitTakesWhatALeaseHolds) {
  Fixture fixture(40, 1, 6);
  const auto wanted = toy_ids(4 * kTokensPerPage);
  {
    const auto ended = fixture.run(wanted, SnapshotKind::grid);
  }
  const auto lease = fixture.lookup(wanted);
  for (int32_t i = 1; i < 5; ++i) {
    {
      const auto ended = fixture.run(toy_ids(6 * kTokensPerPage, 100 * i), SnapshotKind::system);
    }
    EXPECT_FALSE(fixture.kept);
    EXPECT_EQ(fixture.prefixes.pages(), 6u);
    fixture.prefixes.make_free(40);
  }
  EXPECT_EQ(fixture.resumed(wanted), wanted.size());
  ToySequence resumed = toy_sequence(*fixture.pool, wanted);
  ASSERT_TRUE(fixture.prefixes.restore(lease, resumed.cache).ok());
  resumed.expect_exact();
}

TEST(PrefixEviction, WhatIsWorthLeastIsNotKeptAtTheCostOfMore) {
  Fixture fixture(100, 2);
  for (int32_t i = 0; i < 2; ++i) {
    const auto ended = fixture.run(toy_ids(1000, 100 * i), SnapshotKind::system);
  }
  {
    const auto ended = fixture.run(toy_ids(300, 500), SnapshotKind::grid);
  }
  EXPECT_FALSE(fixture.kept);
  EXPECT_EQ(fixture.prefixes.counters().snapshots_refused, 1u);
  EXPECT_EQ(fixture.resumed(toy_ids(1000, 0)), 1000u);
  EXPECT_EQ(fixture.resumed(toy_ids(1000, 100)), 1000u);
}

TEST(PrefixEviction, WithoutABudgetNoSnapshotIsKept) {
  const auto pool = toy_pool(10, true);
  PrefixCache prefixes(*pool, {.max_snapshot_bytes = kToyFrontierBytes - 1});
  ToySequence sequence = toy_sequence(*pool, toy_ids(200));
  ASSERT_TRUE(sequence.compute(200));
  EXPECT_FALSE(prefixes.snapshot(sequence.key(), sequence.cache, 200, {}, SnapshotKind::preempted));
  EXPECT_EQ(prefixes.counters().snapshots_refused, 1u);
  const auto lease = prefixes.lookup(sequence.key(), 200);
  EXPECT_EQ(lease.matched(), 200u);
  EXPECT_EQ(lease.resume(), 0u);
  EXPECT_EQ(lease.miss(), MissReason::no_snapshot);
}

}  // namespace
}  // namespace deepinfer::cache
