#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace deepinfer {
namespace {

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

TEST(Shape, CountsElementsAndRows) {
  const Shape shape{7, 3, 5};
  EXPECT_EQ(shape.rank(), 3u);
  EXPECT_EQ(shape.elements(), 105u);
  EXPECT_EQ(shape.row_elements(), 5u);
  EXPECT_EQ(shape.rows(), 21u);
  EXPECT_EQ(shape.text(), "7x3x5");
  EXPECT_EQ(shape, (Shape{7, 3, 5}));
  EXPECT_FALSE(shape == (Shape{7, 15}));
}

TEST(Shape, ScalarsAndZeros) {
  EXPECT_EQ(Shape().elements(), 1u);
  EXPECT_EQ(Shape().rows(), 1u);
  EXPECT_EQ((Shape{0, 4}).rows(), 0u);
  EXPECT_EQ((Shape{4, 0}).rows(), 0u);
  EXPECT_EQ((Shape{4, 0}).elements(), 0u);
}

TEST(Shape, RefusesRankAndOverflow) {
  const uint64_t five[] = {1, 1, 1, 1, 1};
  EXPECT_NE(Shape::create(five).error().text().find("rank is 5, the limit is 4"),
            std::string::npos);
  const uint64_t large[] = {uint64_t{1} << 32, uint64_t{1} << 31};
  EXPECT_EQ(Shape::create(large).error().kind, ErrorKind::invalid);
  const uint64_t hidden[] = {uint64_t{1} << 62, 0, 4};
  EXPECT_FALSE(Shape::create(hidden).ok()) << "a zero must not hide an overflow";
  const uint64_t fits[] = {uint64_t{1} << 31, uint64_t{1} << 31};
  EXPECT_TRUE(Shape::create(fits).ok());
  EXPECT_DEATH((Shape{1, 1, 1, 1, 1}), "rank");
}

TEST(Buffer, IsAlignedAndZero) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{100'000}, (size_t{4} << 20) + 17}) {
    const Buffer buffer = Buffer::create(bytes).value();
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
  }
}

TEST(Buffer, LargeOnesStartOnAHugePageAndAreNotTouched) {
  const size_t before = resident_bytes();
  Buffer buffer = Buffer::create(size_t{256} << 20).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (size_t{2} << 20), 0u);
  EXPECT_LT(resident_bytes(), before + (size_t{64} << 20));
  buffer.data()[buffer.size() - 1] = std::byte{1};
}

TEST(Buffer, EmptyMovedAndImpossible) {
  EXPECT_EQ(Buffer::create(0).value().data(), nullptr);
  Buffer first(64);
  first.as<float>()[0] = 2.5f;
  Buffer second = std::move(first);
  // NOLINTNEXTLINE(bugprone-use-after-move): what a move leaves behind is part of the contract
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(second.as<float>()[0], 2.5f);
  second = Buffer(128);
  EXPECT_EQ(second.size(), 128u);
  for (size_t bytes : {std::numeric_limits<size_t>::max(), size_t{1} << 60}) {
    const Result<Buffer> refused = Buffer::create(bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
    EXPECT_NE(refused.error().what.find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(TensorView, RowsOfABlockFormat) {
  const Buffer buffer(3 * 36);
  const TensorView view{DType::q4_0, {3, 64}, buffer.data()};
  EXPECT_EQ(view.rows(), 3u);
  EXPECT_EQ(view.row_size(), 36u);
  EXPECT_EQ(view.bytes(), 108u);
  EXPECT_EQ(view.row(2) - view.data, 72);
}

}  // namespace
}  // namespace deepinfer
