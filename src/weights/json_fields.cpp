#include "weights/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weights/config_reader.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kConfigLimit = size_t{16} << 20;

struct Architecture {
  std::string_view name;
  Family family;
};
constexpr Architecture kArchitectures[] = {{"LlamaForCausalLM", Family::llama},
                                           {"Qwen2ForCausalLM", Family::qwen2},
                                           {"Qwen3ForCausalLM", Family::qwen3},
                                           {"DeepseekV3ForCausalLM", Family::deepseek_v3},
                                           {"DeepseekV32ForCausalLM", Family::deepseek_v32},
                                           {"DeepseekV4ForCausalLM", Family::deepseek_v4},
                                           {"DeepseekV41ForCausalLM", Family::deepseek_v41}};

Error unknown_architecture(const Fields& fields, std::string_view name) {
  std::string known;
  for (const Architecture& one : kArchitectures) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  }
  return Error::unsupported(fields.source(), fmt::format("unknown architecture {}, known are {}",
                                                         printable(name), known));
}

}  // namespace

std::string Fields::thing(std::string_view key) const {
  return fmt::format("{}: {}", source_, key);
}

std::optional<element> Fields::find(std::string_view key) const {
  element value;
  if (fields_.at_key(key).get(value) != SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

Error Fields::mismatch(std::string_view key, const element& value,
                       const std::string& expected) const {
  return Error::corrupt(thing(key), fmt::format("is {}, expected {}",
                                                printable(simdjson::to_string(value)), expected));
}

Error Fields::conflict(std::string_view key, const std::string& what) const {
  return Error::corrupt(thing(key), what);
}

Result<uint64_t> Fields::whole(std::string_view key, uint64_t least, uint64_t most) const {
  const std::optional<element> value = find(key);
  if (!value) return Error::corrupt(thing(key), "is missing");
  uint64_t number = 0;
  if (value->get(number) != SUCCESS || number < least || number > most) {
    return mismatch(key, *value, fmt::format("a whole number from {} to {}", least, most));
  }
  return number;
}

Result<uint32_t> Fields::count(std::string_view key, uint64_t most) const {
  return static_cast<uint32_t>(TRY(whole(key, 1, most)));
}

Result<uint32_t> Fields::count_or(std::string_view key, uint64_t most, uint32_t fallback) const {
  if (!has(key)) return fallback;
  return count(key, most);
}

Result<uint32_t> Fields::amount_or(std::string_view key, uint64_t most, uint32_t fallback) const {
  if (!has(key)) return fallback;
  return static_cast<uint32_t>(TRY(whole(key, 0, most)));
}

Result<double> Fields::number(std::string_view key) const {
  const std::optional<element> value = find(key);
  if (!value) return Error::corrupt(thing(key), "is missing");
  double number = 0;
  if (value->get(number) != SUCCESS || !std::isfinite(number)) {
    return mismatch(key, *value, "a number");
  }
  return number;
}

Result<double> Fields::number_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  return number(key);
}

Result<double> Fields::positive(std::string_view key) const {
  const double value = TRY(number(key));
  if (value > 0) return value;
  return Error::corrupt(thing(key), fmt::format("is {}, expected a number above 0", value));
}

Result<bool> Fields::flag_or(std::string_view key, bool fallback) const {
  const std::optional<element> value = find(key);
  if (!value) return fallback;
  bool flag = false;
  if (value->get(flag) != SUCCESS) return mismatch(key, *value, "true or false");
  return flag;
}

Result<std::string> Fields::text_or(std::string_view key, std::string_view fallback) const {
  const std::optional<element> value = find(key);
  if (!value) return std::string(fallback);
  std::string_view text;
  if (value->get(text) != SUCCESS) return mismatch(key, *value, "a string");
  return std::string(text);
}

Result<std::vector<uint32_t>> Fields::amounts(std::string_view key, uint64_t most,
                                              size_t longest) const {
  std::vector<uint32_t> found;
  const std::optional<element> value = find(key);
  if (!value) return found;
  const std::string expected = fmt::format("whole numbers from 0 to {}", most);
  array list;
  if (value->get(list) != SUCCESS) return mismatch(key, *value, "a list of " + expected);
  if (list.size() > longest) {
    return Error::corrupt(thing(key),
                          fmt::format("has {} items, expected at most {}", list.size(), longest));
  }
  for (const element item : list) {
    uint64_t number = 0;
    if (item.get(number) != SUCCESS || number > most) {
      return Error::corrupt(thing(key),
                            fmt::format("item {} is {}, expected {}", found.size(),
                                        printable(simdjson::to_string(item)), expected));
    }
    found.push_back(static_cast<uint32_t>(number));
  }
  return found;
}

Result<std::vector<uint32_t>> Fields::ids(std::string_view key) const {
  std::vector<uint32_t> found;
  const std::optional<element> value = find(key);
  if (!value) return found;
  array list;
  if (value->get(list) != SUCCESS) {
    found.push_back(TRY(id(key, *value)));
    return found;
  }
  for (const element item : list) {
    const uint32_t token = TRY(id(key, item));
    if (std::ranges::count(found, token) == 0) found.push_back(token);
  }
  return found;
}

Result<uint32_t> Fields::id(std::string_view key, const element& value) const {
  uint64_t number = 0;
  if (value.get(number) != SUCCESS || number >= kVocabLimit) {
    return mismatch(key, value, "token ids");
  }
  return static_cast<uint32_t>(number);
}

Result<std::optional<Fields>> Fields::child(std::string_view key) const {
  const std::optional<element> value = find(key);
  if (!value) return std::optional<Fields>();
  object inner;
  if (value->get(inner) != SUCCESS) return mismatch(key, *value, "an object");
  return std::optional<Fields>(Fields(inner, thing(key)));
}

Result<void> Fields::require_flag(std::string_view key, bool only) const {
  if (TRY(flag_or(key, only)) == only) return {};
  return Error::unsupported(thing(key),
                            fmt::format("is {}, this program computes {} only", !only, only));
}

Result<void> Fields::require_text(std::string_view key, std::string_view only) const {
  const std::string value = TRY(text_or(key, only));
  if (value == only) return {};
  return Error::unsupported(thing(key), fmt::format("is {}, known is {}", printable(value), only));
}

Result<void> Fields::require_number(std::string_view key, double only) const {
  const double value = TRY(number_or(key, only));
  if (value == only) return {};
  return Error::unsupported(thing(key), fmt::format("is {}, known is {}", value, only));
}

Result<Fields> parse_fields(simdjson::dom::parser& parser, std::string_view json,
                            const std::string& source) {
  if (json.size() > kConfigLimit) {
    return Error::exhausted(source,
                            fmt::format("is {} bytes, the limit is {}", json.size(), kConfigLimit));
  }
  object root;
  const simdjson::error_code failure = parser.parse(json.data(), json.size()).get(root);
  if (failure != SUCCESS) {
    return Error::corrupt(
        source, fmt::format("is not a JSON object: {}", simdjson::error_message(failure)));
  }
  return Fields(root, source);
}

Result<Family> read_family(const Fields& fields) {
  const std::string type = TRY(fields.text_or("model_type", ""));
  const std::optional<Family> by_type = family_from_name(type);
  const std::optional<element> value = fields.find("architectures");
  if (!value) {
    if (type.empty()) return Error::corrupt(fields.thing("architectures"), "is missing");
    if (by_type) return *by_type;
    return unknown_architecture(fields, type);
  }
  array names;
  std::string_view name;
  if (value->get(names) != SUCCESS || names.size() != 1 || names.at(0).get(name) != SUCCESS) {
    return fields.mismatch("architectures", *value, "a list of one name");
  }
  for (const Architecture& known : kArchitectures) {
    if (known.name != name) continue;
    if (!by_type || *by_type == known.family) return known.family;
    return fields.conflict("model_type",
                           fmt::format("is {}, architectures beside it {}", type, name));
  }
  return unknown_architecture(fields, name);
}

Result<Family> parse_hf_family(std::string_view json, const std::string& source) {
  simdjson::dom::parser parser;
  return read_family(TRY(parse_fields(parser, json, source)));
}

}  // namespace deepinfer::weights
