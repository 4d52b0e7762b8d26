#pragma once

// Reads JSON bodies into structs: one table of fields a struct, one read() a type.
//
//   struct Point { float x = 0; std::optional<float> y; };
//   constexpr Field<Point> kPoint[] = {field<&Point::x>("x", kRequired), field<&Point::y>("y")};
//   Accepted<void> read(const JsonValue& value, Point& out) {
//     return read_object<Point>(value, kPoint, out);
//   }
//
// Members are read in the order of the document and the first problem is the one that counts;
// members that no table names are skipped; null means absent for optional fields; of a member that
// comes twice the last one counts. Errors are Refusals of the kind `body` and name the member of
// the root.
//
// Threads: pure functions.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "recipe/json_tree.h"
#include "recipe/refusal.h"

namespace deepinfer::recipe {

enum class Presence { optional, required };
inline constexpr Presence kRequired = Presence::required;

// "messages[0].content: expected a string, found null", field "messages".
Refusal wrong_body(const JsonValue& value, const std::string& what);
Refusal missing_member(const JsonValue& object, std::string_view name);

// The body's root, an object. The document keeps views alive.
Accepted<JsonDocument> read_body(std::string_view text);

Accepted<void> read(const JsonValue& value, std::string& out);
Accepted<void> read(const JsonValue& value, bool& out);
Accepted<void> read(const JsonValue& value, float& out);
Accepted<void> read(const JsonValue& value, uint8_t& out);
Accepted<void> read(const JsonValue& value, uint32_t& out);
Accepted<void> read(const JsonValue& value, uint64_t& out);
Accepted<void> read(const JsonValue& value, Json& out);

// The index of the string among the words.
Accepted<size_t> read_word(const JsonValue& value, std::initializer_list<std::string_view> words);
// The member `type` of an object, a string.
Accepted<std::string_view> read_type(const JsonValue& value);

template <class T>
Accepted<void> read(const JsonValue& value, std::vector<T>& out);

template <class T>
Accepted<void> read(const JsonValue& value, std::optional<T>& out) {
  if (value.is_null()) {
    out.reset();
    return {};
  }
  return read(value, out.emplace());
}

template <class T>
Accepted<void> read(const JsonValue& value, std::vector<T>& out) {
  if (!value.is_array()) return wrong_body(value, "expected an array");
  for (const JsonValue& item : value.array().value()) {
    if (Accepted<void> done = read(item, out.emplace_back()); !done.ok()) return done;
  }
  return {};
}

// A field that is checked to be a string and not used.
template <class Body>
Accepted<void> read_unused_text(const JsonValue& value, Body&) {
  std::optional<std::string> text;
  return read(value, text);
}

template <class Body>
struct Field {
  std::string_view name;
  Presence presence;
  Accepted<void> (*read)(const JsonValue& value, Body& out);
};

template <class Body, class Type>
Body body_of(Type Body::*);

template <auto member, class Body = decltype(body_of(member))>
constexpr Field<Body> field(std::string_view name, Presence presence = Presence::optional) {
  return {name, presence,
          [](const JsonValue& value, Body& out) { return read(value, out.*member); }};
}

template <class Body>
Accepted<void> read_object(const JsonValue& value, std::span<const Field<Body>> fields, Body& out) {
  if (!value.is_object()) return wrong_body(value, "expected an object");
  for (const JsonMember& member : value.members().value()) {
    for (const Field<Body>& field : fields) {
      if (field.name != member.key) continue;
      if (value.find(member.key) == &member.value) {
        if (Accepted<void> done = field.read(member.value, out); !done.ok()) return done;
      }
      break;
    }
  }
  for (const Field<Body>& field : fields) {
    if (field.presence == Presence::required && value.find(field.name) == nullptr)
      return missing_member(value, field.name);
  }
  return {};
}

}  // namespace deepinfer::recipe
