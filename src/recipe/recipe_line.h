#pragma once

// One line of a golden file, or of `deepinfer recipe`: what goes in, and what comes out.
//
//   LineRunner runner(Protocol::chat);
//   Json output = TRY(runner.run(LineTask::convert, line));
//   std::optional<std::string> difference = runner.difference(LineTask::convert, line, output);
//
// Lines name the models "v4" and "v41"; ids are "ID", "MODEL" and "*", clocks are 0, so that two
// runs give the same bytes.
//   encode   {version, source, request | conversation, options?}, or a conversation by itself
//            -> {prompt, special_ranges, images, ids (with a tokenizer)}
//   parse    {options, text | tokens, finish} -> {content, reasoning, tool_calls, finish_reason,
//            stop_reason, stop_sequence}
//   convert  {kind: "request", request, options?} -> the common form, or an error
//            {kind: "response", request, backend} -> {sse, complete | error}
//            {kind: "resolve_max_tokens", request, prompt_tokens, context_limit} -> a number
//            {protocol, request} of errors -> {kind, status, category, field, message, …}
//
// Errors (invalid) are about the line itself; a request that is refused is an output. Threads: a
// runner does not change; tokenizers may be shared.

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "recipe/chat_request.h"
#include "recipe/json_tree.h"
#include "recipe/layout.h"
#include "recipe/messages_request.h"
#include "recipe/responses_request.h"
#include "text/tokenizer.h"

namespace deepinfer::recipe {

enum class LineTask { encode, parse, convert };
enum class Protocol { chat, messages, responses };

std::optional<Protocol> protocol_from_name(std::string_view name);  // chat, anthropic, responses

class LineRunner {
 public:
  explicit LineRunner(Protocol protocol) : protocol_(protocol) {}

  // Without tokenizers there are no ids, and no token chunks can be read.
  std::optional<text::Tokenizer> v4, v41;
  // Of encode; nothing: that of the version which the line or its request names.
  std::optional<Layout> layout;

  Result<Json> run(LineTask task, const JsonValue& line) const;

  // What differs between the output and what the line expects, streams of parse lines included;
  // nothing when they are equal.
  Result<std::optional<std::string>> difference(LineTask task, const JsonValue& line,
                                                const Json& output) const;

 private:
  // A converted request with what its response needs.
  struct Converted {
    Request request;
    ResponsesEcho echo;
  };

  Result<Json> encode(const JsonValue& line) const;
  Result<Json> parse(const JsonValue& line) const;
  Result<Json> convert(const JsonValue& line) const;
  Result<Json> response(const JsonValue& line) const;
  Result<Json> refused_line(const JsonValue& line) const;
  Accepted<Converted> convert_body(Protocol protocol, const std::string& body,
                                   const ConversionOptions& options) const;
  const std::optional<text::Tokenizer>& tokenizer(DeepSeekVersion version) const {
    return version == DeepSeekVersion::v4 ? v4 : v41;
  }

  Protocol protocol_;
};

}  // namespace deepinfer::recipe
