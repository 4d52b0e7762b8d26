#include "kernels/cpu/panel_pack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace deepinfer::kernels {
namespace {

const uint8_t* bytes_at(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }

void split_nibbles(const uint8_t* packed, uint8_t codes[32]) {
  for (size_t i = 0; i < 16; ++i) {
    codes[i] = packed[i] & 15;
    codes[i + 16] = packed[i] >> 4;
  }
}

// Block `block` of a Q6_K row: 4 blocks of 32 in each half of 128 (file layout: ql[128] qh[64]).
void q6_k_codes(const uint8_t* superblock, size_t block, uint8_t codes[32]) {
  const size_t half = block / 4, quarter = block % 4;
  const uint8_t* low = superblock + half * 64 + (quarter & 1) * 32;
  const uint8_t* high = superblock + 128 + half * 32;
  for (size_t i = 0; i < 32; ++i) {
    const uint8_t nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
    codes[i] = static_cast<uint8_t>(nibble | (((high[i] >> (2 * quarter)) & 3) << 4));
  }
}

// 16 bytes: code k in the low and code k + 16 in the high nibble of byte k. The 32-value formats
// store them so; a Q4_K superblock keeps one block in the low and the next in the high nibbles of
// 32 bytes.
void packed_nibbles(DType dtype, const uint8_t* row, size_t block, uint8_t out[16]) {
  switch (dtype) {
    case DType::q4_0:
      std::memcpy(out, row + block * 18 + 2, 16);
      break;
    case DType::q4_1:
      std::memcpy(out, row + block * 20 + 4, 16);
      break;
    case DType::mxfp4:
      std::memcpy(out, row + block * 17 + 1, 16);
      break;
    default: {
      const uint8_t* q = row + (block / 8) * 144 + 16 + ((block % 8) / 2) * 32;
      for (size_t k = 0; k < 16; ++k) {
        out[k] = block % 2 == 0 ? static_cast<uint8_t>((q[k] & 15) | (q[k + 16] << 4))
                                : static_cast<uint8_t>((q[k] >> 4) | (q[k + 16] & 0xF0));
      }
    }
  }
}

struct PanelWriter {
  DType dtype;
  PanelFormat format;
  size_t lanes;
  uint8_t flip;
  std::byte* superblock;

  void put(size_t offset, const void* source, size_t bytes) const {
    std::memcpy(superblock + offset, source, bytes);
  }

  // Scales of block j of superblock `index` for lane r, from a row of the file.
  void scales(const std::byte* row, size_t index, size_t j, size_t r) const {
    const size_t block = index * format.blocks + j;
    const std::byte* source = row + block * dtype_info(dtype).block_bytes;
    switch (dtype) {
      case DType::q4_0:
      case DType::q8_0:
        put((j * lanes + r) * 2, source, 2);
        break;
      case DType::q4_1:
        put((j * lanes + r) * 2, source, 2);
        put((4 * lanes + j * lanes + r) * 2, source + 2, 2);
        break;
      case DType::mxfp4:
        put(j * lanes + r, source, 1);
        break;
      case DType::q4_k: {
        const std::byte* file = row + index * 144;
        if (j == 0) {
          put(r * 2, file, 2);
          put((lanes + r) * 2, file + 2, 2);
        }
        const ScaleMin sm = q4_k_scale_min(bytes_at(file) + 4, j);
        put(4 * lanes + j * lanes + r, &sm.scale, 1);
        put(12 * lanes + j * lanes + r, &sm.min, 1);
        break;
      }
      case DType::q6_k: {
        const std::byte* file = row + index * 210;
        if (j == 0) put(r * 2, file + 208, 2);
        for (size_t half = 0; half < 2; ++half) {
          put(4 * lanes + (2 * j + half) * lanes + r, file + 192 + 2 * j + half, 1);
        }
        break;
      }
      default:
        check(false, "no panel format");
    }
  }

  // Four codes a dword: dword `step` of lane r.
  void put_dword(std::byte* block, size_t step, size_t r, const void* dword) const {
    std::memcpy(block + (step * lanes + r) * 4, dword, 4);
  }

  void codes(const std::byte* row, size_t index, size_t j, size_t r) const {
    std::byte* block = superblock + format.scale_lane_bytes * lanes;
    const size_t number = index * format.blocks + j;
    if (format.bits == CodeBits::bytes) {
      uint8_t c[32];
      read_block_codes(dtype, row, number, c);
      for (uint8_t& code : c) code ^= flip;
      block += j * 32 * lanes;
      for (size_t step = 0; step < 8; ++step) put_dword(block, step, r, c + step * 4);
      return;
    }
    uint8_t nibbles[16];
    if (format.bits == CodeBits::nibbles) {
      packed_nibbles(dtype, bytes_at(row), number, nibbles);
    } else {
      // The nibbles of all blocks stand together, the pairs after them.
      uint8_t c[32], pairs[8] = {};
      read_block_codes(dtype, row, number, c);
      for (size_t k = 0; k < 16; ++k) {
        nibbles[k] = static_cast<uint8_t>((c[k] & 15) | ((c[k + 16] & 15) << 4));
      }
      for (size_t k = 0; k < 32; ++k) {
        pairs[k / 16 * 4 + k % 4] |= static_cast<uint8_t>((c[k] >> 4) << (2 * (k / 4 % 4)));
      }
      std::byte* second = block + format.blocks * 16 * lanes + j * 8 * lanes;
      for (size_t half = 0; half < 2; ++half) put_dword(second, half, r, pairs + half * 4);
    }
    block += j * 16 * lanes;
    for (size_t step = 0; step < 4; ++step) put_dword(block, step, r, nibbles + step * 4);
  }
};

}  // namespace

bool has_panel_format(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
    case DType::q4_1:
    case DType::q8_0:
    case DType::mxfp4:
    case DType::q4_k:
    case DType::q6_k:
      return true;
    default:
      return false;
  }
}

PanelFormat panel_format(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return {4, 8, 16, CodeBits::nibbles};
    case DType::q4_1:
      return {4, 16, 16, CodeBits::nibbles};
    case DType::q8_0:
      return {4, 8, 32, CodeBits::bytes};
    case DType::mxfp4:
      return {4, 4, 16, CodeBits::nibbles};
    case DType::q4_k:
      return {8, 20, 16, CodeBits::nibbles};
    case DType::q6_k:
      return {8, 20, 24, CodeBits::nibbles_and_pairs};
    default:
      check(false, "no panel format");
      return {};
  }
}

size_t panel_bytes(DType dtype, size_t lanes, size_t inputs) {
  const PanelFormat f = panel_format(dtype);
  const size_t blocks = (inputs + 31) / 32;
  const size_t superblocks = (blocks + f.blocks - 1) / f.blocks;
  return (superblocks * f.scale_lane_bytes + blocks * f.block_lane_bytes) * lanes;
}

void mxfp4_row(const ScaledView& weights, size_t output, std::byte* row) {
  const uint8_t* codes = bytes_at(weights.codes.row(output));
  const std::byte* scales = weights.scales.row(output);
  for (size_t block = 0; block * 32 < weights.inputs(); ++block, codes += 16, row += 17) {
    row[0] = scales[block];
    // Inputs 2i and 2i + 1 share a byte of the file, k and k + 16 one of the block.
    for (size_t i = 0; i < 8; ++i) {
      row[1 + 2 * i] = static_cast<std::byte>((codes[i] & 15) | ((codes[i + 8] & 15) << 4));
      row[2 + 2 * i] = static_cast<std::byte>((codes[i] >> 4) | (codes[i + 8] & 0xF0));
    }
  }
}

void pack_panel(const ScaledView& matrix, size_t first_output, size_t lanes, uint8_t code_flip,
                std::byte* panel) {
  TensorView weights = matrix.codes;
  std::vector<std::byte> mxfp4;
  if (weights.dtype == DType::f4_e2m1) {
    const size_t count = std::min<size_t>(lanes, weights.rows() - first_output);
    const size_t bytes = row_bytes(DType::mxfp4, weights.row_elements());
    mxfp4.resize(count * bytes);
    for (size_t r = 0; r < count; ++r) {
      mxfp4_row(matrix, first_output + r, mxfp4.data() + r * bytes);
    }
    weights = {DType::mxfp4, {count, weights.row_elements()}, mxfp4.data()};
    first_output = 0;
  }
  const PanelFormat f = panel_format(weights.dtype);
  const size_t blocks = (weights.row_elements() + 31) / 32;
  const size_t rows = std::min<size_t>(lanes, weights.rows() - first_output);
  for (size_t index = 0; index * f.blocks < blocks; ++index) {
    const size_t here = std::min(f.blocks, blocks - index * f.blocks);
    const PanelWriter writer{weights.dtype, f, lanes, code_flip, panel};
    for (size_t r = 0; r < rows; ++r) {
      const std::byte* row = weights.row(first_output + r);
      for (size_t j = 0; j < here; ++j) {
        writer.scales(row, index, j, r);
        writer.codes(row, index, j, r);
      }
    }
    panel += (f.scale_lane_bytes + here * f.block_lane_bytes) * lanes;
  }
}

void read_block_codes(DType dtype, const std::byte* row, size_t block, uint8_t codes[32]) {
  const uint8_t* p = bytes_at(row);
  switch (dtype) {
    case DType::q4_0:
      split_nibbles(p + block * 18 + 2, codes);
      break;
    case DType::q4_1:
      split_nibbles(p + block * 20 + 4, codes);
      break;
    case DType::q8_0:
      std::memcpy(codes, p + block * 34 + 2, 32);
      break;
    case DType::mxfp4:
      split_nibbles(p + block * 17 + 1, codes);
      break;
    case DType::q4_k: {
      const uint8_t* packed = p + (block / 8) * 144 + 16 + ((block % 8) / 2) * 32;
      for (size_t i = 0; i < 32; ++i) codes[i] = (block & 1) ? packed[i] >> 4 : packed[i] & 15;
      break;
    }
    case DType::q6_k:
      q6_k_codes(p + (block / 8) * 210, block % 8, codes);
      break;
    default:
      check(false, "no panel format");
  }
}

ScaleMin q4_k_scale_min(const uint8_t* packed, size_t block) {
  if (block < 4) {
    return {static_cast<uint8_t>(packed[block] & 63), static_cast<uint8_t>(packed[block + 4] & 63)};
  }
  const uint8_t low = packed[block + 4];
  return {static_cast<uint8_t>((low & 15) | ((packed[block - 4] >> 6) << 4)),
          static_cast<uint8_t>((low >> 4) | ((packed[block] >> 6) << 4))};
}

}  // namespace deepinfer::kernels
