#include "apps/prompt_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "image/limits.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kMaxInputBytes = size_t{1} << 30;
const std::vector<std::string_view> kPromptMembers = {"prompt", "ids", "messages", "images"};

struct Line {
  std::string_view text;
  size_t number;
};

std::vector<Line> lines_of(std::string_view content) {
  std::vector<Line> lines;
  for (size_t number = 1; !content.empty(); ++number) {
    const size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.push_back({line, number});
  }
  return lines;
}

Result<std::vector<int32_t>> ids_of(const JsonValue& value) {
  std::vector<int32_t> ids;
  for (const JsonValue& id : TRY(value.array())) ids.push_back(TRY(id.as<int32_t>()));
  return ids;
}

Result<recipe::Conversation> conversation_of(const JsonValue& value) {
  recipe::Conversation conversation;
  for (const JsonValue& one : TRY(value.array())) {
    for (const JsonMember& member : TRY(one.members())) {
      if (member.key != "role" && member.key != "content")
        return member.value.error("this member is not known here");
    }
    const std::string role = TRY(one.get<std::string>("role"));
    const auto known = recipe::role_from_name(role);
    if (!known) return one.error("\"" + role + "\" is not a role");
    conversation.messages.push_back({*known, TRY(one.get<std::string>("content"))});
  }
  return conversation;
}

// Paths are relative to the folder of the file that names them; of stdin, to the current one.
Result<std::vector<llm::ImageFile>> images_of(const JsonValue& value, const std::string& name) {
  std::vector<llm::ImageFile> images;
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  for (const JsonValue& one : TRY(value.array())) {
    const std::string path = TRY(one.as<std::string>());
    const std::string place = (folder / path).string();
    images.push_back({TRY(read_file(place, image::ImageLimits().image_bytes)), path});
  }
  return images;
}

std::string ids_heading(const std::vector<int32_t>& ids) {
  return fmt::format("{} ids", ids.size());
}

Result<PromptLine> prompt_from_json(const Line& line, const std::string& name,
                                    const std::string& place, SamplingSettings settings,
                                    PromptRules rules) {
  const JsonDocument document = TRY(JsonDocument::parse(line.text, place));
  const JsonValue& root = document.root();
  if (root.is_array()) {
    const std::vector<int32_t> ids = TRY(ids_of(root));
    PromptLine result{TRY(settings.prompt()), ids_heading(ids), place};
    result.prompt.input = ids;
    return result;
  }
  TRY(settings.take_members(root, kPromptMembers));
  PromptLine result{TRY(settings.prompt()), "", place};
  const JsonValue* prompt = root.find("prompt");
  const JsonValue* ids = root.find("ids");
  const JsonValue* messages = root.find("messages");
  if ((prompt != nullptr) + (ids != nullptr) + (messages != nullptr) != 1)
    return Error::invalid(place, "needs one of \"prompt\", \"ids\" and \"messages\"");
  if (rules.ids && ids == nullptr) return Error::invalid(place, "has no \"ids\", as --ids wants");
  if (ids != nullptr) {
    std::vector<int32_t> list = TRY(ids_of(*ids));
    result.heading = ids_heading(list);
    result.prompt.input = std::move(list);
  } else if (messages != nullptr) {
    recipe::Conversation conversation = TRY(conversation_of(*messages));
    if (!conversation.messages.empty()) result.heading = conversation.messages.back().content.text;
    result.prompt.input = std::move(conversation);
  } else {
    const std::string text = TRY(prompt->as<std::string>());
    result.heading = text;
    result.prompt.input = text;
    if (rules.chat) result.prompt.input = recipe::Conversation{{{recipe::Role::user, text}}};
  }
  if (const JsonValue* images = root.find("images")) {
    result.prompt.images = TRY(images_of(*images, name));
  }
  return result;
}

}  // namespace

Result<std::vector<int32_t>> parse_ids(std::string_view text, const std::string& place) {
  std::vector<int32_t> ids;
  size_t at = 0;
  while (true) {
    while (at < text.size() && std::strchr(" \t,[]", text[at]) != nullptr) ++at;
    if (at >= text.size()) return ids;
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    const size_t next = static_cast<size_t>(end - text.data());
    if (error != std::errc() || (next < text.size() && !std::strchr(" \t,]", text[next]))) {
      return Error::invalid(place,
                            fmt::format("\"{}\" is not a list of token ids", text.substr(0, 40)));
    }
    ids.push_back(id);
    at = next;
  }
}

Result<PromptLine> prompt_from_text(const std::string& text, const std::string& place,
                                    const SamplingSettings& settings, PromptRules rules) {
  PromptLine result{TRY(settings.prompt()), text, place};
  if (rules.ids) {
    result.prompt.input = TRY(parse_ids(text, place));
  } else if (rules.chat) {
    result.prompt.input = recipe::Conversation{{{recipe::Role::user, text}}};
  } else {
    result.prompt.input = text;
  }
  return result;
}

Result<std::vector<PromptLine>> parse_prompts(const std::string& content, const std::string& name,
                                              const SamplingSettings& settings, PromptRules rules) {
  const std::vector<Line> lines = lines_of(content);
  if (lines.empty()) return Error::invalid(name, "holds no prompt");
  const size_t first = lines.front().text.find_first_not_of(" \t");
  const char start = lines.front().text[first];
  const bool json = name.ends_with(".txt") ? false
                    : name == "stdin"      ? start == '{' || start == '['
                                           : true;
  std::vector<PromptLine> prompts;
  for (const Line& line : lines) {
    const std::string place = fmt::format("{} line {}", name, line.number);
    prompts.push_back(TRY(json ? prompt_from_json(line, name, place, settings, rules)
                               : prompt_from_text(std::string(line.text), place, settings, rules)));
  }
  return prompts;
}

Result<std::vector<IdsLine>> read_ids_file(const std::string& path) {
  const std::string content = TRY(path == "-" ? read_stdin() : read_file(path, kMaxInputBytes));
  const std::string name = path == "-" ? "stdin" : path;
  std::vector<IdsLine> result;
  for (const Line& line : lines_of(content)) {
    const std::string place = fmt::format("{} line {}", name, line.number);
    const JsonDocument document = TRY(JsonDocument::parse(line.text, place));
    const JsonValue* ids = &document.root();
    if (!ids->is_array()) ids = TRY(document.root().member("ids"));
    result.push_back({TRY(ids_of(*ids)), place});
  }
  if (result.empty()) return Error::invalid(name, "holds no ids", "lines like {\"ids\": [1, 2]}");
  return result;
}

Result<std::string> read_stdin() {
  std::string text;
  char block[1 << 16];
  while (true) {
    const ssize_t got = read(STDIN_FILENO, block, sizeof block);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::io("stdin", std::strerror(errno));
    text.append(block, static_cast<size_t>(got));
    if (text.size() > kMaxInputBytes) return Error::invalid("stdin", "is longer than 1 GiB");
  }
}

}  // namespace deepinfer::apps
