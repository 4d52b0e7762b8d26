#pragma once

// The common form as JSON: what `deepinfer recipe` reads and writes, and what golden files hold.
//
//   {"messages": [{"role": "user", "content": "Hello"}], "thinking_mode": true, …}
//
// Content is one string here, with "<｜image｜>" at the place of an image. Absent members have
// their defaults when read. Threads: pure functions.

#include "base/json.h"
#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

Json conversation_json(const Conversation& conversation);
Json image_json(const Image& image);
Json request_json(const Request& request);

// Errors (invalid) name the field.
Result<Conversation> conversation_from_json(const JsonValue& value);
Result<ParsingOptions> parsing_from_json(const JsonValue& value);

}  // namespace deepinfer::recipe
