// Goal: codes with tiles of scales mean what they say, on shapes that tiles do not divide, and what
// cannot be a weight is refused by name. Method: every value against its definition; one broken
// field at a time.
#include "tensor/scaled_view.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace deepinfer {
namespace {

struct Matrix {
  std::vector<std::byte> codes, scales;
  ScaledView view;
};

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Codes and scales that differ everywhere; no NaN.
Matrix make(DType codes, DType scales, uint64_t outputs, uint64_t inputs, uint32_t tile_outputs,
            uint32_t tile_inputs) {
  Matrix m;
  m.codes.resize(outputs * row_bytes(codes, inputs));
  for (size_t i = 0; i < m.codes.size(); ++i) {
    m.codes[i] = static_cast<std::byte>((i * 37 + i / 256) % 0x77);
    if (i % 3 == 0) m.codes[i] |= std::byte{0x80};
  }
  const uint64_t rows = ceil_div(outputs, tile_outputs), columns = ceil_div(inputs, tile_inputs);
  m.scales.resize(row_bytes(scales, rows * columns));
  for (size_t i = 0; i < rows * columns; ++i) {
    if (scales == DType::f8_e8m0) {
      m.scales[i] = static_cast<std::byte>(110 + i % 30);
    } else {
      const float scale = 0.001f * static_cast<float>(i + 1);
      std::memcpy(m.scales.data() + i * 4, &scale, 4);
    }
  }
  m.view = {{codes, {outputs, inputs}, m.codes.data()},
            {scales, {rows, columns}, m.scales.data()},
            tile_outputs,
            tile_inputs};
  return m;
}

float code_value(const Matrix& m, uint64_t n, uint64_t k) {
  const uint64_t inputs = m.view.inputs();
  if (m.view.codes.dtype == DType::f4_e2m1) {
    const auto byte = static_cast<uint8_t>(m.codes[(n * inputs + k) / 2]);
    return e2m1_to_f32(k % 2 == 0 ? byte & 15 : byte >> 4);
  }
  return e4m3_to_f32(static_cast<uint8_t>(m.codes[n * inputs + k]));
}

float scale_value(const Matrix& m, uint64_t n, uint64_t k) {
  const uint64_t columns = m.view.scales.row_elements();
  const uint64_t i = n / m.view.tile_outputs * columns + k / m.view.tile_inputs;
  if (m.view.scales.dtype == DType::f8_e8m0) return ue8m0_to_f32(static_cast<uint8_t>(m.scales[i]));
  float scale;
  std::memcpy(&scale, m.scales.data() + i * 4, 4);
  return scale;
}

std::vector<Matrix> kinds() {
  std::vector<Matrix> all;
  all.push_back(make(DType::f8_e4m3, DType::f8_e8m0, 70, 101, 32, 32));
  all.push_back(make(DType::f8_e4m3, DType::f8_e8m0, 130, 300, 128, 128));
  all.push_back(make(DType::f8_e4m3, DType::f32, 257, 129, 128, 128));
  all.push_back(make(DType::f8_e4m3, DType::f8_e8m0, 5, 256, 1, 32));
  all.push_back(make(DType::f4_e2m1, DType::f8_e8m0, 7, 96, 1, 32));
  return all;
}

TEST(ScaledView, EveryValueIsTheProductOfItsCodeAndItsScale) {
  for (const Matrix& m : kinds()) {
    ASSERT_TRUE(check_scaled(m.view, "m").ok()) << check_scaled(m.view, "m").error().text();
    std::vector<float> row(m.view.inputs());
    for (uint64_t n = 0; n < m.view.outputs(); ++n) {
      decode_row(m.view, n, row.data());
      for (uint64_t k = 0; k < row.size(); ++k) {
        ASSERT_EQ(row[k], code_value(m, n, k) * scale_value(m, n, k)) << n << " " << k;
      }
    }
  }
}

TEST(ScaledView, BytesCountCodesAndScales) {
  const Matrix m = make(DType::f4_e2m1, DType::f8_e8m0, 7, 96, 1, 32);
  EXPECT_EQ(m.view.bytes(), 7 * 48 + 7 * 3u);
  ScaledView plain = m.view;
  plain.scales.data = nullptr;
  EXPECT_EQ(plain.bytes(), 7 * 48u);
}

TEST(ScaledView, ASliceHasTheRowsOfTheWhole) {
  for (const Matrix& m : kinds()) {
    const uint64_t first = m.view.tile_outputs,
                   count = std::min<uint64_t>(m.view.outputs() - first, 35);
    const ScaledView slice = m.view.slice_outputs(first, count);
    ASSERT_TRUE(check_scaled(slice, "slice").ok());
    std::vector<float> whole(m.view.inputs()), part(m.view.inputs());
    for (uint64_t n = 0; n < count; ++n) {
      decode_row(m.view, first + n, whole.data());
      decode_row(slice, n, part.data());
      ASSERT_EQ(whole, part);
    }
  }
}

TEST(ScaledViewDeathTest, ASliceWithinATileIsABug) {
  const Matrix m = make(DType::f8_e4m3, DType::f8_e8m0, 70, 64, 32, 32);
  EXPECT_DEATH(m.view.slice_outputs(33, 4), "starts with a tile");
  EXPECT_DEATH(m.view.slice_outputs(64, 7), "beyond");
}

TEST(ScaledView, NotANumberStaysOne) {
  Matrix m = make(DType::f8_e4m3, DType::f8_e8m0, 33, 64, 32, 32);
  std::vector<float> row(64);
  m.codes[5] = std::byte{0xff};
  decode_row(m.view, 0, row.data());
  EXPECT_TRUE(std::isnan(row[5]));
  m.scales[3] = std::byte{255};
  decode_row(m.view, 32, row.data());
  EXPECT_FALSE(std::isnan(row[31]));
  EXPECT_TRUE(std::isnan(row[32]));
}

std::string refusal(const ScaledView& view) {
  const Result<void> result = check_scaled(view, "layer 3 q_b");
  return result.ok() ? "accepted" : result.error().text();
}

TEST(ScaledView, ShapesThatDisagreeAreRefusedWithBoth) {
  Matrix m = make(DType::f8_e4m3, DType::f8_e8m0, 70, 101, 32, 32);
  ScaledView view = m.view;
  view.scales.shape = {2, 4};
  EXPECT_EQ(refusal(view),
            "layer 3 q_b: scales have the shape 2x4, 32x32 tiles of 70x101 ask for 3x4");
  view = m.view;
  view.tile_inputs = 0;
  EXPECT_EQ(refusal(view), "layer 3 q_b: has scales without the size of their tiles");
  view = m.view;
  view.scales.dtype = DType::i8;
  EXPECT_EQ(refusal(view), "layer 3 q_b: scales are I8, not F8_E8M0 or F32");
  view = m.view;
  view.codes.shape = {7, 10, 101};
  EXPECT_EQ(refusal(view), "layer 3 q_b: has the shape 7x10x101, a matrix has 2 axes");
  view = {{DType::f4_e2m1, {3, 5}, m.codes.data()}, {}, 0, 0};
  EXPECT_EQ(refusal(view), "layer 3 q_b: rows have 5 values, F4 stores multiples of 2");
}

TEST(ScaledView, CodesThatAreNoNumbersAreRefusedWithTheirPlace) {
  for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
    for (unsigned code = 0; code < 256; ++code) {
      Matrix m = make(DType::f8_e4m3, DType::f8_e8m0, 33, 64, 32, 32);
      m.view.codes.dtype = dtype;
      for (std::byte& c : m.codes) c = std::byte{0x31};
      m.codes[32 * 64 + 7] = static_cast<std::byte>(code);
      float value;
      decode_row(dtype, m.codes.data() + 32 * 64 + 7, &value, 1);
      const std::string name(dtype_info(dtype).name);
      EXPECT_EQ(refusal(m.view), std::isfinite(value)
                                     ? "accepted"
                                     : "layer 3 q_b: the code at row 32, column 7 is " +
                                           std::to_string(code) + ", not a finite number in " +
                                           name);
    }
  }
}

TEST(ScaledView, ScalesThatAreNoScalesAreRefusedWithTheirPlace) {
  Matrix m = make(DType::f8_e4m3, DType::f32, 130, 129, 128, 128);
  for (const float bad : {NAN, INFINITY, -0.5f}) {
    std::memcpy(m.scales.data() + 3 * 4, &bad, 4);
    EXPECT_EQ(refusal(m.view),
              "layer 3 q_b: the scale at row 1, column 1 is " + std::to_string(bad));
  }
  const float zero = 0;
  std::memcpy(m.scales.data() + 3 * 4, &zero, 4);
  EXPECT_EQ(refusal(m.view), "accepted");
  Matrix e = make(DType::f4_e2m1, DType::f8_e8m0, 4, 64, 1, 32);
  e.scales[5] = std::byte{255};
  EXPECT_EQ(refusal(e.view), "layer 3 q_b: the scale at row 2, column 1 is nan");
}

TEST(ScaledView, PanelsAreCheckedByShapeAlone) {
  Matrix m = make(DType::f8_e4m3, DType::f8_e8m0, 32, 64, 32, 32);
  m.codes[9] = std::byte{0x7f};
  m.view.codes.panels = PanelLayout::avx2;
  EXPECT_EQ(refusal(m.view), "accepted");
}

}  // namespace
}  // namespace deepinfer
