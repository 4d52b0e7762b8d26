#include "image/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "image/fault.h"
#include "image/patches.h"
#include "image/resize.h"

namespace deepinfer::image {
namespace {

Result<Picture> resize(const Picture& picture, Size size, Profile profile) {
  return profile == Profile::api ? resize_api(picture, size) : resize_native(picture, size);
}

Size native_inner(Size picture, Size grid, const Geometry& geometry) {
  if (geometry.max_wh_ratio && picture.width >= *geometry.max_wh_ratio * picture.height) {
    return grid;  // stretched
  }
  const Size inner = inner_size(picture, grid);
  return inner.width == 0 || inner.height == 0 ? grid : inner;
}

}  // namespace

Result<FittedPicture> fit_picture(Picture picture, const Geometry& geometry, Profile profile,
                                  const std::string& thing) {
  FittedPicture fitted;
  const Size size = picture.size;
  const bool api = profile == Profile::api;
  fitted.layout = api ? TRY(layout_api(size, geometry, thing)) : layout_once(size, geometry);
  const Size grid = fitted.layout.grid;
  if (grid.width == 0 || grid.height == 0) {
    return image_error(ImageFault::token_budget, thing,
                       fmt::format("{}x{} has no grid of {} tokens", size.width, size.height,
                                   geometry.max_image_tokens));
  }
  Size inner;
  if (api) {
    inner = inner_size(size, grid);
    inner = {std::max(inner.width, 1u), std::max(inner.height, 1u)};
  } else {
    inner = native_inner(size, grid, geometry);
  }
  if (inner == size) {
    fitted.picture = std::move(picture);
  } else {
    fitted.picture = TRY(resize(picture, inner, profile));
  }
  return fitted;
}

Result<PreparedImage> prepare_image(std::span<const std::byte> file, const Geometry& geometry,
                                    const PrepareOptions& options, const std::string& thing) {
  Picture picture = TRY(decode(file, options.decode, thing));
  PreparedImage image;
  image.source = picture.size;
  if (options.detail == Detail::low) {
    const Size low = low_detail_size(picture.size);
    if (low != picture.size) picture = TRY(resize(picture, low, options.profile));
  }
  FittedPicture fitted = TRY(fit_picture(std::move(picture), geometry, options.profile, thing));
  image.layout = fitted.layout;
  const Picture grid = TRY(pad_to_grid(fitted.picture, image.layout.grid));
  image.digest = image_digest(grid, image.layout);
  image.patches = TRY(make_patches(grid, geometry.patch));
  return image;
}

}  // namespace deepinfer::image
