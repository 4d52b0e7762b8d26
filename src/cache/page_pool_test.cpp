#include "cache/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace deepinfer::cache {
namespace {

using ::testing::HasSubstr;

CacheLayout two_streams() {
  return {.growing = {{"layer 0", 256}, {"layer 1", 512}},
          .frontier = {{"ring", 96}, {"tail", 32}}};
}

std::unique_ptr<PagePool> make_pool(size_t pages) {
  auto pool = PagePool::create(two_streams(), pages);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

TEST(CacheLayout, StreamsFollowEachOtherInAPage) {
  const CacheLayout layout = two_streams();
  EXPECT_EQ(layout.page_offset(0), 0u);
  EXPECT_EQ(layout.page_offset(1), 256u);
  EXPECT_EQ(layout.page_bytes(), 768u);
  EXPECT_EQ(layout.frontier_bytes(), 128u);
}

TEST(CacheLayout, PagesForRoundsUp) {
  EXPECT_EQ(pages_for(0), 0u);
  EXPECT_EQ(pages_for(1), 1u);
  EXPECT_EQ(pages_for(128), 1u);
  EXPECT_EQ(pages_for(129), 2u);
}

TEST(PagePool, RefusesWhatItCannotHold) {
  CacheLayout odd = two_streams();
  odd.growing[1].bytes_per_page = 100;
  const auto unaligned = PagePool::create(odd, 4);
  ASSERT_FALSE(unaligned.ok());
  EXPECT_THAT(unaligned.error().text(), HasSubstr("layer 1"));
  EXPECT_THAT(unaligned.error().text(), HasSubstr("100"));
  EXPECT_FALSE(PagePool::create({}, 4).ok());
  EXPECT_FALSE(PagePool::create(two_streams(), 0).ok());

  CacheLayout huge = two_streams();
  huge.growing[0].bytes_per_page = size_t{1} << 50;
  const auto exhausted = PagePool::create(huge, 1000);
  ASSERT_FALSE(exhausted.ok());
  EXPECT_EQ(exhausted.error().kind, ErrorKind::exhausted);
  EXPECT_THAT(exhausted.error().text(), HasSubstr("1000 pages"));
  EXPECT_FALSE(PagePool::create(huge, 100'000'000).ok());
}

TEST(PagePool, HandsOutEveryPageOnceAndThenRefuses) {
  auto pool = make_pool(3);
  std::set<PageId> pages;
  for (int i = 0; i < 3; ++i) pages.insert(pool->allocate().value());
  EXPECT_EQ(pages.size(), 3u);
  const auto fourth = pool->allocate();
  ASSERT_FALSE(fourth.ok());
  EXPECT_EQ(fourth.error().kind, ErrorKind::exhausted);
  pool->check_invariants();
  for (PageId page : pages) pool->release(page);
  EXPECT_EQ(pool->free_count(), 3u);
  pool->check_invariants();
}

TEST(PagePoolDeath, ReleaseTwiceIsABug) {
  auto pool = make_pool(2);
  const PageId page = pool->allocate().value();
  pool->release(page);
  EXPECT_DEATH(pool->release(page), "released twice");
}

TEST(PagePool, PagesAndStreamsDoNotOverlap) {
  auto pool = make_pool(4);
  SequenceCache first(pool.get()), second(pool.get());
  ASSERT_TRUE(first.reserve(2 * kTokensPerPage).ok());
  ASSERT_TRUE(second.reserve(2 * kTokensPerPage).ok());
  const CacheLayout layout = two_streams();
  int mark = 1;
  for (const SequenceCache* sequence : {&first, &second}) {
    for (size_t page = 0; page < 2; ++page) {
      for (size_t stream = 0; stream < 2; ++stream) {
        std::memset(sequence->page(page, stream), mark++, layout.growing[stream].bytes_per_page);
      }
    }
  }
  mark = 1;
  for (const SequenceCache* sequence : {&first, &second}) {
    for (size_t page = 0; page < 2; ++page) {
      for (size_t stream = 0; stream < 2; ++stream) {
        const std::byte* bytes = sequence->page(page, stream);
        for (size_t i = 0; i < layout.growing[stream].bytes_per_page; ++i) {
          ASSERT_EQ(static_cast<int>(bytes[i]), mark);
        }
        ++mark;
      }
    }
  }
}

TEST(SequenceCache, ReserveThatFailsChangesNothing) {
  auto pool = make_pool(3);
  SequenceCache sequence(pool.get());
  ASSERT_TRUE(sequence.reserve(100).ok());
  const auto refused = sequence.reserve(5 * kTokensPerPage);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().text(), HasSubstr("4 pages needed, 2 of 3 are free"));
  EXPECT_EQ(sequence.page_count(), 1u);
  EXPECT_EQ(pool->free_count(), 2u);
}

TEST(SequenceCache, LengthGoesBackWithoutGivingPagesAway) {
  auto pool = make_pool(3);
  SequenceCache sequence(pool.get());
  ASSERT_TRUE(sequence.reserve(200).ok());
  sequence.set_length(200);
  sequence.set_length(120);
  EXPECT_EQ(sequence.length(), 120u);
  EXPECT_EQ(sequence.page_count(), 2u);
  EXPECT_NE(sequence.frontier(), nullptr);
}

TEST(SequenceCacheDeath, LengthBeyondPagesIsABug) {
  auto pool = make_pool(3);
  SequenceCache sequence(pool.get());
  EXPECT_DEATH(sequence.set_length(1), "beyond the reserved pages");
}

TEST(SequenceCache, MoveCarriesThePagesAndDestructionReturnsThem) {
  auto pool = make_pool(4);
  {
    SequenceCache first(pool.get());
    ASSERT_TRUE(first.reserve(300).ok());
    first.set_length(300);
    SequenceCache second(std::move(first));
    EXPECT_EQ(second.page_count(), 3u);
    EXPECT_EQ(second.length(), 300u);
    SequenceCache third(pool.get());
    ASSERT_TRUE(third.reserve(1).ok());
    third = std::move(second);
    EXPECT_EQ(pool->free_count(), 1u);
    pool->check_invariants();
  }
  EXPECT_EQ(pool->free_count(), 4u);
}

// One byte a token in stream 1 tells which sequence wrote it.
void write(const SequenceCache& sequence, uint64_t from, uint64_t to, int value) {
  for (uint64_t i = from; i < to; ++i) {
    sequence.page(i / kTokensPerPage, 1)[i % kTokensPerPage] = static_cast<std::byte>(value);
  }
}

std::vector<int> read(const SequenceCache& sequence) {
  std::vector<int> values;
  for (uint64_t i = 0; i < sequence.length(); ++i) {
    values.push_back(static_cast<int>(sequence.page(i / kTokensPerPage, 1)[i % kTokensPerPage]));
  }
  return values;
}

TEST(PagePool, APageIsFreeWhenItsLastReferenceGoes) {
  auto pool = make_pool(2);
  std::vector<std::pair<PageId, bool>> seen;
  pool->set_observer([&](PageId page, bool shared) { seen.emplace_back(page, shared); });
  const PageId page = pool->allocate().value();
  EXPECT_EQ(pool->references(page), 1u);
  pool->retain(page);
  pool->retain(page);
  EXPECT_EQ(pool->references(page), 3u);
  pool->release(page);
  EXPECT_EQ(seen.size(), 1u);
  pool->release(page);
  EXPECT_EQ(pool->free_count(), 1u);
  pool->release(page);
  EXPECT_EQ(pool->free_count(), 2u);
  EXPECT_EQ(pool->references(page), 0u);
  EXPECT_EQ(seen, (std::vector<std::pair<PageId, bool>>{{page, true}, {page, false}}));
  pool->check_invariants();
}

TEST(PagePoolDeath, AReferenceToAFreePageIsABug) {
  auto pool = make_pool(2);
  EXPECT_DEATH(pool->retain(PageId{0}), "free page");
  EXPECT_DEATH(pool->retain(PageId{2}), "outside the pool");
}

TEST(SequenceCache, AForkSharesCompletePagesAndGoesItsOwnWay) {
  for (const uint64_t length : {0, 1, 127, 128, 129, 256, 300}) {
    auto pool = make_pool(10);
    SequenceCache parent(pool.get());
    ASSERT_TRUE(parent.reserve(length + 10).ok());
    parent.set_length(length);
    write(parent, 0, length, 7);
    std::memset(parent.frontier(), 3, 128);
    auto forked = parent.fork();
    ASSERT_TRUE(forked.ok());
    SequenceCache child = std::move(forked).value();
    EXPECT_EQ(child.length(), length);
    EXPECT_EQ(child.page_count(), pages_for(length));
    for (size_t i = 0; i < child.page_count(); ++i) {
      const bool complete = (i + 1) * kTokensPerPage <= length;
      EXPECT_EQ(child.pages()[i] == parent.pages()[i], complete) << length << ", page " << i;
      EXPECT_EQ(pool->references(child.pages()[i]), complete ? 2u : 1u);
    }
    ASSERT_TRUE(child.reserve(length + 10).ok());
    child.set_length(length + 10);
    write(child, length, length + 10, 9);
    write(parent, length, length + 10, 8);
    parent.set_length(length + 10);
    std::memset(child.frontier(), 4, 128);
    std::vector<int> want(length, 7);
    want.insert(want.end(), 10, 9);
    EXPECT_EQ(read(child), want);
    std::fill(want.end() - 10, want.end(), 8);
    EXPECT_EQ(read(parent), want);
    EXPECT_EQ(parent.frontier()[127], std::byte{3});
    {
      const SequenceCache ended(std::move(parent));
    }
    std::fill(want.end() - 10, want.end(), 9);
    EXPECT_EQ(read(child), want);
    pool->check_invariants();
    {
      const SequenceCache ended(std::move(child));
    }
    EXPECT_EQ(pool->free_count(), 10u);
  }
}

TEST(SequenceCache, AdoptionThatFindsNoPageForItsCopyChangesNothing) {
  auto pool = make_pool(2);
  SequenceCache parent(pool.get());
  ASSERT_TRUE(parent.reserve(200).ok());
  parent.set_length(200);
  EXPECT_FALSE(parent.fork().ok());
  SequenceCache child(pool.get());
  const auto refused = child.adopt(parent.pages(), 200);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  EXPECT_EQ(child.page_count(), 0u);
  EXPECT_EQ(child.length(), 0u);
  EXPECT_EQ(pool->references(parent.pages()[0]), 1u);
  ASSERT_TRUE(child.adopt(parent.pages(), 128).ok());
  EXPECT_EQ(child.length(), 128u);
}

TEST(PagePool, InvariantsHoldUnderRandomUse) {
  auto pool = make_pool(17);
  std::mt19937 random(20240607);
  std::vector<SequenceCache> live;
  std::vector<uint64_t> tokens;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t pick = random() % 9;
    if (live.empty() || pick == 0) {
      live.emplace_back(pool.get());
      tokens.push_back(0);
    } else if (pick == 1) {
      const size_t victim = random() % live.size();
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(victim));
    } else if (pick == 2) {
      const size_t target = random() % live.size();
      if (auto forked = live[target].fork(); forked.ok()) {
        live.push_back(std::move(forked).value());
        tokens.push_back(tokens[target]);
      }
    } else {
      const size_t target = random() % live.size();
      const uint64_t wanted = tokens[target] + random() % 200;
      if (live[target].reserve(wanted).ok()) {
        live[target].set_length(wanted);
        tokens[target] = wanted;
      }
    }
    pool->check_invariants();
    std::vector<uint32_t> holders(pool->page_count(), 0);
    for (size_t i = 0; i < live.size(); ++i) {
      ASSERT_GE(live[i].page_count(), pages_for(tokens[i])) << "round " << round;
      for (PageId page : live[i].pages()) ++holders[static_cast<size_t>(page)];
    }
    for (size_t page = 0; page < holders.size(); ++page) {
      ASSERT_EQ(holders[page], pool->references(PageId{static_cast<uint32_t>(page)}))
          << "round " << round;
    }
  }
}

}  // namespace
}  // namespace deepinfer::cache
