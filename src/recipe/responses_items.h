#pragma once

// The items of a Responses request as messages.
//
// Threads: pure functions.

#include <string>
#include <string_view>
#include <vector>

#include "recipe/responses_request.h"

namespace deepinfer::recipe {

// Appends the messages of input and instructions to the conversation. found: tools that searches
// of the client brought (V4.1); they are deferred.
Accepted<void> read_items(const ResponsesBody& body, Request& request, std::vector<Tool>& found);

// "ns::name", for V4 "ns__name".
std::string joined_tool_name(std::string_view name_space, std::string_view name, bool v41);
Tool tool_of(const ResponsesTool& source);

}  // namespace deepinfer::recipe
