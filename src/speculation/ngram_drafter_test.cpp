#include "speculation/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace deepinfer::speculation {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> propose(NgramDrafter& drafter, uint64_t sequence,
                             const std::vector<int32_t>& ids, size_t most = 5,
                             Draft* out = nullptr) {
  Draft draft;
  DraftTask task = {.sequence = sequence, .ids = ids, .most = most, .draft = &draft};
  EXPECT_TRUE(drafter.draft({&task, 1}).ok());
  EXPECT_EQ(draft.ids.size(), draft.confidences.size());
  EXPECT_TRUE(draft.log_probabilities.empty());
  if (out != nullptr) *out = draft;
  return draft.ids;
}

TEST(NgramDrafter, ProposesWhatFollowedTheTimeBefore) {
  NgramDrafter drafter(5);
  EXPECT_THAT(propose(drafter, 1, {7, 8, 9, 10, 11, 12, 7, 8}), ElementsAre(9, 10, 11, 12, 7));
  EXPECT_THAT(propose(drafter, 2, {7, 8, 9, 10, 11, 12, 7, 8}, 2), ElementsAre(9, 10));
}

TEST(NgramDrafter, ProposesNothingWhereNothingOccurredBefore) {
  NgramDrafter drafter(5);
  EXPECT_THAT(propose(drafter, 1, {}), IsEmpty());
  EXPECT_THAT(propose(drafter, 1, {1}), IsEmpty());
  EXPECT_THAT(propose(drafter, 1, {1, 2, 3, 4, 5}), IsEmpty());
  EXPECT_THAT(propose(drafter, 1, {1, 2, 3, 4, 5, 9, 3}), IsEmpty());  // one id is too few
  EXPECT_THAT(propose(drafter, 1, {1, 2, 3, 1, 2}, 0), IsEmpty());
}

TEST(NgramDrafter, TheLongestSuffixWinsThenTheMostRecent) {
  NgramDrafter drafter(1);
  // 1 2 3 4 was followed by 50, later 3 4 by 60.
  EXPECT_THAT(propose(drafter, 1, {1, 2, 3, 4, 50, 9, 3, 4, 60, 1, 2, 3, 4}), ElementsAre(50));
  EXPECT_THAT(propose(drafter, 2, {1, 2, 3, 4, 50, 1, 2, 3, 4, 60, 1, 2, 3, 4}), ElementsAre(60));
}

TEST(NgramDrafter, ALoopGoesOnAsALoop) {
  NgramDrafter drafter(7);
  EXPECT_THAT(propose(drafter, 1, {4, 4, 4}, 7), ElementsAre(4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(propose(drafter, 2, {9, 1, 2, 3, 1, 2, 3, 1}, 7), ElementsAre(2, 3, 1, 2, 3, 1, 2));
}

// The definition, by looking everywhere.
std::vector<int32_t> plain_proposal(const std::vector<int32_t>& ids, size_t most) {
  for (size_t length = NgramDrafter::kLongest; length >= NgramDrafter::kShortest; --length) {
    for (size_t end = ids.size() - 1; end >= length && ids.size() > length; --end) {
      if (!std::equal(ids.end() - static_cast<std::ptrdiff_t>(length), ids.end(),
                      ids.begin() + static_cast<std::ptrdiff_t>(end - length))) {
        continue;
      }
      std::vector<int32_t> all = ids;
      for (size_t k = 0; k < most; ++k) all.push_back(all[end + k]);
      return {all.begin() + static_cast<std::ptrdiff_t>(ids.size()), all.end()};
    }
  }
  return {};
}

// Text of several lengths, committed in pieces, rows of several sequences mixed.
TEST(NgramDrafter, EqualsASearchThroughEverything) {
  std::mt19937 random(12);
  NgramDrafter drafter(4);
  std::vector<std::vector<int32_t>> texts(3);
  int proposals = 0, missed = 0, steps = 0;
  for (; steps < 3000; ++steps) {
    const size_t sequence = random() % texts.size();
    std::vector<int32_t>& ids = texts[sequence];
    const size_t count = 1 + random() % 4;
    const int32_t alphabet = sequence == 0 ? 6 : 40;
    for (size_t i = 0; i < count; ++i) {
      ids.push_back(static_cast<int32_t>(random()) % alphabet);
    }
    if (random() % 3 == 0) drafter.committed(sequence, ids);
    const std::vector<int32_t> expected = plain_proposal(ids, 4);
    const std::vector<int32_t> proposal = propose(drafter, sequence, ids, 4);
    proposals += !expected.empty();
    if (proposal == expected) continue;
    // A full bucket forgets its oldest, so a shorter suffix may be found instead; nothing wrong.
    ++missed;
  }
  EXPECT_GT(proposals, 1000);
  EXPECT_LE(missed, steps / 50);
}

TEST(NgramDrafter, MemoryIsBoundedAndTheRecentPastIsKept) {
  NgramDrafter drafter(3);
  std::mt19937 random(5);
  std::vector<int32_t> ids;
  for (int i = 0; i < 300000; ++i) ids.push_back(static_cast<int32_t>(random() % 100000));
  drafter.committed(1, ids);
  EXPECT_LE(drafter.index_bytes(1), 12 * NgramDrafter::kMostSlots);
  int found = 0;
  for (size_t back = 100; back <= 2000; back += 100) {
    std::vector<int32_t> more = ids;
    const auto from = ids.end() - static_cast<std::ptrdiff_t>(back);
    more.insert(more.end(), from, from + 4);
    found += propose(drafter, 1, more) == std::vector<int32_t>(from + 4, from + 7);
  }
  EXPECT_GE(found, 19);  // of 20
}

TEST(NgramDrafter, SequencesComeAndGo) {
  NgramDrafter drafter(5);
  drafter.end(99);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 1, 2};
  drafter.committed(1, ids);
  EXPECT_THAT(propose(drafter, 2, {9, 1, 2}), IsEmpty());  // nothing of sequence 1
  EXPECT_EQ(drafter.sequence_count(), 2u);
  drafter.end(1);
  EXPECT_EQ(drafter.sequence_count(), 1u);
  EXPECT_EQ(drafter.index_bytes(1), 0u);
  EXPECT_THAT(propose(drafter, 1, {9, 1, 2}), IsEmpty());
}

TEST(NgramDrafter, ASequenceThatWasCutStartsOver) {
  NgramDrafter drafter(2);
  drafter.committed(1, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 1, 2, 8, 8});
  EXPECT_THAT(propose(drafter, 1, {1, 2, 3, 1, 2}), ElementsAre(3, 1));
  EXPECT_THAT(propose(drafter, 1, {1, 2, 7, 1, 2}), ElementsAre(7, 1));  // same length, other ids
}

TEST(NgramDrafter, ConfidencesFollowWhatStood) {
  NgramDrafter drafter(1);
  std::vector<int32_t> ids = {1, 2, 3, 4};
  Draft draft;
  for (int i = 0; i < 40; ++i) {  // a loop: everything stands
    propose(drafter, 1, ids, 1, &draft);
    ids.push_back(ids[ids.size() - 4]);
  }
  EXPECT_GT(draft.confidences.at(0), 0.9f);
  int32_t fresh = 1000;
  for (int i = 0; i < 40; ++i) {  // it is always something else that follows
    ids.insert(ids.end(), {1, 2, 3, 4});
    propose(drafter, 1, ids, 1, &draft);
    ids.push_back(fresh++);
  }
  EXPECT_LT(draft.confidences.at(0), 0.1f);
}

}  // namespace
}  // namespace deepinfer::speculation
