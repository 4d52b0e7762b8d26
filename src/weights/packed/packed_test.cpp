#include "weights/packed/packed.h"

#include <gtest/gtest.h>

#include <functional>

#include "weights/tiny_files.h"

namespace deepinfer::weights {
namespace {

PackedHeader small_header() {
  PackedHeader header;
  header.panels = PanelLayout::avx2;
  header.content_id = "0123";
  PackedEntry rows;
  rows.table.name = "norm";
  rows.table.shape = {8};
  rows.table.begin = 4096;
  rows.table.bytes = 32;
  rows.checksum = 0xfedcba9876543210u;
  PackedEntry matrix;
  matrix.table.name = "w";
  matrix.table.dtype = DType::f8_e4m3;
  matrix.table.shape = {64, 64};
  matrix.table.begin = 8192;
  matrix.table.bytes = 4096;
  matrix.packed = true;
  matrix.tile_outputs = matrix.tile_inputs = 32;
  header.entries = {rows, matrix};
  return header;
}

TEST(PackedHeader, ReadsWhatItWrote) {
  const PackedHeader header = small_header();
  const std::string text = packed_header_text(header);
  EXPECT_EQ(text.size() % kPackedAlignment, 0u);
  const auto read = parse_packed(as_bytes(text), 12288, "model.packed");
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read.value().panels, PanelLayout::avx2);
  ASSERT_EQ(read.value().entries.size(), 2u);
  EXPECT_EQ(read.value().entries[0].checksum, 0xfedcba9876543210u);
  EXPECT_EQ(read.value().entries[1].table.shape, (Shape{64, 64}));
  EXPECT_EQ(read.value().entries[1].tile_inputs, 32u);
  EXPECT_EQ(read.value().entries[1].scales, DType::f8_e8m0);
  EXPECT_TRUE(read.value().entries[1].packed);
}

TEST(PackedHeader, RefusesWhatCannotBe) {
  const auto refusal = [](const std::function<void(PackedHeader&)>& change, uint64_t size) {
    PackedHeader header = small_header();
    change(header);
    const std::string text = packed_header_text(header);
    const auto read = parse_packed(as_bytes(text), size, "model.packed");
    return read.ok() ? std::string("accepted") : read.error().text();
  };
  EXPECT_NE(refusal([](PackedHeader& h) { h.entries[0].table.bytes = 31; }, 12288)
                .find("takes 31 bytes, F32 8 takes 32"),
            std::string::npos);
  EXPECT_NE(refusal([](PackedHeader&) {}, 12000).find("model.packed"), std::string::npos);
  EXPECT_NE(refusal([](PackedHeader& h) { h.entries[1].table.begin = 4100; }, 12288).find("norm"),
            std::string::npos);
  EXPECT_NE(refusal([](PackedHeader& h) { h.entries[1].table.name = "norm"; }, 12288).find("norm"),
            std::string::npos);
  EXPECT_NE(refusal([](PackedHeader& h) { h.panels = PanelLayout::rows; }, 12288).find("rows"),
            std::string::npos);
  EXPECT_NE(refusal([](PackedHeader& h) { h.entries[1].table.shape = Shape{4096}; }, 12288)
                .find("expected a matrix"),
            std::string::npos);
  std::string text = packed_header_text(small_header());
  text[0] = 'X';
  EXPECT_FALSE(parse_packed(as_bytes(text), 12288, "m").ok());
  text = packed_header_text(small_header());
  text[8] = 9;
  EXPECT_NE(parse_packed(as_bytes(text), 12288, "m").error().text().find("version 9"),
            std::string::npos);
  text[8] = 1;
  text[15] = 0x7f;  // a header of 2 GB
  EXPECT_FALSE(parse_packed(as_bytes(text), 12288, "m").ok());
}

}  // namespace
}  // namespace deepinfer::weights
