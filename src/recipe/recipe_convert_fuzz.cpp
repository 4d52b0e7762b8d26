// Bodies of the three protocols: any bytes are refused or become a request whose prompt has control
// tokens only where the layout put them.

#include <array>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "recipe/common_form.h"
#include "recipe/recipe_line.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::recipe;

Accepted<Request> accept(uint8_t choice, std::string_view body) {
  ConversionOptions options;
  options.models.emplace("v4", DeepSeekVersion::v4);
  options.models.emplace("v41", DeepSeekVersion::v41);
  if ((choice & 4) != 0) options.missing_reasoning = ConversionOptions::MissingReasoning::reject;
  switch (choice & 3) {
    case 0: {
      const ChatBody read = TRY(read_chat_body(body));
      return accept_chat(read, options);
    }
    case 1: {
      const MessagesBody read = TRY(read_messages_body(body));
      return accept_messages(read, options);
    }
    default: {
      const ResponsesBody read = TRY(read_responses_body(body));
      return TRY(accept_responses(read, options)).request;
    }
  }
}

bool is_control(std::string_view spelling) {
  const DeepSeekTokens tokens;
  const std::array<std::string_view, 10> all = {
      tokens.begin,    tokens.end,   tokens.system,    tokens.user, tokens.assistant,
      tokens.reminder, tokens.think, tokens.end_think, tokens.dsml, tokens.image};
  for (std::string_view one : all) {
    if (one == spelling) return true;
  }
  return false;
}

}  // namespace

// The first byte chooses the protocol and options; the rest is the body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Accepted<Request> request = accept(data[0], body);
  if (!request.ok()) {
    check(!request.error().message.empty() && !request.error().category.empty(), "a reason");
    return 0;
  }
  const Conversation& conversation = request.value().conversation;
  const PromptPieces prompt = render_deepseek(conversation, request.value().version);
  size_t last = 0;
  for (const ByteRange& range : prompt.control_ranges()) {
    check(range.begin >= last && range.end <= prompt.text().size(), "ranges in order");
    check(is_control(std::string_view(prompt.text()).substr(range.begin, range.end - range.begin)),
          "a control token");
    last = range.end;
  }
  // The common form reads back as itself.
  const std::string text = conversation_json(conversation).text(JsonStyle::compact);
  const auto document = JsonDocument::parse(text, "form", {.depth = 300});
  check(document.ok(), "the common form is JSON");
  return 0;
}
