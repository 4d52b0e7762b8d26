// The prompt of DeepSeek V4. All system texts stand at the front, wherever they were; results and
// calls are sorted by the text of their ids.

#include <algorithm>
#include <span>
#include <utility>

#include "recipe/deepseek_sections.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kHighEffort =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve the root cause, rigorously stress-testing your logic against all potential paths, "
    "edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, "
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "
    "unchecked.\n\n";
constexpr std::string_view kMaxEffort =
    "Reasoning Effort: Beyond maximum \u2014 exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: "
    "exhaustively decompose the problem into its most fundamental components, trace every causal "
    "chain to its root, and resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple "
    "angles and are certain that no assumption remains unchecked and no error remains "
    "undiscovered.\n\n";

std::string_view effort_text(const std::optional<Effort>& effort) {
  if (effort == Effort::low) return {};
  return effort == Effort::max ? kMaxEffort : kHighEffort;
}

// One turn of the prompt: a message, or all users in a row.
struct Turn {
  const Message* message;
  std::vector<const Message*> users;
};

// Results by the text of their ids, then all else; equal ones keep their order.
void sort_results(std::span<Turn> turns) {
  std::vector<std::pair<Turn, size_t>> placed;
  for (Turn& turn : turns) placed.emplace_back(std::move(turn), placed.size());
  std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) {
    const Message& left = *a.first.message;
    const Message& right = *b.first.message;
    if (left.role == Role::tool && right.role == Role::tool) {
      const int order = left.tool_call_id.value_or("").compare(right.tool_call_id.value_or(""));
      return order != 0 ? order < 0 : a.second < b.second;
    }
    if (left.role == Role::tool || right.role == Role::tool) return left.role == Role::tool;
    return a.second < b.second;
  });
  for (size_t i = 0; i < turns.size(); ++i) turns[i] = std::move(placed[i].first);
}

// Turns without system messages, results behind their calls sorted by id.
std::vector<Turn> turns_of(const Conversation& conversation) {
  std::vector<Turn> turns;
  for (const Message& message : conversation.messages) {
    if (message.role == Role::system) continue;
    const bool user = message.role == Role::user;
    if (!user || turns.empty() || turns.back().message->role != Role::user)
      turns.push_back({&message, {}});
    if (user && !message.content.empty()) turns.back().users.push_back(&message);
  }
  struct Window {
    size_t begin, count;
  };
  std::vector<Window> windows;  // found before the first sort moves anything
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto& calls = turns[i].message->tool_calls;
    if (turns[i].message->role == Role::assistant && calls && !calls->empty())
      windows.push_back({i + 1, calls->size()});
  }
  for (const Window& window : windows) {
    if (window.count <= turns.size() - window.begin)
      sort_results(std::span(turns).subspan(window.begin, window.count));
  }
  return turns;
}

void write_front(DeepSeekWriter& writer) {
  const Conversation& conversation = writer.conversation;
  if (conversation.thinking) writer.prompt.plain(effort_text(conversation.effort));
  bool first = true;
  for (const Message& message : conversation.messages) {
    if (message.role != Role::system || message.content.empty()) continue;
    if (!first) writer.prompt.plain("\n\n");
    first = false;
    writer.prompt.content(message.content, writer.tokens.image);
  }
  if (conversation.shows_tools()) writer.tools_section();
  writer.prompt.plain(writer.response_format());
}

void write_user_or_tool(DeepSeekWriter& writer, const Turn& turn, const Message* previous) {
  const bool joined =
      previous != nullptr && (previous->role == Role::tool ||
                              (previous->role == Role::user && turn.message->role == Role::user));
  if (joined) {
    writer.prompt.plain("\n\n");
  } else {
    writer.prompt.control(writer.tokens.user);
  }
  if (turn.message->role == Role::tool) return writer.turn_part(*turn.message);
  for (const Message* user : turn.users) {
    if (user != turn.users.front()) writer.prompt.plain("\n\n");
    writer.turn_part(*user);
  }
}

}  // namespace

PromptPieces render_deepseek_v4(DeepSeekWriter writer) {
  writer.prompt.control(writer.tokens.begin);
  write_front(writer);
  const std::vector<Turn> turns = turns_of(writer.conversation);
  const Message* previous = nullptr;
  for (const Turn& turn : turns) {
    const Message& message = *turn.message;
    if (message.role == Role::user || message.role == Role::tool) {
      write_user_or_tool(writer, turn, previous);
    } else if (message.role == Role::latest_reminder) {
      writer.prompt.control(writer.tokens.reminder);
      writer.prompt.plain(message.content.text);
    } else {
      writer.assistant_turn(message, &turn == &turns.back(), false);
    }
    previous = &message;
  }
  writer.header(previous != nullptr && previous->role == Role::assistant && previous->prefix);
  return std::move(writer.prompt);
}

}  // namespace deepinfer::recipe
