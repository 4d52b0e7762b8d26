#pragma once

// JSON read into a tree that does not change any more. Untrusted text is safe: size, depth and the
// number of values are limited before memory is taken.
//
//   JsonDocument json = TRY(JsonDocument::parse(text, "config.json"));
//   int64_t layers = TRY(json.root().get<int64_t>("num_hidden_layers"));
//   double theta = TRY(json.root().get_or<double>("rope_theta", 1e4));
//   const JsonValue* scaling = json.root().find("rope_scaling");  // nullptr: absent
//
// Errors (ErrorKind::invalid) name the document, the path of the field and both types:
//   config.json: rope_scaling.factor: expected a number, found the string "8"
// Integers beyond 64 bits are read as doubles. Of two equal keys the last one counts. Objects keep
// the order of their members.
//
// Ownership: values live in their document; views and pointers are valid as long as it is (a move
// of the document keeps them valid). Threads: reading from any.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct JsonMember;

class JsonValue {
 public:
  enum class Kind { null, boolean, integer, big_integer, real, string, array, object };

  JsonValue() = default;
  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }
  bool is_number() const {
    return kind() == Kind::integer || kind() == Kind::big_integer || kind() == Kind::real;
  }

  Result<bool> boolean() const;
  Result<int64_t> integer() const;            // no fraction, fits
  Result<uint64_t> unsigned_integer() const;  // the same, not negative
  Result<double> number() const;
  Result<std::string_view> string() const;
  Result<std::span<const JsonValue>> array() const;
  Result<std::span<const JsonMember>> members() const;  // an object's, in order

  // The member, nullptr when absent or when this is no object.
  const JsonValue* find(std::string_view key) const;
  // The member; an error when absent or when this is no object.
  Result<const JsonValue*> member(std::string_view key) const;

  // bool, int64_t, uint64_t, int, uint32_t, size_t, double, float, std::string_view, std::string.
  template <class T>
  Result<T> as() const;
  template <class T>
  Result<T> get(std::string_view key) const {
    Result<const JsonValue*> found = member(key);
    if (!found.ok()) return std::move(found).error();
    return std::move(found).value()->template as<T>();
  }
  // fallback when the member is absent or null.
  template <class T>
  Result<T> get_or(std::string_view key, T fallback) const {
    const JsonValue* found = find(key);
    if (!found || found->is_null()) return fallback;
    return found->as<T>();
  }

  // "rope_scaling.factors[3]"; empty for the root.
  std::string path() const;
  // An error about this value: "<document>: <path>: <what>".
  Error error(std::string what) const;
  // "the string \"8\"", "an object", "the number 3"; long strings are cut.
  std::string description() const;

 private:
  friend class JsonReader;
  friend class JsonDocument;
  struct Object;

  struct ObjectDeleter {
    void operator()(Object* object) const;
  };

  Error expected(const char* what) const;
  Error out_of_range(int64_t low, uint64_t high) const;
  Result<int64_t> integer_within(int64_t low, int64_t high) const;
  void link();

  // In the order of Kind; big_integer holds those above INT64_MAX.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<JsonValue>,
               std::unique_ptr<Object, ObjectDeleter>>
      data_;
  const JsonValue* parent_ = nullptr;
  const std::string* document_ = nullptr;  // name, in the root only
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

template <class T>
Result<T> JsonValue::as() const {
  if constexpr (std::is_same_v<T, bool>) {
    return boolean();
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return string();
  } else if constexpr (std::is_same_v<T, std::string>) {
    Result<std::string_view> text = string();
    if (!text.ok()) return std::move(text).error();
    return std::string(text.value());
  } else if constexpr (std::is_floating_point_v<T>) {
    Result<double> real = number();
    if (!real.ok()) return std::move(real).error();
    return static_cast<T>(real.value());
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return unsigned_integer();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return integer();
  } else {
    static_assert(std::is_integral_v<T> && sizeof(T) <= 4, "not a type that JSON values have");
    constexpr int64_t kLow = std::is_signed_v<T> ? -(int64_t{1} << (8 * sizeof(T) - 1)) : 0;
    constexpr int64_t kHigh = kLow + (int64_t{1} << (8 * sizeof(T))) - 1;
    Result<int64_t> whole = integer_within(kLow, kHigh);
    if (!whole.ok()) return std::move(whole).error();
    return static_cast<T>(whole.value());
  }
}

struct JsonLimits {
  size_t bytes = size_t{256} << 20;
  size_t depth = 64;
  size_t values = size_t{16} << 20;
};

class JsonDocument {
 public:
  // name is how errors call the document, e.g. its path.
  static Result<JsonDocument> parse(std::string_view text, std::string name,
                                    const JsonLimits& limits = {});
  static Result<JsonDocument> read(const std::string& path, const JsonLimits& limits = {});

  const JsonValue& root() const { return tree_->root; }

 private:
  struct Tree {
    std::string name;
    JsonValue root;
  };
  std::unique_ptr<Tree> tree_;
};

}  // namespace deepinfer
