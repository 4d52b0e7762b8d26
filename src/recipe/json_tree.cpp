#include "recipe/json_tree.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/json_writer.h"

namespace deepinfer::recipe {
namespace {

// Objects up to this size are searched for a repeated key one by one.
constexpr size_t kLinear = 16;

// Shortest digits that read back, with a fraction or an exponent. fmt writes the exponent form
// outside of 1e-4 .. 1e16 with two digits, as Python does; `rust` moves the lower border to 1e-5
// and drops the zero.
void append_real(std::string& out, double number, JsonStyle style) {
  std::string digits = fmt::format("{}", number);
  const size_t exponent = digits.find("e-0");
  if (exponent != std::string::npos && style != JsonStyle::spaced_python) {
    if (digits[exponent + 3] == '5') {
      const bool negative = digits[0] == '-';
      std::string mantissa = digits.substr(negative ? 1 : 0, exponent - (negative ? 1 : 0));
      std::erase(mantissa, '.');
      digits = (negative ? "-0.0000" : "0.0000") + mantissa;
    } else {
      digits.erase(exponent + 2, 1);
    }
  }
  if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  out += digits;
}

}  // namespace

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(bool flag) : data_(flag) {}
Json::Json(int number) : data_(int64_t{number}) {}
Json::Json(int64_t number) : data_(number) {}
Json::Json(double number) : data_(number) {}
Json::Json(std::string text) : data_(std::move(text)) {}
Json::Json(std::string_view text) : data_(std::string(text)) {}
Json::Json(const char* text) : data_(std::string(text)) {}
Json::Json(Array items) : data_(std::move(items)) {}
Json::Json(Object members) : data_(std::move(members)) {}

Json::Json(uint64_t number) {
  if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    data_ = static_cast<int64_t>(number);
  } else {
    data_ = number;
  }
}

Json Json::array() { return Json(Array{}); }
Json Json::object() { return Json(Object{}); }

Result<Json> Json::parse(std::string_view text, std::string name) {
  // JsonLimits counts the scalars inside of the innermost container as one level more.
  const JsonDocument document =
      TRY(JsonDocument::parse(text, std::move(name), {.depth = kMaxDepth + 1}));
  return from(document.root());
}

Result<Json> Json::from(const JsonValue& value) { return from(value, 1); }

Result<Json> Json::from(const JsonValue& value, size_t depth) {
  switch (value.kind()) {
    case JsonValue::Kind::null:
      return Json();
    case JsonValue::Kind::boolean:
      return Json(value.boolean().value());
    case JsonValue::Kind::integer:
      return Json(value.integer().value());
    case JsonValue::Kind::big_integer:
      return Json(value.unsigned_integer().value());
    case JsonValue::Kind::real:
      return Json(value.number().value());
    case JsonValue::Kind::string:
      return Json(value.string().value());
    default:
      break;
  }
  if (depth > kMaxDepth)
    return Error::exhausted("JSON", fmt::format("is nested more than {} deep", kMaxDepth));
  if (value.is_array()) {
    Array items;
    items.reserve(value.array().value().size());
    for (const JsonValue& item : value.array().value()) items.push_back(TRY(from(item, depth + 1)));
    return Json(std::move(items));
  }
  const std::span<const JsonMember> source = value.members().value();
  Object members;
  members.reserve(source.size());
  std::unordered_map<std::string_view, size_t> places;
  for (const JsonMember& member : source) {
    Json read = TRY(from(member.value, depth + 1));
    size_t place = members.size();
    if (source.size() > kLinear) {
      place = places.try_emplace(member.key, place).first->second;
    } else {
      for (size_t i = 0; i < members.size(); ++i) {
        if (members[i].key == member.key) place = i;
      }
    }
    if (place < members.size()) {
      members[place].value = std::move(read);
    } else {
      members.push_back({member.key, std::move(read)});
    }
  }
  return Json(std::move(members));
}

double Json::number() const {
  if (const auto* whole = std::get_if<int64_t>(&data_)) return static_cast<double>(*whole);
  if (const auto* whole = std::get_if<uint64_t>(&data_)) return static_cast<double>(*whole);
  return std::get<double>(data_);
}

const Json* Json::find(std::string_view key) const {
  const Object* members = std::get_if<Object>(&data_);
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

void Json::set(std::string_view key, Json value) {
  for (Member& member : members()) {
    if (member.key != key) continue;
    member.value = std::move(value);
    return;
  }
  members().push_back({std::string(key), std::move(value)});
}

void Json::push_back(Json value) { items().push_back(std::move(value)); }

void Json::append_to(std::string& out, JsonStyle style) const {
  const bool spaced = style != JsonStyle::compact;
  if (const auto* flag = std::get_if<bool>(&data_)) {
    out += *flag ? "true" : "false";
  } else if (const auto* whole = std::get_if<int64_t>(&data_)) {
    fmt::format_to(std::back_inserter(out), "{}", *whole);
  } else if (const auto* big = std::get_if<uint64_t>(&data_)) {
    fmt::format_to(std::back_inserter(out), "{}", *big);
  } else if (const auto* real = std::get_if<double>(&data_)) {
    append_real(out, *real, style);
  } else if (const auto* text = std::get_if<std::string>(&data_)) {
    append_json_string(out, *text);
  } else if (const auto* items = std::get_if<Array>(&data_)) {
    out += '[';
    for (const Json& item : *items) {
      if (&item != items->data()) out += spaced ? ", " : ",";
      item.append_to(out, style);
    }
    out += ']';
  } else if (const auto* members = std::get_if<Object>(&data_)) {
    out += '{';
    for (const Member& member : *members) {
      if (&member != members->data()) out += spaced ? ", " : ",";
      append_json_string(out, member.key);
      out += spaced ? ": " : ":";
      member.value.append_to(out, style);
    }
    out += '}';
  } else {
    out += "null";
  }
}

std::string Json::text(JsonStyle style) const {
  std::string out;
  append_to(out, style);
  return out;
}

bool Json::operator==(const Json&) const = default;

void append_json_escaped(std::string& out, std::string_view text) {
  const size_t begin = out.size();
  append_json_string(out, text);
  out.erase(begin, 1);
  out.pop_back();
}

}  // namespace deepinfer::recipe
