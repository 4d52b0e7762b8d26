#include "cache/page_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace deepinfer::cache {
namespace {

std::vector<PageText> pages_of(const PrefixKey& key, uint64_t limit) {
  std::vector<PageText> pages;
  PageCursor cursor(key, limit);
  while (cursor.next()) pages.emplace_back(cursor.view());
  return pages;
}

TEST(PageCursor, CutsIdsIntoPagesAndTheRest) {
  const std::vector<int32_t> ids(300, 7);
  for (const uint64_t limit : {0, 1, 127, 128, 129, 256, 300}) {
    const auto pages = pages_of({.ids = ids}, limit);
    ASSERT_EQ(pages.size(), pages_for(limit));
    uint64_t tokens = 0;
    for (const PageText& page : pages) tokens += page.size();
    EXPECT_EQ(tokens, limit);
  }
}

TEST(PageCursor, CutsImagesAtPagesAndAtTheLimit) {
  const std::vector<int32_t> ids(400, 7);
  const std::vector<ContentSpan> contents = {{.start = 100, .count = 200, .content = {1, 2}},
                                             {.start = 300, .count = 50, .content = {3}}};
  const auto pages = pages_of({.ids = ids, .contents = contents}, 320);
  ASSERT_EQ(pages.size(), 3u);
  const auto first = pages[0].view().pieces;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].start, 100u);
  EXPECT_EQ(first[0].count, 28u);
  EXPECT_EQ(first[0].offset, 0u);
  const auto second = pages[1].view().pieces;
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].count, 128u);
  EXPECT_EQ(second[0].offset, 28u);
  const auto third = pages[2].view().pieces;
  ASSERT_EQ(third.size(), 2u);
  EXPECT_EQ(third[0].count, 44u);
  EXPECT_EQ(third[0].offset, 156u);
  EXPECT_EQ(third[1].start, 44u);
  EXPECT_EQ(third[1].count, 20u);
}

TEST(PageText, CommonHeadEndsWhereAnImageDiffers) {
  const std::vector<int32_t> ids(60, 7);
  const auto text = [&](std::vector<ContentSpan> contents, size_t count = 60) {
    return pages_of({.ids = ids, .contents = contents}, count)[0];
  };
  const auto common = [](const PageText& a, const PageText& b) {
    EXPECT_EQ(common_prefix(a.view(), b.view()), common_prefix(b.view(), a.view()));
    return common_prefix(a.view(), b.view());
  };
  const PageText image = text({{10, 20, {1, 1}}});
  EXPECT_EQ(common(image, image), 60u);
  EXPECT_EQ(common(image, text({})), 10u);                  // text is no image
  EXPECT_EQ(common(image, text({{10, 20, {2, 1}}})), 10u);  // another one
  EXPECT_EQ(common(image, text({{11, 20, {1, 1}}})), 10u);
  EXPECT_EQ(common(image, text({{10, 21, {1, 1}}})), 30u);
  EXPECT_EQ(common(image, text({{10, 20, {1, 1}}}, 25)), 25u);
  EXPECT_EQ(common(image, text({{10, 20, {1, 1}}, {30, 5, {1, 1}}})), 30u);
  EXPECT_EQ(common(text({{10, 20, {1, 1}}, {30, 5, {1, 1}}}), text({{10, 25, {1, 1}}})), 30u);
}

TEST(PageText, HashTellsChainsImagesAndSaltsApart) {
  const std::vector<int32_t> ids(128, 7);
  std::vector<Hash128> seen;
  for (const uint64_t salt : {0, 1}) {
    for (const uint64_t identity : {0, 1}) {
      for (const uint64_t content : {0, 5, 6}) {
        for (const size_t start : {10, 11}) {
          const std::vector<ContentSpan> contents = {{start, content == 0 ? 0u : 9u, {content, 0}}};
          const auto page = pages_of({.ids = ids, .contents = contents}, 128)[0];
          const Hash128 hash = chain_hash(root_hash({identity, 3}, salt), page.view());
          if (content == 0 && start == 11) continue;  // no image either way
          EXPECT_EQ(std::find(seen.begin(), seen.end(), hash), seen.end());
          seen.push_back(hash);
          seen.push_back(chain_hash(hash, page.view()));
        }
      }
    }
  }
}

// A head comes before its continuations, and a sorted neighbour has the longest common head.
TEST(PageText, OrderIsTotalAndNeighboursShareTheMost) {
  std::mt19937 random(7);
  std::vector<PageText> texts;
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> ids(1 + random() % 8);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2);
    std::vector<ContentSpan> contents;
    if (random() % 2 == 0) contents = {{random() % 4, 1 + random() % 3, {random() % 2, 0}}};
    texts.push_back(pages_of({.ids = ids, .contents = contents}, ids.size())[0]);
  }
  std::sort(texts.begin(), texts.end(),
            [](const PageText& a, const PageText& b) { return compare(a.view(), b.view()) < 0; });
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < texts.size(); ++j) {
      const auto order = compare(texts[i].view(), texts[j].view());
      EXPECT_EQ(order == 0, equal(texts[i].view(), texts[j].view()));
      if (i < j) EXPECT_TRUE(order <= 0);
      if (i + 1 < j) {
        EXPECT_LE(common_prefix(texts[i].view(), texts[j].view()),
                  common_prefix(texts[i].view(), texts[i + 1].view()));
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::cache
