#include "recipe/body_reader.h"

#include <limits>

namespace deepinfer::recipe {
namespace {

// The member of the root that the value lies in.
std::string root_member(const std::string& path) {
  return path.substr(0, path.find_first_of(".["));
}

Accepted<uint64_t> whole_number(const JsonValue& value, uint64_t high) {
  const bool whole =
      value.kind() == JsonValue::Kind::integer || value.kind() == JsonValue::Kind::big_integer;
  if (whole) {
    const Result<uint64_t> number = value.unsigned_integer();
    if (number.ok() && number.value() <= high) return number.value();
  }
  return wrong_body(value, "expected a whole number from 0 to " + std::to_string(high) +
                               ", found " + value.description());
}

}  // namespace

std::string_view refusal_kind_name(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::json:
      return "json";
    case RefusalKind::body:
      return "body";
    case RefusalKind::conversion:
      return "conversion";
  }
  return {};
}

Refusal refused(std::string_view category, std::string field, const std::string& what) {
  std::string message = field.empty() ? what : field + ": " + what;
  return {RefusalKind::conversion, category, std::move(field), std::move(message)};
}

Refusal wrong_body(const JsonValue& value, const std::string& what) {
  const std::string path = value.path();
  return {RefusalKind::body, "body_type", root_member(path), path + ": " + what};
}

Refusal missing_member(const JsonValue& object, std::string_view name) {
  const std::string path = object.path();
  if (path.empty()) {
    return {RefusalKind::body, "missing_field", std::string(name),
            "the field " + std::string(name) + " is missing"};
  }
  return wrong_body(object, "the field " + std::string(name) + " is missing");
}

Accepted<JsonDocument> read_body(std::string_view text) {
  Result<JsonDocument> document = JsonDocument::parse(text, "body", {.depth = Json::kMaxDepth + 1});
  if (!document.ok()) return Refusal{RefusalKind::json, "json_syntax", "", document.error().text()};
  if (!document.value().root().is_object())
    return Refusal{RefusalKind::body, "body_shape", "", "the body is no JSON object"};
  return std::move(document).value();
}

Accepted<void> read(const JsonValue& value, std::string& out) {
  if (!value.is_string())
    return wrong_body(value, "expected a string, found " + value.description());
  out = value.string().value();
  return {};
}

Accepted<void> read(const JsonValue& value, bool& out) {
  if (value.kind() != JsonValue::Kind::boolean)
    return wrong_body(value, "expected true or false, found " + value.description());
  out = value.boolean().value();
  return {};
}

Accepted<void> read(const JsonValue& value, float& out) {
  if (!value.is_number())
    return wrong_body(value, "expected a number, found " + value.description());
  out = static_cast<float>(value.number().value());
  return {};
}

Accepted<void> read(const JsonValue& value, uint8_t& out) {
  out = static_cast<uint8_t>(TRY(whole_number(value, std::numeric_limits<uint8_t>::max())));
  return {};
}

Accepted<void> read(const JsonValue& value, uint32_t& out) {
  out = static_cast<uint32_t>(TRY(whole_number(value, std::numeric_limits<uint32_t>::max())));
  return {};
}

Accepted<void> read(const JsonValue& value, uint64_t& out) {
  out = TRY(whole_number(value, std::numeric_limits<uint64_t>::max()));
  return {};
}

Accepted<void> read(const JsonValue& value, Json& out) {
  Result<Json> made = Json::from(value);
  if (!made.ok()) return Refusal{RefusalKind::json, "json_syntax", "", made.error().text()};
  out = std::move(made).value();
  return {};
}

Accepted<size_t> read_word(const JsonValue& value, std::initializer_list<std::string_view> words) {
  std::string known;
  if (value.is_string()) {
    size_t index = 0;
    for (std::string_view word : words) {
      if (value.string().value() == word) return index;
      ++index;
    }
  }
  for (std::string_view word : words) known += (known.empty() ? "" : ", ") + std::string(word);
  return wrong_body(value, "expected one of " + known + ", found " + value.description());
}

Accepted<std::string_view> read_type(const JsonValue& value) {
  if (!value.is_object())
    return wrong_body(value, "expected an object, found " + value.description());
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  if (!type->is_string()) return wrong_body(*type, "expected a string");
  return type->string().value();
}

}  // namespace deepinfer::recipe
