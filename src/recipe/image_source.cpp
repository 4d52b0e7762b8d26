#include "recipe/image_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace deepinfer::recipe {
namespace {

constexpr size_t kMaxUrl = 8192;
constexpr std::array<std::string_view, 4> kMediaTypes = {"image/png", "image/jpeg", "image/gif",
                                                         "image/webp"};

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool is_web_url(std::string_view url) {
  const auto starts = [&](std::string_view scheme) {
    return url.size() >= scheme.size() &&
           std::equal(scheme.begin(), scheme.end(), url.begin(),
                      [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
  };
  return starts("http://") || starts("https://");
}

}  // namespace

bool is_base64(std::string_view text) {
  if (text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const std::string_view digits = text.substr(0, text.size() - padding);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return base64_value(c) >= 0; }))
    return false;
  if (padding == 0) return true;
  const int spare = padding == 1 ? 0x3 : 0xF;
  return (base64_value(digits.back()) & spare) == 0;
}

Accepted<Image> accept_image_url(std::string url, ImageDetail detail, std::string path,
                                 const std::string& field) {
  Image image{.kind = ImageKind::url, .detail = detail, .source = {}, .path = std::move(path)};
  constexpr std::string_view kData = "data:", kBase64 = ";base64,";
  if (url.starts_with(kData)) {
    const std::string_view rest = std::string_view(url).substr(kData.size());
    const size_t comma = rest.find(kBase64);
    if (comma == std::string_view::npos)
      return refused("image_url_format", field, "the data URL is not in base64");
    const std::string_view type = rest.substr(0, comma);
    if (std::find(kMediaTypes.begin(), kMediaTypes.end(), type) == kMediaTypes.end()) {
      return refused("image_media_type", field,
                     fmt::format("{} is not one of image/png, image/jpeg, image/gif, image/webp",
                                 type.substr(0, 64)));
    }
    if (!is_base64(rest.substr(comma + kBase64.size())))
      return refused("image_base64", field, "the data URL holds no valid base64");
    image.kind = ImageKind::data_url;
  } else if (!is_web_url(url)) {
    return refused("image_url_format", field, "is neither an http(s) URL nor a data URL");
  } else if (url.size() > kMaxUrl) {
    return refused("image_url_too_long", field,
                   fmt::format("the URL has {} bytes, the most is {}", url.size(), kMaxUrl));
  }
  image.source = std::move(url);
  return image;
}

}  // namespace deepinfer::recipe
