#include "image/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "image/fault.h"

namespace deepinfer::image {
namespace {

constexpr uint32_t kSideLimit = 1u << 24;
constexpr uint32_t kStableRounds = 10;
constexpr uint32_t kApiRounds = 6;
constexpr uint32_t kApiSide = 16383;  // of a WebP file
constexpr double kLowDetailSide = 512.0;

uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// width, height: multiples of the patch.
Layout of_grid(double width, double height, const Geometry& g) {
  Layout layout;
  layout.grid = {static_cast<uint32_t>(width), static_cast<uint32_t>(height)};
  layout.vit_w = layout.grid.width / g.patch;
  layout.vit_h = layout.grid.height / g.patch;
  layout.llm_w = divide_up(layout.vit_w, g.downsample);
  layout.llm_h = divide_up(layout.vit_h, g.downsample);
  layout.tokens = layout.llm_h * (layout.llm_w + 1) + 2;
  return layout;
}

}  // namespace

double round_half_even(double value) {
  const double below = std::floor(value);
  const double part = value - below;
  if (part != 0.5) return part < 0.5 ? below : below + 1.0;
  return std::fmod(below, 2.0) == 0.0 ? below : below + 1.0;
}

Layout layout_once(Size picture, const Geometry& g) {
  check(picture.width >= 1 && picture.height >= 1, "empty picture");
  check(picture.width <= kSideLimit && picture.height <= kSideLimit, "side of a picture");
  check(g.max_image_tokens >= 4, "tokens of an image");
  const double patch = g.patch;
  const double unit = patch * g.downsample;
  double width = picture.width, height = picture.height;
  if (g.max_wh_ratio && width > height * *g.max_wh_ratio) width = height * *g.max_wh_ratio;
  const double area = width * height;
  if (area < static_cast<double>(g.min_pixels)) {
    const double up = std::sqrt(static_cast<double>(g.min_pixels) / area);
    width = std::trunc(width * up);
    height = std::trunc(height * up);
  }
  // Of a long strip the tokens of the first grid may go beyond 32 bits; so do the cells in double.
  const double grid_w = std::ceil(width / patch) * patch;
  const double grid_h = std::ceil(height / patch) * patch;
  const double cells_w = std::ceil(grid_w / unit), cells_h = std::ceil(grid_h / unit);
  if (cells_h * (cells_w + 1.0) + 2.0 <= g.max_image_tokens) return of_grid(grid_w, grid_h, g);
  const double body = g.max_image_tokens - 2;
  const double ratio = height / width;
  const double columns =
      std::sqrt(body / ratio + 0.25) - 0.5;  // of columns * ratio * (columns + 1)
  const double rows = columns * ratio;
  if (columns < 1.0) return of_grid(unit, std::floor(body / 2.0) * unit, g);
  if (rows < 1.0) return of_grid((body - 1.0) * unit, unit, g);
  const double shrink =
      std::min(std::floor(columns) * unit / width, std::floor(rows) * unit / height);
  return of_grid(std::floor(width * shrink / patch) * patch,
                 std::floor(height * shrink / patch) * patch, g);
}

Result<Layout> layout_stable(Size picture, const Geometry& geometry, const std::string& thing) {
  Layout current = layout_once(picture, geometry);
  for (uint32_t round = 1; round < kStableRounds; ++round) {
    if (current.grid.width == 0 || current.grid.height == 0) break;
    const Layout next = layout_once(current.grid, geometry);
    if (next == current) return current;
    current = next;
  }
  return image_error(ImageFault::token_budget, thing,
                     fmt::format("the layout of {}x{} does not settle in {} rounds", picture.width,
                                 picture.height, kStableRounds));
}

Result<Layout> layout_api(Size picture, const Geometry& geometry, const std::string& thing) {
  for (uint32_t round = 0; round < kApiRounds; ++round) {
    const Layout layout = TRY(layout_stable(picture, geometry, thing));
    const Size grid = layout.grid;
    const uint32_t longest = std::max(grid.width, grid.height);
    if (longest <= kApiSide) return layout;
    const uint32_t long_side = kApiSide / geometry.patch * geometry.patch;
    const double wanted = static_cast<double>(std::min(grid.width, grid.height)) * long_side;
    const auto rounded = static_cast<uint32_t>(std::trunc(wanted / longest + 0.5));
    const uint32_t short_side = divide_up(std::max(1u, rounded), geometry.patch) * geometry.patch;
    picture = grid.width >= grid.height ? Size{long_side, short_side} : Size{short_side, long_side};
  }
  return image_error(
      ImageFault::token_budget, thing,
      fmt::format("no grid of {}x{} has sides up to {}", picture.width, picture.height, kApiSide));
}

Size inner_size(Size picture, Size grid) {
  const double w = picture.width, h = picture.height;
  const double width = grid.width, height = grid.height;
  const double own = w / h, asked = width / height;
  if (own > asked) return {grid.width, static_cast<uint32_t>(round_half_even(h / w * width))};
  if (own < asked) return {static_cast<uint32_t>(round_half_even(w / h * height)), grid.height};
  return grid;
}

Size low_detail_size(Size picture) {
  const double longest = std::max(picture.width, picture.height);
  if (longest <= kLowDetailSide) return picture;
  const auto shrunk = [&](uint32_t side) {
    return std::max(1u, static_cast<uint32_t>(std::round(side * kLowDetailSide / longest)));
  };
  return {shrunk(picture.width), shrunk(picture.height)};
}

}  // namespace deepinfer::image
