#pragma once

// Outputs of models in lines of `deepinfer recipe`: parsed, and as the answer of a protocol.
//
// Threads: pure functions.

#include <optional>
#include <vector>

#include "recipe/answer_stream.h"
#include "recipe/recipe_line.h"

namespace deepinfer::recipe {

// The events of a parse line whose text or tokens come `size` characters or ids a chunk, all at
// once for 0.
Result<std::vector<AnswerEvent>> parse_line(const JsonValue& line, size_t size,
                                            const std::optional<text::Tokenizer>& tokenizer);

// {content, reasoning, tool_calls, finish_reason, stop_reason, stop_sequence}
Json parsed_message(const std::vector<AnswerEvent>& events);
// [["content" | "reasoning" | "call" | "args", text], …]
Json parsed_deltas(const std::vector<AnswerEvent>& events);

// The answer to a request whose backend chunks the line holds: {sse, complete | error}.
Result<Json> answer_line(const JsonValue& line, Protocol protocol, const Request& request,
                         const ResponsesEcho& echo,
                         const std::optional<text::Tokenizer>& tokenizer);

}  // namespace deepinfer::recipe
