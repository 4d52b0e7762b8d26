#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "cache/page_text.h"
#include "cache/toy_sequence.h"

namespace deepinfer::cache {
namespace {

constexpr uint64_t kBudget = 100 * kToyFrontierBytes;

struct Fixture {
  explicit Fixture(bool frontier, size_t pages = 200, PrefixCache::Options options = {})
      : pool(toy_pool(pages, frontier)) {
    if (options.max_snapshot_bytes == 0) options.max_snapshot_bytes = kBudget;
    prefixes = std::make_unique<PrefixCache>(*pool, options);
  }
  ToySequence make(std::vector<int32_t> ids, uint64_t salt = 0) {
    return toy_sequence(*pool, std::move(ids), salt);
  }
  // Computes, and makes known, a sequence that then ends; snapshots at the positions.
  void know(std::vector<int32_t> ids, std::initializer_list<uint64_t> snapshots = {},
            uint64_t salt = 0) {
    ToySequence sequence = make(std::move(ids), salt);
    for (const uint64_t position : snapshots) {
      ASSERT_TRUE(sequence.compute(position));
      ASSERT_TRUE(
          prefixes->snapshot(sequence.key(), sequence.cache, position, {}, SnapshotKind::prompt));
    }
    ASSERT_TRUE(sequence.compute(sequence.ids.size()));
    prefixes->insert(sequence.key(), sequence.cache, sequence.ids.size());
    prefixes->check_invariants();
  }
  PrefixCache::Lease lookup(const ToySequence& sequence, uint64_t limit,
                            Exactness wanted = Exactness::exact) {
    return prefixes->lookup(sequence.key(), limit, wanted);
  }
  // A second sequence that resumes, computes the rest and is exactly what the first was.
  uint64_t resume(ToySequence& sequence) {
    const auto lease = lookup(sequence, sequence.ids.size() - 1);
    EXPECT_TRUE(prefixes->restore(lease, sequence.cache).ok());
    EXPECT_EQ(sequence.cache.length(), lease.resume());
    sequence.expect_exact("restored");
    EXPECT_TRUE(sequence.compute(sequence.ids.size()));
    sequence.expect_exact("continued");
    return lease.resume();
  }
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<PrefixCache> prefixes;
};

std::vector<int32_t> with_tail(std::vector<int32_t> head, size_t kept, size_t more, int32_t first) {
  head.resize(kept);
  for (int32_t id : toy_ids(more, first)) head.push_back(id);
  return head;
}

TEST(PrefixCache, WithoutAFrontierEveryPositionIsAResumePoint) {
  for (const size_t position : {1, 127, 128, 129, 255, 256, 257, 383, 384, 385}) {
    Fixture fixture(false);
    fixture.know(toy_ids(500));
    ToySequence edited = fixture.make(with_tail(toy_ids(500), position, 60, 2000));
    EXPECT_EQ(fixture.resume(edited), position);
    // The very prompt again: all but the token whose logits are needed.
    ToySequence again = fixture.make(toy_ids(position));
    EXPECT_EQ(fixture.resume(again), position - 1);
    fixture.prefixes->check_invariants();
  }
}

TEST(PrefixCache, WithAFrontierWorkResumesAtTheDeepestSnapshot) {
  for (const uint64_t position : {1, 127, 128, 129, 255, 256, 257, 383, 384, 385}) {
    Fixture fixture(true);
    fixture.know(toy_ids(500), {position});
    ToySequence edited =
        fixture.make(with_tail(toy_ids(500), static_cast<size_t>(position) + 9, 60, 2000));
    {
      const auto lease = fixture.lookup(edited, edited.ids.size() - 1);
      EXPECT_EQ(lease.matched(), position + 9);
      EXPECT_EQ(lease.resume(), position);
      EXPECT_EQ(lease.miss(), MissReason::no_snapshot);
    }
    EXPECT_EQ(fixture.resume(edited), position);
    // Not above the limit.
    EXPECT_EQ(fixture.lookup(edited, position - 1).resume(), 0u);
    EXPECT_EQ(fixture.lookup(edited, position).resume(), position);
    // The state at a position is of use to what is the same up to there, no less.
    const ToySequence other =
        fixture.make(with_tail(toy_ids(500), static_cast<size_t>(position) - 1, 60, 2000));
    EXPECT_EQ(fixture.lookup(other, other.ids.size()).matched(), position - 1);
    EXPECT_EQ(fixture.lookup(other, other.ids.size()).resume(), 0u);
  }
}

TEST(PrefixCache, SeveralSnapshotsOfOneNodeAndTheReasonOfAMiss) {
  Fixture fixture(true);
  fixture.know(toy_ids(300), {10, 100, 127, 130, 131, 250});
  const ToySequence same = fixture.make(toy_ids(300));
  const std::pair<uint64_t, uint64_t> limits[] = {{9, 0},     {10, 10},   {99, 10},   {126, 100},
                                                  {129, 127}, {130, 130}, {249, 131}, {299, 250}};
  for (const auto& [limit, want] : limits) {
    const auto lease = fixture.lookup(same, limit);
    EXPECT_EQ(lease.resume(), want) << limit;
    EXPECT_EQ(lease.matched(), limit);
    EXPECT_EQ(lease.miss(), want == limit ? MissReason::none : MissReason::no_snapshot);
  }
  ToySequence longer = fixture.make(with_tail(toy_ids(300), 250, 80, 3000));
  EXPECT_EQ(fixture.lookup(longer, 329).miss(), MissReason::unknown);
  EXPECT_EQ(PrefixCache::Lease().miss(), MissReason::disabled);
  EXPECT_EQ(miss_reason_name(MissReason::no_snapshot), "no snapshot");
}

// The snapshot is of the shared head; the page that the first request put there is not needed.
TEST(PrefixCache, ASnapshotServesEveryBranchThatSharesItsTokens) {
  Fixture fixture(true);
  fixture.know(with_tail(toy_ids(300), 300, 40, 2000), {300});
  for (int32_t branch = 1; branch < 6; ++branch) {
    ToySequence next = fixture.make(with_tail(toy_ids(300), 300, 80, 2000 + branch));
    EXPECT_EQ(fixture.resume(next), 300u);
    fixture.prefixes->insert(next.key(), next.cache, next.ids.size());
    fixture.prefixes->check_invariants();
  }
  // A branch that agrees a little longer with one of them finds it too.
  ToySequence last = fixture.make(with_tail(with_tail(toy_ids(300), 300, 80, 2003), 310, 9, 5000));
  EXPECT_EQ(fixture.lookup(last, 318).matched(), 310u);
  EXPECT_EQ(fixture.resume(last), 300u);
}

// Thinking that the client strips, an edited last turn: the last common resume point.
TEST(PrefixCache, AShorterOrEditedPromptResumesAtTheLastCommonPoint) {
  Fixture fixture(true);
  fixture.know(toy_ids(700), {120, 400, 699, 700});
  ToySequence retry = fixture.make(toy_ids(700));
  EXPECT_EQ(fixture.resume(retry), 699u);
  ToySequence stripped = fixture.make(with_tail(toy_ids(700), 552, 30, 4000));
  EXPECT_EQ(fixture.resume(stripped), 400u);
  ToySequence next_turn = fixture.make(with_tail(toy_ids(700), 700, 30, 4000));
  EXPECT_EQ(fixture.resume(next_turn), 700u);
  ToySequence other = fixture.make(toy_ids(700, 5));
  EXPECT_EQ(fixture.resume(other), 0u);
}

// A clock or a billing line at the head: the first request of each version pays, not the others.
TEST(PrefixCache, APromptWhoseHeadChangedGetsItsOwnResumePoints) {
  Fixture fixture(true);
  auto ids = toy_ids(600);
  fixture.know(ids, {256, 599});
  for (int32_t version = 0; version < 3; ++version) {
    ids[20] = 7000 + version;
    {
      ToySequence first = fixture.make(ids);
      const auto lease = fixture.lookup(first, 599);
      EXPECT_EQ(lease.matched(), 20u);
      EXPECT_EQ(lease.resume(), 0u);
    }
    fixture.know(ids, {256, 599});
    ToySequence second = fixture.make(ids);
    EXPECT_EQ(fixture.resume(second), 599u);
  }
}

TEST(PrefixCache, SaltsShareNothing) {
  Fixture fixture(false);
  fixture.know(toy_ids(300), {}, 7);
  EXPECT_EQ(fixture.lookup(fixture.make(toy_ids(300), 7), 300).matched(), 300u);
  EXPECT_EQ(fixture.lookup(fixture.make(toy_ids(300), 8), 300).matched(), 0u);
  fixture.know(toy_ids(300), {}, 8);
  EXPECT_EQ(fixture.prefixes->pages(), 6u);
  ToySequence mine = fixture.make(toy_ids(300), 8);
  EXPECT_EQ(fixture.resume(mine), 299u);  // and its bytes are those of its own salt
}

TEST(PrefixCache, ImagesAreComparedByContent) {
  for (const size_t start : {5, 100, 128, 250}) {
    Fixture fixture(false);
    ToySequence first = fixture.make(std::vector<int32_t>(400, 3));
    first.contents = {{start, 100, {11, 1}}};
    ASSERT_TRUE(first.compute(400));
    fixture.prefixes->insert(first.key(), first.cache, 400);
    ToySequence same = fixture.make(first.ids);
    same.contents = first.contents;
    EXPECT_EQ(fixture.resume(same), 399u);
    ToySequence other = fixture.make(first.ids);
    other.contents = {{start, 100, {12, 1}}};
    EXPECT_EQ(fixture.resume(other), start);
    fixture.prefixes->insert(other.key(), other.cache, 400);
    ToySequence none = fixture.make(first.ids);
    EXPECT_EQ(fixture.resume(none), start);
    ToySequence moved = fixture.make(first.ids);
    moved.contents = {{start + 1, 100, {11, 1}}};
    EXPECT_EQ(fixture.resume(moved), start);
    fixture.prefixes->check_invariants();
  }
}

Hash128 all_alike(const Hash128&, const PageView&) { return {1, 1}; }
Hash128 by_first_id(const Hash128& parent, const PageView& page) {
  return {parent.low + static_cast<uint64_t>(page.ids[0] % 3), 1};
}

TEST(PrefixCache, ACollisionIsAMissAndNeverAWrongAnswer) {
  for (auto* hasher : {all_alike, by_first_id}) {
    Fixture fixture(true, 200, {.hasher = hasher});
    for (int32_t i = 0; i < 12; ++i) {
      ToySequence sequence = fixture.make(toy_ids(400, 10 * i));
      fixture.resume(sequence);
      for (const uint64_t at : {200, 300}) {
        ToySequence piece = fixture.make(sequence.ids);
        ASSERT_TRUE(piece.compute(at));
        fixture.prefixes->snapshot(piece.key(), piece.cache, at, {}, SnapshotKind::grid);
      }
      fixture.prefixes->insert(sequence.key(), sequence.cache, 400);
      fixture.prefixes->check_invariants();
    }
    EXPECT_GT(fixture.prefixes->counters().snapshots_refused, 0u);
    for (int32_t i = 0; i < 12; ++i) {
      ToySequence again = fixture.make(with_tail(toy_ids(400, 10 * i), 350, 50, 9000));
      fixture.resume(again);
    }
  }
}

TEST(PrefixCache, TheWriterGoesOnBehindWhatOthersRead) {
  Fixture fixture(false);
  ToySequence writer = fixture.make(toy_ids(400));
  ASSERT_TRUE(writer.compute(200));
  fixture.prefixes->insert(writer.key(), writer.cache, 200);
  EXPECT_EQ(fixture.pool->references(writer.cache.pages()[1]), 2u);
  const auto lease = fixture.lookup(writer, 200);
  ToySequence reader = fixture.make(with_tail(toy_ids(400), 190, 50, 5000));
  EXPECT_EQ(fixture.resume(reader), 190u);
  // A draft that is thrown away, then more tokens.
  ToySequence draft{.cache = std::move(writer.cache), .ids = toy_ids(400, 77)};
  ASSERT_TRUE(draft.compute(220));
  draft.set_length(200);
  writer.cache = std::move(draft.cache);
  EXPECT_EQ(fixture.lookup(fixture.make(toy_ids(400, 77)), 210).matched(), 0u);
  ASSERT_TRUE(writer.compute(400));
  reader.expect_exact("reader");
  ToySequence late = fixture.make(toy_ids(400));
  ASSERT_TRUE(fixture.prefixes->restore(lease, late.cache).ok());
  late.expect_exact("lease from before");
  // The node of the partial page grew in place: the same page, nothing more is held.
  fixture.prefixes->insert(writer.key(), writer.cache, 400);
  EXPECT_EQ(fixture.prefixes->pages(), 4u);
  EXPECT_EQ(fixture.lookup(writer, 400).matched(), 400u);
  fixture.prefixes->check_invariants();
}

TEST(PrefixCache, APartialPageIsReplacedByAFullerOne) {
  Fixture fixture(true);
  fixture.know(toy_ids(150), {140, 150});
  fixture.know(toy_ids(200), {200});
  EXPECT_EQ(fixture.prefixes->pages(), 2u);
  fixture.know(toy_ids(180), {180});
  EXPECT_EQ(fixture.prefixes->pages(), 2u);
  const ToySequence probe = fixture.make(toy_ids(250));
  const std::pair<uint64_t, uint64_t> limits[] = {{145, 140}, {170, 150}, {190, 180}, {250, 200}};
  for (const auto& [limit, want] : limits) {
    const auto lease = fixture.lookup(probe, limit);
    EXPECT_EQ(lease.resume(), want);
    ToySequence resumed = fixture.make(toy_ids(250));
    ASSERT_TRUE(fixture.prefixes->restore(lease, resumed.cache).ok());
    resumed.expect_exact();
  }
  fixture.know(toy_ids(256));
  EXPECT_EQ(fixture.prefixes->pages(), 2u);
  EXPECT_EQ(fixture.lookup(probe, 250).matched(), 250u);
}

TEST(PrefixCache, ApproximateEntriesAreFoundOnlyWhenAllowedAndGiveWayToExactOnes) {
  Fixture fixture(true);
  ToySequence replayed = fixture.make(toy_ids(400));
  replayed.noise = 99;
  replayed.start = {.window = 77};
  ASSERT_TRUE(replayed.compute(350));
  ASSERT_TRUE(fixture.prefixes->snapshot(replayed.key(), replayed.cache, 350, replayed.start,
                                         SnapshotKind::prompt, Exactness::approximate));
  fixture.prefixes->check_invariants();
  EXPECT_EQ(fixture.lookup(replayed, 400).matched(), 0u);
  {
    const auto lease = fixture.lookup(replayed, 400, Exactness::approximate);
    EXPECT_EQ(lease.resume(), 350u);
    EXPECT_EQ(lease.start().window, 77u);
    EXPECT_EQ(lease.exactness(), Exactness::approximate);
  }
  // An exact head: known beside it, and what is approximate is never given as exact.
  fixture.know(toy_ids(300), {300});
  ToySequence exact = fixture.make(toy_ids(400));
  EXPECT_EQ(fixture.resume(exact), 300u);
  EXPECT_EQ(fixture.lookup(exact, 400, Exactness::approximate).matched(), 350u);
  EXPECT_EQ(fixture.lookup(exact, 300, Exactness::approximate).exactness(), Exactness::exact);
  // Approximate entries never take the place of exact ones.
  fixture.prefixes->insert(replayed.key(), replayed.cache, 350, Exactness::approximate);
  ToySequence again = fixture.make(toy_ids(400));
  EXPECT_EQ(fixture.resume(again), 300u);
  // Exact ones take all of it.
  fixture.prefixes->snapshot(exact.key(), exact.cache, 400, {}, SnapshotKind::prompt);
  fixture.prefixes->check_invariants();
  EXPECT_EQ(fixture.prefixes->pages(), 4u);
  const auto both = fixture.lookup(exact, 400, Exactness::approximate);
  EXPECT_EQ(both.resume(), 400u);
  EXPECT_EQ(both.exactness(), Exactness::exact);
}

TEST(PrefixCache, AnExactSnapshotReplacesTheApproximateOneOfItsPosition) {
  Fixture fixture(true);
  ToySequence replayed = fixture.make(toy_ids(300));
  replayed.noise = 99;
  ASSERT_TRUE(replayed.compute(300));
  ASSERT_TRUE(fixture.prefixes->snapshot(replayed.key(), replayed.cache, 300, {},
                                         SnapshotKind::prompt, Exactness::approximate));
  const auto held = fixture.lookup(replayed, 300, Exactness::approximate);
  fixture.know(toy_ids(300), {300});
  EXPECT_EQ(fixture.prefixes->snapshot_bytes(), kToyFrontierBytes);
  // The lease keeps what it found.
  ToySequence resumed = fixture.make(toy_ids(300));
  ASSERT_TRUE(fixture.prefixes->restore(held, resumed.cache).ok());
  EXPECT_EQ(resumed.entry(299), replayed.entry(299));
  EXPECT_EQ(resumed.frontier(), replayed.frontier());
}

TEST(PrefixCache, EntriesAloneGoAsFarAsTheMatch) {
  Fixture fixture(true);
  fixture.know(toy_ids(300), {100});
  ToySequence sequence = fixture.make(toy_ids(400));
  const auto lease = fixture.lookup(sequence, 399);
  EXPECT_EQ(lease.resume(), 100u);
  ASSERT_TRUE(fixture.prefixes->restore_entries(lease, sequence.cache).ok());
  EXPECT_EQ(sequence.cache.length(), 300u);
  uint64_t state = 0;
  for (uint64_t p = 0; p < 300; ++p) {
    state = ToySequence::next(state, sequence.token(p));
    ASSERT_EQ(sequence.entry(p), state);
  }
}

TEST(PrefixCache, RestoreWithoutAPageForTheCopyLeavesTheCacheEmpty) {
  Fixture fixture(false, 3);
  fixture.know(toy_ids(300));
  ToySequence sequence = fixture.make(toy_ids(300));
  const auto lease = fixture.lookup(sequence, 299);
  const auto refused = fixture.prefixes->restore(lease, sequence.cache);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  EXPECT_EQ(sequence.cache.page_count(), 0u);
  EXPECT_EQ(fixture.prefixes->counters().tokens_resumed, 0u);
  const auto boundary = fixture.lookup(sequence, 256);
  EXPECT_TRUE(fixture.prefixes->restore(boundary, sequence.cache).ok());
  EXPECT_EQ(fixture.prefixes->counters().tokens_resumed, 256u);
}

TEST(PrefixCache, ASharedPrefixGivesHits) {
  Fixture fixture(true);
  fixture.know(toy_ids(300), {256});
  for (int32_t i = 0; i < 3; ++i) {
    ToySequence next = fixture.make(with_tail(toy_ids(300), 280, 40, 2000 + i));
    fixture.resume(next);
  }
  const auto& counters = fixture.prefixes->counters();
  EXPECT_EQ(counters.lookups, 3u);
  EXPECT_EQ(counters.tokens_asked, 3u * 319);
  EXPECT_EQ(counters.tokens_matched, 3u * 280);
  EXPECT_EQ(counters.tokens_resumed, 3u * 256);
  EXPECT_EQ(counters.restores, 3u);
  EXPECT_EQ(counters.snapshots, 1u);
}

TEST(PrefixCache, NothingIsFoundOfAnEmptyKeyOrCache) {
  Fixture fixture(true);
  const ToySequence empty = fixture.make({});
  EXPECT_EQ(fixture.lookup(empty, 0).resume(), 0u);
  fixture.prefixes->insert(empty.key(), empty.cache, 0);
  EXPECT_FALSE(fixture.prefixes->snapshot(empty.key(), empty.cache, 0, {}, SnapshotKind::grid));
  EXPECT_EQ(fixture.prefixes->pages(), 0u);
  fixture.prefixes->check_invariants();
}

TEST(PrefixCacheDeath, BugsOfTheCaller) {
  Fixture fixture(true);
  ToySequence sequence = fixture.make(toy_ids(100));
  ASSERT_TRUE(sequence.compute(50));
  EXPECT_DEATH(fixture.prefixes->insert(sequence.key(), sequence.cache, 60), "not computed");
  EXPECT_DEATH(fixture.lookup(sequence, 101), "limit beyond the ids");
  EXPECT_DEATH(
      {
        const auto lease = fixture.lookup(sequence, 0);
        fixture.prefixes.reset();
      },
      "a lease outlives");
}

}  // namespace
}  // namespace deepinfer::cache
