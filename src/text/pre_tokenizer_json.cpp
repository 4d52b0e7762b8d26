#include "text/pre_tokenizer_json.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace deepinfer::text {
namespace {

using simdjson::dom::element;

constexpr int kMaxDepth = 8;  // of sequences inside sequences

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekHan = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr std::string_view kDeepSeekRest =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct KnownSequence {
  SplitRule rule;
  std::vector<std::string_view> patterns;
};

const std::array<KnownSequence, 5>& known_sequences() {
  static const std::array<KnownSequence, 5> known = {{
      {SplitRule::gpt2, {kGpt2}},
      {SplitRule::smollm, {R"(\p{N})", kGpt2}},
      {SplitRule::llama3, {kLlama3}},
      {SplitRule::qwen2, {kQwen2}},
      {SplitRule::deepseek_v3, {R"(\p{N}{1,3})", kDeepSeekHan, kDeepSeekRest}},
  }};
  return known;
}

// Files write CR and LF as themselves or as escapes.
std::string with_escaped_newlines(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == '\r') {
      out += "\\r";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string quote_for_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto b = static_cast<uint8_t>(c);
    const bool plain =
        b >= 0x80 || (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z');
    if (!plain)
      out += fmt::format("\\x{{{:x}}}", b);
    else
      out += c;
  }
  return out;
}

// The stages of a pre-tokenizer as regular expressions.
struct Stages {
  const std::string& source;
  std::vector<std::string> patterns;
  bool byte_level = false;

  Error unsupported(std::string what) const {
    return Error::unsupported(source, "pre-tokenizer " + std::move(what));
  }

  Result<void> read(element json, int depth) {
    std::string_view type;
    if (json["type"].get(type)) return unsupported("without a type");
    if (byte_level) return unsupported(fmt::format("{} after ByteLevel", type));
    if (type == "Sequence") return read_sequence(json, depth);
    if (type == "Split") return read_split(json);
    if (type == "Digits") {
      bool individual = false;
      (void)json["individual_digits"].get(individual);
      patterns.emplace_back(individual ? R"(\p{N})" : R"(\p{N}+)");
      return {};
    }
    if (type == "ByteLevel") return read_byte_level(json);
    return unsupported(fmt::format("type \"{}\"", type));
  }

  Result<void> read_sequence(element json, int depth) {
    simdjson::dom::array list;
    if (json["pretokenizers"].get(list)) return unsupported("Sequence without pretokenizers");
    if (depth == kMaxDepth) return unsupported("Sequence nested too deeply");
    for (const element stage : list) TRY(read(stage, depth + 1));
    return {};
  }

  Result<void> read_split(element json) {
    std::string_view behavior;
    bool invert = false;
    (void)json["behavior"].get(behavior);
    (void)json["invert"].get(invert);
    if (behavior != "Isolated" || invert) {
      return unsupported(fmt::format("Split with behavior \"{}\" and invert {}", behavior, invert));
    }
    std::string_view pattern;
    if (!json["pattern"]["Regex"].get(pattern)) {
      patterns.push_back(with_escaped_newlines(pattern));
    } else if (!json["pattern"]["String"].get(pattern) && !pattern.empty()) {
      patterns.push_back(quote_for_regex(pattern));
    } else {
      return unsupported("Split without a pattern");
    }
    if (patterns.size() > RegexSplitter::kMaxPatterns) return unsupported("with too many stages");
    return {};
  }

  Result<void> read_byte_level(element json) {
    bool prefix_space = true;
    bool use_regex = true;
    (void)json["add_prefix_space"].get(prefix_space);
    (void)json["use_regex"].get(use_regex);
    if (prefix_space) return unsupported("ByteLevel with add_prefix_space");
    if (use_regex) patterns.emplace_back(kGpt2);
    byte_level = true;
    return {};
  }
};

}  // namespace

Result<std::variant<SplitRule, RegexSplitter>> read_pre_tokenizer(element json,
                                                                  const std::string& source) {
  Stages stages{source, {}, false};
  TRY(stages.read(json, 0));
  if (!stages.byte_level) return stages.unsupported("without ByteLevel");
  for (const KnownSequence& known : known_sequences()) {
    if (std::equal(known.patterns.begin(), known.patterns.end(), stages.patterns.begin(),
                   stages.patterns.end())) {
      return std::variant<SplitRule, RegexSplitter>(known.rule);
    }
  }
  return std::variant<SplitRule, RegexSplitter>(
      TRY(RegexSplitter::create(stages.patterns, source)));
}

Result<bool> read_normalizer(element json, const std::string& source) {
  if (json.is_null()) return false;
  std::string_view type;
  if (json["type"].get(type)) return Error::unsupported(source, "normalizer without a type");
  if (type == "NFC") return true;
  simdjson::dom::array list;
  if (type != "Sequence" || json["normalizers"].get(list)) {
    return Error::unsupported(source, fmt::format("normalizer type \"{}\"", type));
  }
  bool nfc = false;
  for (const element stage : list) {
    if (stage["type"].get(type)) type = "";
    if (type != "NFC") {
      return Error::unsupported(source, fmt::format("normalizer type \"{}\" in a Sequence", type));
    }
    nfc = true;
  }
  return nfc;
}

}  // namespace deepinfer::text
