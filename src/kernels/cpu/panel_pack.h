#pragma once

// The packed form of quantised weights: `lanes` rows (8 or 16) interleaved into a panel of
// superblocks, scales first, codes after. lanes is the width of the vector: a vector of dwords
// holds 4 consecutive inputs of each row, so one lane is one output.
//
// A superblock has kBlocks blocks of 32 inputs (4, or 8 for the K formats):
//   Q4_0   [4][lanes] f16 d                                  | nibbles
//   Q4_1   [4][lanes] f16 d, [4][lanes] f16 m                | nibbles
//   Q8_0   [4][lanes] f16 d                                  | bytes
//   MXFP4  [4][lanes] u8 exponent                            | nibbles
//   Q4_K   [lanes] f16 d, [lanes] f16 dmin, [8][lanes] u8 scale, [8][lanes] u8 min | nibbles
//   Q6_K   [lanes] f16 d, [lanes] 0, [16][lanes] i8 scale    | nibbles, then 2-bit parts
// nibbles: per block 4 vectors of dwords; vector i holds inputs 4i..4i+3 in its low nibbles and
// 4(i+4)..4(i+4)+3 in its high nibbles. bytes: 8 vectors, inputs 4i..4i+3 in vector i. 2-bit parts:
// per block 2 vectors; vector j holds inputs of step 4j+s in bits 2s, 2s+1.
// The last superblock may be partial: its scales are whole, its codes end with the last block.
//
// Source: the layouts of kernels.md section 3, with the superblock's tail added. Threads: any.

#include <cstddef>
#include <cstdint>

#include "tensor/scaled_view.h"
#include "tensor/tensor.h"

namespace deepinfer::kernels {

enum class CodeBits : uint8_t { nibbles, bytes, nibbles_and_pairs };

struct PanelFormat {
  size_t blocks;            // per superblock
  size_t scale_lane_bytes;  // scale bytes of a superblock per lane
  size_t block_lane_bytes;  // code bytes of a block per lane: 16, 32 or 24
  CodeBits bits;
};
PanelFormat panel_format(DType dtype);
bool has_panel_format(DType dtype);

size_t panel_bytes(DType dtype, size_t lanes, size_t inputs);

// code_flip: xor-ed into every byte code (0x80 turns signed bytes into offset 128); 0 otherwise.
// F4_E2M1 codes with scales of 1x32 tiles become MXFP4 panels.
void pack_panel(const ScaledView& weights, size_t first_output, size_t lanes, uint8_t code_flip,
                std::byte* panel);

// A row of F4_E2M1 codes with scales of 1x32 tiles as MXFP4 blocks: row [inputs / 32 * 17] bytes.
void mxfp4_row(const ScaledView& weights, size_t output, std::byte* row);

// One block of 32 inputs of a row in the file's form, as unsigned codes (Q8_0: the signed byte).
void read_block_codes(DType dtype, const std::byte* row, size_t block, uint8_t codes[32]);

// The Q4_K scale and minimum (6 bits each) of sub-block 0..7, from the 12 packed bytes.
struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};
ScaleMin q4_k_scale_min(const uint8_t* packed, size_t block);

}  // namespace deepinfer::kernels
