#pragma once

// Json: a JSON value that can be built and changed: schemas, arguments, answers. Objects keep the
// order of their members and have no key twice.
//
//   Json schema = TRY(Json::parse(text, "parameters"));
//   schema.set("additionalProperties", false);
//   std::string text = schema.text(JsonStyle::compact);
//
// Three spellings exist because the models were trained on two of them (spaces after "," and ":",
// small numbers as Python or as Rust writes them) and clients get the third, without spaces.
// base/json.h reads; this type holds what must be written again.
//
// Threads: plain values.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer::recipe {

enum class JsonStyle {
  compact,       // {"a":1e-7}, numbers as in spaced_rust
  spaced_rust,   // {"a": 1e-7}; 0.00001 below that the exponent form: DeepSeek V4
  spaced_python  // {"a": 1e-07}; exponent form below 0.0001: DeepSeek V4.1
};

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  // Containers inside of each other, as many as the reference reads.
  static constexpr size_t kMaxDepth = 127;

  Json();
  Json(std::nullptr_t);
  Json(bool flag);
  Json(int number);
  Json(int64_t number);
  Json(uint64_t number);
  Json(double number);
  Json(std::string text);
  Json(std::string_view text);
  Json(const char* text);
  Json(Array items);
  Json(Object members);  // keys are distinct

  static Json array();
  static Json object();

  // Fails (invalid) when the text is no JSON, (exhausted) when it nests deeper than kMaxDepth.
  static Result<Json> parse(std::string_view text, std::string name);
  // A repeated key keeps its first place and its last value. Fails (exhausted) below kMaxDepth.
  static Result<Json> from(const JsonValue& value);

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_object() const { return std::holds_alternative<Object>(data_); }
  bool is_integer() const {
    return std::holds_alternative<int64_t>(data_) || std::holds_alternative<uint64_t>(data_);
  }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }

  // Each requires its kind.
  bool boolean() const { return std::get<bool>(data_); }
  const std::string& string() const { return std::get<std::string>(data_); }
  const Array& items() const { return std::get<Array>(data_); }
  Array& items() { return std::get<Array>(data_); }
  const Object& members() const { return std::get<Object>(data_); }
  Object& members() { return std::get<Object>(data_); }
  double number() const;

  // The member; nullptr when absent or when this is no object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  bool is(std::string_view text) const { return is_string() && string() == text; }
  // Requires an object: replaces the member in its place, or appends one.
  void set(std::string_view key, Json value);
  void push_back(Json value);  // requires an array

  void append_to(std::string& out, JsonStyle style) const;
  std::string text(JsonStyle style) const;

  bool operator==(const Json&) const;

 private:
  static Result<Json> from(const JsonValue& value, size_t depth);

  // uint64_t only above INT64_MAX.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> data_;
};

struct Json::Member {
  std::string key;
  Json value;
  bool operator==(const Member&) const = default;
};

// The characters of a JSON string without its quotes.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace deepinfer::recipe
