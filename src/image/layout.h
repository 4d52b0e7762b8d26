#pragma once

// From the size of a picture to the grid that the encoder sees and the tokens it takes.
//
//   Layout grid = layout_once({1920, 1080}, geometry);  // Flash: 1708x966, 968 tokens
//   Size inner = inner_size({1920, 1080}, grid);        // 1708x961, padded to the grid
//
// All divisions and roots are IEEE double in the order of the specification (vision.md section 4),
// so that every size gives the official counts. Threads: pure functions.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "image/picture.h"

namespace deepinfer::image {

// The values of vision_config that pictures depend on.
struct Geometry {
  uint32_t patch = 14;      // pixels of a side
  uint32_t downsample = 3;  // patches of a side of a merged cell
  uint32_t max_image_tokens = 1024;
  uint64_t min_pixels = 295936;
  std::optional<double> max_wh_ratio = {};
};

struct Layout {
  Size grid;                      // pixels, multiples of the patch
  uint32_t vit_w = 0, vit_h = 0;  // patches
  uint32_t llm_w = 0, llm_h = 0;  // merged cells, rounded up
  uint32_t tokens = 0;            // llm_h * (llm_w + 1) + 2
  bool operator==(const Layout&) const = default;

  uint32_t patches() const { return vit_w * vit_h; }
  uint32_t cells() const { return llm_w * llm_h; }
};

// One pass: what the engine does. Requires: sides in 1 .. 2^24.
Layout layout_once(Size picture, const Geometry& geometry);

// Repeated on its own result until nothing changes: what the hosted service bills. Fails
// (TokenBudget) after 10 rounds.
Result<Layout> layout_stable(Size picture, const Geometry& geometry, const std::string& thing);

// The same with sides of at most 16383, as the hosted service prepares pictures.
Result<Layout> layout_api(Size picture, const Geometry& geometry, const std::string& thing);

// Size of the picture inside of the grid, with its proportions; a side may come out as 0.
Size inner_size(Size picture, Size grid);

// `detail: low`: a long side above 512 becomes 512, the other follows, at least 1.
Size low_detail_size(Size picture);

// Rounds to the nearest whole number, halves to the even one.
double round_half_even(double value);

}  // namespace deepinfer::image
