#pragma once

// Appends JSON text to a string, without a tree in between. Commas and colons come by themselves;
// misuse (a value without a key in an object, an end without a begin) is a bug and checked.
//
//   std::string out;
//   JsonWriter json(out);
//   json.begin_object();
//   json.member("index", 3);
//   json.key("ids");
//   json.begin_array();
//   for (uint32_t id : ids) json.value(id);
//   json.end_array();
//   json.end_object();  // {"index":3,"ids":[1,2]}
//
// Floats and doubles are written with the fewest digits that read back as the same value; NaN and
// infinities, which JSON does not have, become null. Bytes that are no UTF-8 become U+FFFD.
//
// Threads: one writer, one thread. The string must outlive the writer.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

// Appends text as a JSON string with its quotes.
void append_json_string(std::string& out, std::string_view text);

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  void begin_object();
  void end_object();
  void begin_array();
  void end_array();
  void key(std::string_view name);

  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(double number);
  void value(float number);
  template <std::same_as<bool> Bool>
  void value(Bool flag) {
    literal(flag ? "true" : "false");
  }
  template <std::integral Integer>
    requires(!std::same_as<Integer, bool>)
  void value(Integer number) {
    if constexpr (std::signed_integral<Integer>) {
      signed_value(static_cast<int64_t>(number));
    } else {
      unsigned_value(static_cast<uint64_t>(number));
    }
  }
  void null() { literal("null"); }
  // A value that is JSON text already.
  void raw(std::string_view json) { literal(json); }

  template <class Value>
  void member(std::string_view name, const Value& member_value) {
    key(name);
    value(member_value);
  }

  // Every begin had its end.
  bool complete() const { return levels_.empty() && written_; }

 private:
  struct Level {
    char close;
    bool first = true;
  };

  void before_value();
  void begin(char open, char close);
  void end(char close);
  void literal(std::string_view text);
  void signed_value(int64_t number);
  void unsigned_value(uint64_t number);

  std::string& out_;
  std::vector<Level> levels_;
  bool after_key_ = false;
  bool written_ = false;
};

}  // namespace deepinfer
