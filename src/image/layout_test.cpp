#include "image/layout.h"

#include <gtest/gtest.h>

#include "image/golden_images.h"

namespace deepinfer::image {
namespace {

TEST(Layout, EverySizeOfTheTable) {
  const nlohmann::json table = golden_json("layouts.json");
  ASSERT_EQ(table["flash"].size(), 160u);
  const Geometry flash;
  for (const auto& known : table["flash"]) {
    const Size size = {known["size"][0], known["size"][1]};
    const Layout once = layout_once(size, flash);
    EXPECT_EQ(once, layout_of(known["native"])) << known.dump();
    EXPECT_EQ(layout_stable(size, flash, "image").value(), layout_of(known["stable"]))
        << known.dump();
    const Layout api = layout_api(size, flash, "image").value();
    EXPECT_EQ(api, layout_of(known["api"])) << known.dump();
    EXPECT_EQ(inner_size(size, once.grid),
              (Size{known["native_inner"][0], known["native_inner"][1]}))
        << known.dump();
    Size inner = inner_size(size, api.grid);
    inner = {std::max(inner.width, 1u), std::max(inner.height, 1u)};
    EXPECT_EQ(inner, (Size{known["api_inner"][0], known["api_inner"][1]})) << known.dump();
  }
}

TEST(Layout, WidthIsBoundByTheRatio) {
  const nlohmann::json table = golden_json("layouts.json");
  ASSERT_EQ(table["with_max_wh_ratio"].size(), 5u);
  for (const auto& known : table["with_max_wh_ratio"]) {
    Geometry geometry;
    geometry.max_wh_ratio = known["ratio"].get<double>();
    EXPECT_EQ(layout_once({known["size"][0], known["size"][1]}, geometry),
              layout_of(known["native"]))
        << known.dump();
  }
}

// Whatever the picture, the grid is made of whole patches and of no more tokens than allowed.
TEST(Layout, EverySizeFitsItsTokens) {
  const Geometry flash, tiny = tiny_geometry();
  for (const Geometry& geometry : {flash, tiny}) {
    for (uint32_t width = 1; width <= 8192; width = width * 5 / 4 + 1) {
      for (uint32_t height = 1; height <= 8192; height = height * 9 / 7 + 1) {
        const Layout layout = layout_once({width, height}, geometry);
        ASSERT_GE(layout.patches(), 1u) << width << "x" << height;
        ASSERT_LE(layout.tokens, geometry.max_image_tokens) << width << "x" << height;
        ASSERT_EQ(layout.grid.width, layout.vit_w * geometry.patch);
        ASSERT_EQ(layout.grid.height, layout.vit_h * geometry.patch);
        ASSERT_EQ(layout.tokens, layout.llm_h * (layout.llm_w + 1) + 2);
      }
    }
  }
}

TEST(Layout, LowDetailHasALongSideOf512) {
  EXPECT_EQ(low_detail_size({512, 100}), (Size{512, 100}));
  EXPECT_EQ(low_detail_size({1024, 3}), (Size{512, 2}));
  EXPECT_EQ(low_detail_size({8192, 1}), (Size{512, 1}));
  EXPECT_EQ(low_detail_size({300, 600}), (Size{256, 512}));
}

TEST(Layout, HalvesGoToTheEvenNumber) {
  EXPECT_EQ(round_half_even(472.5), 472.0);
  EXPECT_EQ(round_half_even(473.5), 474.0);
  EXPECT_EQ(round_half_even(0.5), 0.0);
  EXPECT_EQ(round_half_even(2.4999), 2.0);
  EXPECT_EQ(round_half_even(2.5001), 3.0);
}

}  // namespace
}  // namespace deepinfer::image
