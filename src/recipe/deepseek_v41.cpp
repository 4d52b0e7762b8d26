// The prompt of DeepSeek V4.1. System messages keep their place behind a token of their own;
// results stand in the order of the calls.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "recipe/deepseek_sections.h"

namespace deepinfer::recipe {
namespace {

using Messages = std::vector<const Message*>;

std::string effort_line(const std::optional<Effort>& effort) {
  const int level = effort == Effort::low ? 50 : effort == Effort::max ? 100 : 75;
  return fmt::format(
      "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)"
      "\n\n",
      level);
}

// Of reminders in a row the first one stays.
Messages rendered_messages(const Conversation& conversation) {
  Messages messages;
  for (const Message& message : conversation.messages) {
    if (message.role == Role::latest_reminder && !messages.empty() &&
        messages.back()->role == Role::latest_reminder)
      continue;
    messages.push_back(&message);
  }
  return messages;
}

// Places of the calls of the last assistant that made some, by id.
using CallOrder = std::map<std::string_view, size_t>;

CallOrder order_of(const std::vector<ToolCall>& calls) {
  CallOrder order;
  for (size_t i = 0; i < calls.size(); ++i) order[calls[i].id] = i;
  return order;
}

// Results with an id change places among themselves, into the order of the calls.
void sort_results(std::span<const Message*> turn, const CallOrder& order) {
  std::vector<size_t> places;
  Messages results;
  for (size_t i = 0; i < turn.size(); ++i) {
    if (turn[i]->role != Role::tool || !turn[i]->tool_call_id) continue;
    places.push_back(i);
    results.push_back(turn[i]);
  }
  const auto place_of = [&](const Message* message) {
    const auto found = order.find(*message->tool_call_id);
    return found == order.end() ? 0 : found->second;
  };
  // Messages of one conversation: addresses keep the order of equal ones.
  std::sort(results.begin(), results.end(), [&](const Message* a, const Message* b) {
    const size_t left = place_of(a), right = place_of(b);
    return left != right ? left < right : a < b;
  });
  for (size_t i = 0; i < places.size(); ++i) turn[places[i]] = results[i];
}

void write_system(DeepSeekWriter& writer, const Message& message, bool first,
                  std::string_view format) {
  writer.prompt.content(message.content, writer.tokens.image);
  if (first) {
    if (writer.conversation.shows_tools()) writer.tools_section();
    writer.prompt.plain(format);
  }
  if (message.tools && !message.tools->empty()) {
    writer.prompt.plain("\n\n### Updated Tool Schemas\n\n");
    writer.prompt.plain(writer.schema_lines(*message.tools, false));
  }
}

void write_turn(DeepSeekWriter& writer, std::span<const Message* const> turn) {
  writer.prompt.control(writer.tokens.user);
  for (const Message* const& message : turn) {
    if (&message != turn.data()) writer.prompt.plain("\n\n");
    writer.turn_part(*message);
  }
}

bool opens_turn(const Message& message) {
  return message.role == Role::user || message.role == Role::tool;
}

}  // namespace

PromptPieces render_deepseek_v41(DeepSeekWriter writer) {
  const Conversation& conversation = writer.conversation;
  const std::string format = writer.response_format();
  Messages messages = rendered_messages(conversation);
  Message empty_system;
  empty_system.role = Role::system;
  const bool system_first = !messages.empty() && messages.front()->role == Role::system;
  if ((conversation.shows_tools() || !format.empty()) && !system_first)
    messages.insert(messages.begin(), &empty_system);

  writer.prompt.control(writer.tokens.begin);
  CallOrder order;
  for (size_t i = 0; i < messages.size();) {
    const Message& message = *messages[i];
    const bool first = i == 0;
    const bool effort = first && conversation.thinking;
    if (effort || message.role == Role::system) writer.prompt.control(writer.tokens.system);
    if (effort) writer.prompt.plain(effort_line(conversation.effort));
    if (opens_turn(message)) {
      size_t end = i;
      while (end < messages.size() && opens_turn(*messages[end])) ++end;
      const std::span<const Message*> turn = std::span(messages).subspan(i, end - i);
      sort_results(turn, order);
      write_turn(writer, turn);
      i = end;
      continue;
    }
    if (message.role == Role::system) {
      write_system(writer, message, first, format);
    } else if (message.role == Role::latest_reminder) {
      writer.prompt.control(writer.tokens.reminder);
      writer.prompt.plain(message.content.text);
    } else {
      writer.assistant_turn(message, i + 1 == messages.size(), first);
      if (message.tool_calls && !message.tool_calls->empty()) order = order_of(*message.tool_calls);
    }
    ++i;
  }
  writer.header(conversation.continues());
  return std::move(writer.prompt);
}

}  // namespace deepinfer::recipe
