#include "base/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/file.h"
#include "base/json_writer.h"

namespace deepinfer {

namespace ondemand = simdjson::ondemand;

struct JsonValue::Object {
  std::vector<JsonMember> members;
  std::vector<uint32_t> by_key;  // by key, then by place; for objects of more than kLinear members

  static constexpr size_t kLinear = 16;

  void build_index() {
    if (members.size() <= kLinear) return;
    by_key.resize(members.size());
    for (uint32_t i = 0; i < by_key.size(); ++i) by_key[i] = i;
    std::sort(by_key.begin(), by_key.end(), [&](uint32_t a, uint32_t b) {
      const int order = members[a].key.compare(members[b].key);
      return order < 0 || (order == 0 && a < b);
    });
  }

  const JsonValue* find(std::string_view key) const {
    if (by_key.empty()) {
      for (size_t i = members.size(); i-- > 0;) {
        if (members[i].key == key) return &members[i].value;
      }
      return nullptr;
    }
    const auto after = std::upper_bound(
        by_key.begin(), by_key.end(), key,
        [&](std::string_view wanted, uint32_t index) { return wanted < members[index].key; });
    if (after == by_key.begin() || members[*(after - 1)].key != key) return nullptr;
    return &members[*(after - 1)].value;
  }
};

void JsonValue::ObjectDeleter::operator()(Object* object) const { delete object; }

// Walks simdjson's on-demand cursor once. On-demand because its raw tokens still give integers of
// more than 64 bits, which tokenizer_config.json files have.
class JsonReader {
 public:
  explicit JsonReader(const JsonLimits& limits) : limits_(limits) {}

  Result<JsonValue> read(ondemand::document& document, const std::string& name) {
    JsonValue root;
    ondemand::json_type type;
    simdjson::error_code code = document.type().get(type);
    if (!code) {
      switch (type) {
        case ondemand::json_type::array:
        case ondemand::json_type::object: {
          ondemand::value value;
          code = document.get_value().get(value);
          if (!code) code = read_value(value, 1, root);
          break;
        }
        default:
          code = read_scalar(document, type, root);
      }
    }
    if (!failure_.empty()) return Error::exhausted(name, failure_);
    if (!code && more_text(document)) code = simdjson::TRAILING_CONTENT;
    if (code) return Error::invalid(name, describe(document, code));
    return root;
  }

 private:
  // At the end of the text there is no location.
  static bool more_text(ondemand::document& document) {
    const char* location = nullptr;
    return document.current_location().get(location) == simdjson::SUCCESS;
  }

  static std::string_view raw_token(ondemand::value& value) { return value.raw_json_token(); }
  static std::string_view raw_token(ondemand::document& document) {
    std::string_view token;
    return document.raw_json_token().get(token) == simdjson::SUCCESS ? token : std::string_view();
  }

  static std::string describe(ondemand::document& document, simdjson::error_code code) {
    std::string what = fmt::format("is not JSON: {}", simdjson::error_message(code));
    const char* location = nullptr;
    if (document.current_location().get(location) == simdjson::SUCCESS && location) {
      std::string near(location, strnlen(location, 24));
      std::string quoted;
      append_json_string(quoted, near);
      what += fmt::format(" near {}", quoted);
    }
    return what;
  }

  simdjson::error_code refuse(std::string why) {
    failure_ = std::move(why);
    return simdjson::CAPACITY;
  }

  simdjson::error_code count(size_t depth) {
    if (depth > limits_.depth) {
      return refuse(fmt::format("is nested more than {} deep", limits_.depth));
    }
    if (++values_ > limits_.values) {
      return refuse(fmt::format("has more than {} values", limits_.values));
    }
    return simdjson::SUCCESS;
  }

  simdjson::error_code read_value(ondemand::value& value, size_t depth, JsonValue& out) {
    if (const auto code = count(depth)) return code;
    ondemand::json_type type;
    if (const auto code = value.type().get(type)) return code;
    switch (type) {
      case ondemand::json_type::array:
        return read_array(value, depth, out);
      case ondemand::json_type::object:
        return read_object(value, depth, out);
      default:
        return read_scalar(value, type, out);
    }
  }

  simdjson::error_code read_array(ondemand::value& value, size_t depth, JsonValue& out) {
    ondemand::array array;
    if (const auto code = value.get_array().get(array)) return code;
    std::vector<JsonValue> items;
    for (auto element : array) {
      ondemand::value item;
      if (const auto code = element.get(item)) return code;
      if (const auto code = read_value(item, depth + 1, items.emplace_back())) return code;
    }
    out.data_ = std::move(items);
    return simdjson::SUCCESS;
  }

  simdjson::error_code read_object(ondemand::value& value, size_t depth, JsonValue& out) {
    ondemand::object object;
    if (const auto code = value.get_object().get(object)) return code;
    std::unique_ptr<JsonValue::Object, JsonValue::ObjectDeleter> made(new JsonValue::Object);
    for (auto field : object) {
      std::string_view key;
      if (const auto code = field.unescaped_key().get(key)) return code;
      JsonMember& member = made->members.emplace_back();
      member.key = key;
      ondemand::value item;
      if (const auto code = field.value().get(item)) return code;
      if (const auto code = read_value(item, depth + 1, member.value)) return code;
    }
    made->build_index();
    out.data_ = std::move(made);
    return simdjson::SUCCESS;
  }

  template <class Source>
  simdjson::error_code read_scalar(Source& source, ondemand::json_type type, JsonValue& out) {
    switch (type) {
      case ondemand::json_type::string: {
        std::string_view text;
        if (const auto code = source.get_string().get(text)) return code;
        out.data_ = std::string(text);
        return simdjson::SUCCESS;
      }
      case ondemand::json_type::boolean: {
        bool flag = false;
        if (const auto code = source.get_bool().get(flag)) return code;
        out.data_ = flag;
        return simdjson::SUCCESS;
      }
      case ondemand::json_type::null: {
        bool null = false;
        if (const auto code = source.is_null().get(null)) return code;
        return null ? simdjson::SUCCESS : simdjson::N_ATOM_ERROR;
      }
      default:
        return read_number(source, out);
    }
  }

  template <class Source>
  simdjson::error_code read_number(Source& source, JsonValue& out) {
    std::string_view token = raw_token(source);
    while (!token.empty() && std::string_view(" \t\r\n").find(token.back()) != token.npos) {
      token.remove_suffix(1);
    }
    ondemand::number number;
    const simdjson::error_code code = source.get_number().get(number);
    if (code && !is_long_integer(token)) return code;
    if (code) {
      out.data_ = std::strtod(std::string(token).c_str(), nullptr);
    } else if (token == "-0") {
      out.data_ = -0.0;  // integers have no negative zero
    } else if (number.is_int64()) {
      out.data_ = number.get_int64();
    } else if (number.is_uint64()) {
      out.data_ = number.get_uint64();
    } else {
      out.data_ = number.get_double();
    }
    return simdjson::SUCCESS;
  }

  static bool is_long_integer(std::string_view token) {
    if (!token.empty() && token[0] == '-') token.remove_prefix(1);
    return token.size() >= 19 && token.size() <= 300 && token[0] != '0' &&
           token.find_first_not_of("0123456789") == token.npos;
  }

  const JsonLimits& limits_;
  size_t values_ = 0;
  std::string failure_;
};

Result<JsonDocument> JsonDocument::parse(std::string_view text, std::string name,
                                         const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Error::exhausted(
        name, fmt::format("has {} bytes, the limit is {}", text.size(), limits.bytes));
  }
  const simdjson::padded_string padded(text);
  ondemand::parser parser;
  ondemand::document document;
  if (const auto code = parser.iterate(padded).get(document)) {
    return Error::invalid(name, fmt::format("is not JSON: {}", simdjson::error_message(code)));
  }
  JsonReader reader(limits);
  JsonDocument out;
  out.tree_ = std::make_unique<Tree>();
  out.tree_->name = std::move(name);
  out.tree_->root = TRY(reader.read(document, out.tree_->name));
  out.tree_->root.document_ = &out.tree_->name;
  out.tree_->root.link();
  return out;
}

Result<JsonDocument> JsonDocument::read(const std::string& path, const JsonLimits& limits) {
  const std::string text = TRY(read_file(path, limits.bytes));
  return parse(text, path, limits);
}

// Values have their final addresses when the whole tree is read.
void JsonValue::link() {
  if (auto* items = std::get_if<static_cast<size_t>(Kind::array)>(&data_)) {
    for (JsonValue& item : *items) {
      item.parent_ = this;
      item.link();
    }
  } else if (auto* object = std::get_if<static_cast<size_t>(Kind::object)>(&data_)) {
    for (JsonMember& member : (*object)->members) {
      member.value.parent_ = this;
      member.value.link();
    }
  }
}

std::string JsonValue::path() const {
  if (!parent_) return "";
  std::string outer = parent_->path();
  if (const auto* items = std::get_if<static_cast<size_t>(Kind::array)>(&parent_->data_)) {
    return fmt::format("{}[{}]", outer, this - items->data());
  }
  for (const JsonMember& member : parent_->members().value()) {
    if (&member.value == this) return outer.empty() ? member.key : outer + "." + member.key;
  }
  return outer;
}

Error JsonValue::error(std::string what) const {
  const JsonValue* root = this;
  while (root->parent_) root = root->parent_;
  std::string thing = root->document_ ? *root->document_ : "JSON";
  if (const std::string field = path(); !field.empty()) thing += ": " + field;
  return Error::invalid(std::move(thing), std::move(what));
}

std::string JsonValue::description() const {
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return std::get<bool>(data_) ? "true" : "false";
    case Kind::integer:
      return fmt::format("the number {}", std::get<int64_t>(data_));
    case Kind::big_integer:
      return fmt::format("the number {}", std::get<uint64_t>(data_));
    case Kind::real:
      return fmt::format("the number {}", std::get<double>(data_));
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
    case Kind::string:
      break;
  }
  constexpr size_t kShown = 40;
  const std::string& text = std::get<std::string>(data_);
  std::string quoted;
  append_json_string(quoted, std::string_view(text).substr(0, kShown));
  return fmt::format("the string {}{}", quoted, text.size() > kShown ? "..." : "");
}

Error JsonValue::expected(const char* what) const {
  return error(fmt::format("expected {}, found {}", what, description()));
}

Error JsonValue::out_of_range(int64_t low, uint64_t high) const {
  return error(
      fmt::format("expected a whole number from {} to {}, found {}", low, high, description()));
}

Result<bool> JsonValue::boolean() const {
  if (kind() != Kind::boolean) return expected("true or false");
  return std::get<bool>(data_);
}

Result<int64_t> JsonValue::integer_within(int64_t low, int64_t high) const {
  if (!is_number()) return expected("a whole number");
  int64_t whole = 0;
  if (kind() == Kind::integer) {
    whole = std::get<int64_t>(data_);
  } else if (kind() == Kind::real) {
    // 1e3 and 4096.0 are whole numbers; the bound is the first double that int64_t does not hold.
    const double real = std::get<double>(data_);
    if (!(std::fabs(real) < 0x1p63) || real != std::floor(real)) return out_of_range(low, high);
    whole = static_cast<int64_t>(real);
  } else {
    return out_of_range(low, static_cast<uint64_t>(high));
  }
  if (whole < low || whole > high) return out_of_range(low, static_cast<uint64_t>(high));
  return whole;
}

Result<int64_t> JsonValue::integer() const {
  return integer_within(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
}

Result<uint64_t> JsonValue::unsigned_integer() const {
  if (kind() == Kind::big_integer) return std::get<uint64_t>(data_);
  constexpr uint64_t kHigh = std::numeric_limits<uint64_t>::max();
  if (!is_number()) return expected("a whole number");
  const Result<int64_t> whole = integer();
  if (!whole.ok() || whole.value() < 0) return out_of_range(0, kHigh);
  return static_cast<uint64_t>(whole.value());
}

Result<double> JsonValue::number() const {
  switch (kind()) {
    case Kind::integer:
      return static_cast<double>(std::get<int64_t>(data_));
    case Kind::big_integer:
      return static_cast<double>(std::get<uint64_t>(data_));
    case Kind::real:
      return std::get<double>(data_);
    default:
      return expected("a number");
  }
}

Result<std::string_view> JsonValue::string() const {
  if (!is_string()) return expected("a string");
  return std::string_view(std::get<std::string>(data_));
}

Result<std::span<const JsonValue>> JsonValue::array() const {
  if (!is_array()) return expected("an array");
  return std::span<const JsonValue>(std::get<static_cast<size_t>(Kind::array)>(data_));
}

Result<std::span<const JsonMember>> JsonValue::members() const {
  if (!is_object()) return expected("an object");
  return std::span<const JsonMember>(std::get<static_cast<size_t>(Kind::object)>(data_)->members);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  return std::get<static_cast<size_t>(Kind::object)>(data_)->find(key);
}

Result<const JsonValue*> JsonValue::member(std::string_view key) const {
  if (!is_object()) return expected("an object");
  if (const JsonValue* found = find(key)) return found;
  return error(fmt::format("the field \"{}\" is missing", key));
}

}  // namespace deepinfer
