// The reference products: rows as the file stores them, one scalar chain per output, in the order
// that kernels/matmul.h states. The oracle of matmul_test.
#include "kernels/matmul/matmul_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/panel_pack.h"

namespace deepinfer::kernels::ref {
namespace {

// Scales of one block of 32 of a row: value = scale[half] * (code - offset) + minimum.
struct BlockScale {
  float scale[2];
  float minimum;
};

float f16_at(const std::byte* p) {
  uint16_t code;
  std::memcpy(&code, p, 2);
  return f16_to_f32(code);
}

BlockScale block_scale(DType dtype, const std::byte* row, size_t block) {
  const std::byte* p = row + block * dtype_info(dtype).block_bytes;
  switch (dtype) {
    case DType::q4_1:
      return {{f16_at(p), 0}, f16_at(p + 2)};
    case DType::mxfp4: {
      const int exponent = static_cast<int>(p[0]);
      const float scale = exponent < 2 ? 0.0f : std::ldexp(1.0f, exponent - 128);
      return {{scale, 0}, 0};
    }
    case DType::q4_k: {
      const std::byte* file = row + block / 8 * 144;
      const ScaleMin sm = q4_k_scale_min(reinterpret_cast<const uint8_t*>(file) + 4, block % 8);
      return {{f16_at(file) * sm.scale, 0}, -(f16_at(file + 2) * sm.min)};
    }
    case DType::q6_k: {
      const std::byte* file = row + block / 8 * 210;
      const auto* scales = reinterpret_cast<const int8_t*>(file) + 192 + block % 8 * 2;
      const float d = f16_at(file + 208);
      return {{d * scales[0], d * scales[1]}, 0};
    }
    default:
      return {{f16_at(p), 0}, 0};
  }
}

// Code `k` of a block as the signed integer that the scale multiplies.
int weight_code(DType dtype, uint8_t code) {
  static constexpr int8_t kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  switch (dtype) {
    case DType::q4_0:
      return code - 8;
    case DType::q8_0:
      return static_cast<int8_t>(code);
    case DType::mxfp4:
      return kE2m1[code & 15];
    case DType::q6_k:
      return code - 32;
    default:
      return code;
  }
}

void store(const MatmulChunk& c, size_t row, size_t output, float value) {
  float& out = c.out[(row - c.first_row) * c.stride + output];
  if (c.bias) value += c.bias[output];
  out = c.epilogue == Epilogue::add ? out + value : value;
}

// Row m of a group of g.padded rows.
template <DType kType>
float int8_product(const MatmulChunk& c, const std::byte* weights, const RowGroup& g, size_t m) {
  const auto* record = reinterpret_cast<const uint32_t*>(c.activations + g.offset);
  float acc = 0;
  for (size_t b = 0; b * 32 < c.inputs; ++b, record += c.record_dwords * g.padded) {
    uint8_t codes[32];
    int8_t x[32];
    float d, sum = 0;
    read_block_codes(kType, weights, b, codes);
    for (size_t step = 0; step < 8; ++step)
      std::memcpy(x + step * 4, record + step * g.padded + m, 4);
    std::memcpy(&d, record + 8 * g.padded + m, 4);
    if (c.plane_dword) std::memcpy(&sum, record + c.plane_dword * g.padded + m, 4);
    const BlockScale s = block_scale(kType, weights, b);
    const size_t parts = kType == DType::q6_k ? 2 : 1;
    for (size_t part = 0; part < parts; ++part) {
      int32_t isum = 0;
      for (size_t k = part * 32 / parts; k < (part + 1) * 32 / parts; ++k) {
        isum += weight_code(kType, codes[k]) * x[k];
      }
      acc = std::fma(static_cast<float>(isum), s.scale[part] * d, acc);
    }
    if (kType == DType::q4_1 || kType == DType::q4_k) acc = std::fma(s.minimum, sum, acc);
  }
  return acc;
}

template <DType kType>
void run_int8(const MatmulChunk& c) noexcept {
  for (size_t output = c.panel_begin; output < c.panel_end; ++output) {
    const std::byte* weights = c.panels + output * c.panel_bytes;
    for (const RowGroup& g : c.groups) {
      for (size_t m = 0; m < g.rows; m += c.rows_per_output) {
        float value = int8_product<kType>(c, weights, g, m);
        if (c.rows_per_output == 2) value += int8_product<kType>(c, weights, g, m + 1);
        store(c, (g.first_row + m) / c.rows_per_output, output, value);
      }
    }
  }
}

template <class Decode>
void run_rows(const MatmulChunk& c, Decode&& decode) {
  std::vector<float> w(c.inputs);
  for (size_t output = c.panel_begin; output < c.panel_end; ++output) {
    decode(c.panels + output * c.panel_bytes, 0, c.inputs, w.data());
    for (const RowGroup& g : c.groups) {
      const auto* x = reinterpret_cast<const float*>(c.activations + g.offset);
      float acc = 0;
      for (size_t k = 0; k < c.inputs; ++k) acc = std::fma(w[k], x[k], acc);
      store(c, g.first_row, output, acc);
    }
  }
}

template <DType kType>
void decode_plain(const std::byte* panel, size_t, size_t inputs, float* out) {
  deepinfer::decode_row(kType, panel, out, inputs);
}

template <DType kType>
MatmulKernel f32_kernel() {
  return {.name = "f32.ref",
          .dtype = kType,
          .isa = Isa::ref,
          .forms = kFormF32,
          .panel_outputs = 1,
          .panel_bytes = [](size_t inputs) { return row_bytes(kType, inputs); },
          .refuse = [](size_t) { return std::string(); },
          .pack =
              [](const ScaledView& weights, size_t first, std::byte* panel) {
                if (weights.codes.dtype == DType::f4_e2m1) return mxfp4_row(weights, first, panel);
                std::memcpy(panel, weights.codes.row(first), weights.codes.row_size());
              },
          .run = [](const MatmulChunk& c) noexcept { run_rows(c, decode_plain<kType>); },
          .decode_row = decode_plain<kType>};
}

// A panel is one row: [ceil(inputs / 32)] float scales, then its codes.
void decode_fp8(const std::byte* panel, size_t, size_t inputs, float* out) {
  const size_t blocks = (inputs + 31) / 32;
  deepinfer::decode_row(DType::f8_e4m3, panel + blocks * sizeof(float), out, inputs);
  for (size_t k = 0; k < inputs; ++k) {
    float scale;
    std::memcpy(&scale, panel + k / 32 * sizeof(float), sizeof(float));
    out[k] *= scale;
  }
}

void pack_fp8(const ScaledView& weights, size_t output, std::byte* panel) {
  const size_t inputs = weights.inputs();
  for (size_t k = 0; k < inputs; k += 32, panel += sizeof(float)) {
    const float scale = weights.scale(output, k);
    std::memcpy(panel, &scale, sizeof(float));
  }
  std::memcpy(panel, weights.codes.row(output), inputs);
}

MatmulKernel fp8_kernel() {
  MatmulKernel kernel = f32_kernel<DType::f8_e4m3>();
  kernel.panel_bytes = [](size_t inputs) { return (inputs + 31) / 32 * sizeof(float) + inputs; };
  kernel.pack = pack_fp8;
  kernel.run = [](const MatmulChunk& c) noexcept { run_rows(c, decode_fp8); };
  kernel.decode_row = decode_fp8;
  return kernel;
}

template <DType kType>
MatmulKernel int8_kernel(ActivationForms plane) {
  MatmulKernel kernel = f32_kernel<kType>();
  kernel.name = "int8.ref";
  kernel.forms = kFormInt8 | plane;
  kernel.run = run_int8<kType>;
  return kernel;
}

}  // namespace

std::span<const MatmulKernel> kernels() {
  static const MatmulKernel list[] = {
      int8_kernel<DType::q4_0>(0),
      int8_kernel<DType::q4_1>(kPlaneSum),
      int8_kernel<DType::q8_0>(0),
      int8_kernel<DType::mxfp4>(0),
      int8_kernel<DType::q4_k>(kPlaneSum),
      int8_kernel<DType::q6_k>(0),
      f32_kernel<DType::f32>(),
      f32_kernel<DType::f16>(),
      f32_kernel<DType::bf16>(),
      f32_kernel<DType::q4_0>(),
      f32_kernel<DType::q4_1>(),
      f32_kernel<DType::q8_0>(),
      f32_kernel<DType::mxfp4>(),
      f32_kernel<DType::q4_k>(),
      f32_kernel<DType::q6_k>(),
      f32_kernel<DType::q5_0>(),
      f32_kernel<DType::q5_1>(),
      f32_kernel<DType::q2_k>(),
      f32_kernel<DType::q3_k>(),
      f32_kernel<DType::q5_k>(),
      f32_kernel<DType::iq4_nl>(),
      f32_kernel<DType::iq4_xs>(),
      f32_kernel<DType::iq2_xxs>(),
      f32_kernel<DType::iq2_xs>(),
      f32_kernel<DType::iq2_s>(),
      f32_kernel<DType::iq3_xxs>(),
      f32_kernel<DType::iq3_s>(),
      f32_kernel<DType::nvfp4>(),
      fp8_kernel(),
      f32_kernel<DType::f8_e5m2>(),
  };
  return list;
}

}  // namespace deepinfer::kernels::ref
