#include "weights/disk/streamed_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/hash.h"

namespace deepinfer::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = 3000;
constexpr size_t kBlocks = 12;

class StreamedBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::temp_directory_path() / (std::string("deepinfer_blocks_") + info->name());
    write_file(kBlocks * kBlockBytes);
  }
  void TearDown() override { fs::remove(path_); }

  void write_file(size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) text[i] = byte_at(i);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }
  static char byte_at(size_t i) { return static_cast<char>(i / kBlockBytes * 17 + i % 251); }

  // A block in two parts, the second half of it first.
  static std::vector<std::vector<BlockPart>> parts() {
    std::vector<std::vector<BlockPart>> blocks;
    for (size_t b = 0; b < kBlocks; ++b) {
      const uint64_t begin = b * kBlockBytes;
      blocks.push_back(
          {{0, begin + kBlockBytes / 2, kBlockBytes / 2, {}}, {0, begin, kBlockBytes / 2, {}}});
    }
    return blocks;
  }
  static std::string expected(size_t block) {
    std::string text;
    for (size_t i = 0; i < kBlockBytes; ++i) {
      text += byte_at(block * kBlockBytes + (i + kBlockBytes / 2) % kBlockBytes);
    }
    return text;
  }

  std::unique_ptr<StreamedBlocks> create(size_t slots, StreamedBlocks::Options options = {},
                                         std::vector<std::vector<BlockPart>> blocks = parts()) {
    options.slots = slots;
    options.slot_bytes = kBlockBytes;
    auto reader = DiskReader::open({path_.string()}, {.queue_depth = 4});
    EXPECT_TRUE(reader.ok());
    auto made = StreamedBlocks::create(std::move(reader).value(), std::move(blocks),
                                       {path_.string()}, std::move(options));
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }
  static void expect_block(const std::byte* slot, size_t block) {
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(slot), kBlockBytes), expected(block))
        << "block " << block;
  }

  fs::path path_;
};

TEST_F(StreamedBlocksTest, EveryCapacityShowsTheSameBytes) {
  for (size_t slots = 1; slots <= kBlocks; ++slots) {
    const auto blocks = create(slots);
    uint32_t state = 12345;
    for (int round = 0; round < 200; ++round) {
      state = state * 1'664'525u + 1'013'904'223u;
      std::vector<uint32_t> ids;
      for (uint32_t i = 0; i < 1 + (state >> 8) % 5; ++i) {
        ids.push_back((state >> 16 & 0xff) % kBlocks + i * 5);
        ids.back() %= kBlocks;
      }
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      for (size_t done = 0; done < ids.size();) {
        auto lease = blocks->acquire(std::span(ids).subspan(done));
        ASSERT_TRUE(lease.ok()) << lease.error().text();
        ASSERT_GT(lease.value().slots.size(), 0u);
        for (size_t i = 0; i < lease.value().slots.size(); ++i) {
          expect_block(lease.value().slots[i], ids[done + i]);
        }
        blocks->check_invariants();
        done += lease.value().slots.size();
        blocks->release(lease.value());
      }
    }
    const StreamedCounters& seen = blocks->counters();
    if (slots == kBlocks) {
      EXPECT_EQ(seen.misses, kBlocks) << "with room for all, each is read once";
    }
    EXPECT_EQ(seen.bytes_read, seen.misses * kBlockBytes);
  }
}

TEST_F(StreamedBlocksTest, APinnedSlotIsNeverTakenWhileItsLeaseLives) {
  const auto blocks = create(3);
  const uint32_t first[] = {0, 1};
  const auto held = blocks->acquire(first);
  ASSERT_TRUE(held.ok());
  for (uint32_t id = 2; id < kBlocks; ++id) {
    const uint32_t ids[] = {id};
    const auto lease = blocks->acquire(ids);
    ASSERT_TRUE(lease.ok());
    expect_block(lease.value().slots[0], id);
    expect_block(held.value().slots[0], 0);
    expect_block(held.value().slots[1], 1);
    blocks->release(lease.value());
  }
  blocks->release(held.value());
}

TEST_F(StreamedBlocksTest, MoreThanThereIsRoomForComesInParts) {
  const auto blocks = create(2);
  const uint32_t ids[] = {3, 4, 5, 6, 7};
  const auto lease = blocks->acquire(ids);
  ASSERT_TRUE(lease.ok());
  ASSERT_EQ(lease.value().slots.size(), 2u);
  expect_block(lease.value().slots[0], 3);
  expect_block(lease.value().slots[1], 4);
  blocks->release(lease.value());
}

TEST_F(StreamedBlocksTest, TheLeastRecentlyUsedGoesFirst) {
  const auto blocks = create(3);
  const auto touch = [&](uint32_t id) {
    const uint32_t ids[] = {id};
    const auto lease = blocks->acquire(ids);
    ASSERT_TRUE(lease.ok());
    blocks->release(lease.value());
  };
  for (const uint32_t id : {0u, 1u, 2u, 0u, 3u}) touch(id);  // 3 took the place of 1
  const uint64_t misses = blocks->counters().misses;
  touch(0);
  touch(2);
  EXPECT_EQ(blocks->counters().misses, misses);
  touch(1);
  EXPECT_EQ(blocks->counters().misses, misses + 1);
}

TEST_F(StreamedBlocksTest, AFailedReadHarmsNothingAndIsTriedAgain) {
  const auto blocks = create(4);
  const uint32_t good[] = {0};
  const auto held = blocks->acquire(good);
  ASSERT_TRUE(held.ok());
  fs::resize_file(path_, 5 * kBlockBytes);
  const uint32_t bad[] = {0, 9};
  const auto failed = blocks->acquire(bad);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().text().find(path_.string() + " at byte"), std::string::npos);
  blocks->check_invariants();
  expect_block(held.value().slots[0], 0);
  write_file(kBlocks * kBlockBytes);
  const auto again = blocks->acquire(bad);
  ASSERT_TRUE(again.ok()) << again.error().text();
  expect_block(again.value().slots[1], 9);
  blocks->release(again.value());
  blocks->release(held.value());
}

TEST_F(StreamedBlocksTest, AWrongChecksumNamesThePlace) {
  auto checked = parts();
  std::vector<std::byte> half(kBlockBytes / 2);
  for (size_t i = 0; i < half.size(); ++i) {
    half[i] = static_cast<std::byte>(byte_at(2 * kBlockBytes + kBlockBytes / 2 + i));
  }
  checked[2][0].checksum = xxh3_64(half);
  checked[3][1].checksum = 42;
  const auto blocks = create(4, {}, checked);
  const uint32_t right[] = {2}, wrong[] = {3};
  const auto lease = blocks->acquire(right);
  ASSERT_TRUE(lease.ok()) << lease.error().text();
  blocks->release(lease.value());
  const auto failed = blocks->acquire(wrong);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().kind, ErrorKind::corrupt);
  EXPECT_NE(failed.error().text().find("expected 000000000000002a"), std::string::npos)
      << failed.error().text();
}

TEST_F(StreamedBlocksTest, ATransformationSeesTheRawBytesOnceForEveryMiss) {
  StreamedBlocks::Options options;
  std::vector<int> seen(kBlocks, 0);
  options.transform = [&](uint32_t block, std::span<const std::byte> raw,
                          std::span<std::byte> slot) -> Result<void> {
    ++seen[block];
    if (block == 7) return Error::corrupt("block 7", "is refused");
    EXPECT_EQ(raw.size(), kBlockBytes);
    std::memcpy(slot.data(), raw.data(), raw.size());
    return {};
  };
  options.batch = 2;
  const auto blocks = create(6, options);
  const uint32_t ids[] = {1, 2, 3, 4, 5};
  const auto lease = blocks->acquire(ids);
  ASSERT_TRUE(lease.ok());
  for (size_t i = 0; i < 5; ++i) expect_block(lease.value().slots[i], ids[i]);
  blocks->release(lease.value());
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 5);
  const uint32_t refused[] = {7};
  EXPECT_FALSE(blocks->acquire(refused).ok());
  blocks->check_invariants();
}

}  // namespace
}  // namespace deepinfer::weights
