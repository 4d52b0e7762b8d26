#pragma once

// From a fitted picture to what the encoder reads, and to what tells pictures apart.
//
// Source: spec vision.md sections 6 and 9.2. Threads: pure functions.

#include <array>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "image/layout.h"
#include "image/picture.h"

namespace deepinfer::image {

// The bf16 code of each sample: v / 255, - 0.5, / 0.5 in fp32, rounded once.
const std::array<uint16_t, 256>& pixel_table();

// The picture in the middle of its grid, the rest grey 127. Requires: it fits.
Result<Picture> pad_to_grid(const Picture& picture, Size grid);

// bf16 [patches][3 * patch * patch]: patches in raster order, a patch as channel, row, column.
// Requires: grid sides are multiples of patch.
Result<std::vector<uint16_t>> make_patches(const Picture& grid, uint32_t patch);

// SHA-256 of "dsv-image-1\0", vit_w and vit_h as little-endian words, and the grid's samples: the
// identity of a picture as the encoder sees it.
Sha256Digest image_digest(const Picture& grid, const Layout& layout);

}  // namespace deepinfer::image
