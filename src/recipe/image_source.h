#pragma once

// Images that requests name by a URL. Nothing is fetched or decoded here.
//
// Threads: pure functions.

#include <string>
#include <string_view>

#include "recipe/conversation.h"
#include "recipe/refusal.h"

namespace deepinfer::recipe {

// What V4, which sees nothing, reads in the place of an image.
inline constexpr std::string_view kUnsupportedImage = "[Unsupported Image]";

// A data URL with base64 of PNG, JPEG, GIF or WebP, or an http(s) URL of at most 8192 bytes. path
// is where it stood; `field` names it in errors.
Accepted<Image> accept_image_url(std::string url, ImageDetail detail, std::string path,
                                 const std::string& field);

// Standard alphabet, padded, no spare bits; may be empty.
bool is_base64(std::string_view text);

}  // namespace deepinfer::recipe
