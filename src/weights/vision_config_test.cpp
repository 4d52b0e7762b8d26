#include "weights/vision_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace deepinfer::weights {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kFolder = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/vision";

json tiny() {
  std::ifstream stream(kFolder + "/config.json");
  return json::parse(stream);
}

std::string refusal(const json& config) {
  const auto part = parse_vision_part(config.dump(), "config.json");
  return part.ok() ? "accepted" : part.error().text();
}

TEST(VisionPart, NeedsLittleOfTheTextPart) {
  json config = tiny();
  const VisionPart part = parse_vision_part(config.dump(), "config.json").value();
  EXPECT_EQ(part.vision.layers, 4u);
  EXPECT_EQ(part.vision.max_image_tokens, 26u);
  EXPECT_EQ(part.vision.max_wh_ratio, std::nullopt);
  EXPECT_EQ(part.text_hidden, 96u);
  EXPECT_EQ(part.vocab, 512u);
  EXPECT_EQ(part.image_token, 500u);
  // The same beside each other.
  config["hidden_size"] = 96;
  config["vocab_size"] = 512;
  config.erase("text_config");
  EXPECT_EQ(refusal(config), "accepted");
}

TEST(VisionPart, WrongFieldsAreNamed) {
  for (const char* key :
       {"patch_size", "downsample_ratio", "max_image_tokens", "min_pixels", "num_hidden_layers",
        "hidden_size", "num_attention_heads", "intermediate_size"}) {
    for (const json& value : {json(0), json(-1), json(1.5), json("14"), json(true), json()}) {
      json config = tiny();
      config["vision_config"][key] = value;
      EXPECT_THAT(refusal(config), HasSubstr(std::string("vision_config: ") + key)) << value.dump();
    }
  }
  for (const char* key : {"vision_config", "image_token_id"}) {
    json config = tiny();
    config.erase(key);
    EXPECT_THAT(refusal(config), HasSubstr(std::string(key) + ": is missing"));
  }
}

TEST(VisionPart, ContradictionsNameBothValues) {
  json config = tiny();
  config["image_token_id"] = 512;
  EXPECT_THAT(refusal(config), HasSubstr("image_token_id: is 512, vocab_size is 512"));
  config = tiny();
  config["vision_config"]["num_attention_heads"] = 5;
  EXPECT_THAT(refusal(config), HasSubstr("hidden_size: is 64, expected 5 heads"));
  config = tiny();
  config["vision_config"]["max_wh_ratio"] = 0.5;
  EXPECT_THAT(refusal(config), HasSubstr("max_wh_ratio: is 0.5"));
  config["vision_config"]["max_wh_ratio"] = 8;
  EXPECT_EQ(refusal(config), "accepted");
}

}  // namespace
}  // namespace deepinfer::weights
