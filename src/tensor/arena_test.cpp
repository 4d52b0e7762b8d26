// Goal: allocations are aligned, zero, apart from each other, and stay where they are.
#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace deepinfer {
namespace {

TEST(Arena, AllocationsAreAlignedZeroAndApart) {
  Arena arena;
  std::byte* a = arena.allocate(100).value();
  std::byte* b = arena.allocate(1).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % Buffer::kAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % Buffer::kAlignment, 0u);
  EXPECT_GE(b, a + 100);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(a[i], std::byte{0});
  EXPECT_EQ(arena.bytes(), 192u);
}

TEST(Arena, ALargeOneGetsABlockOfItsOwnAndMovesNothing) {
  Arena arena;
  std::byte* small = arena.allocate(64).value();
  std::memset(small, 7, 64);
  std::byte* large = arena.allocate(size_t{70} << 20).value();
  std::byte* next = arena.allocate(64).value();
  EXPECT_EQ(small[63], std::byte{7});
  EXPECT_TRUE(next < large || next >= large + (size_t{70} << 20));
  // The slack behind the last byte is mapped.
  EXPECT_EQ(next[64 + 8191], std::byte{0});
}

TEST(Arena, RefusesWhatTheSystemDoesNotHave) {
  Arena arena;
  const auto r = arena.allocate(size_t{1} << 60);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().kind, ErrorKind::exhausted);
}

}  // namespace
}  // namespace deepinfer
