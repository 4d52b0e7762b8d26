// Any bytes: parse() ends with a tree or an error; a tree can be walked and written, and what was
// written is read back with as many values.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/json_writer.h"

namespace deepinfer {
namespace {

size_t write(const JsonValue& value, JsonWriter& out) {
  size_t values = 1;
  if (value.is_array()) {
    out.begin_array();
    const auto items = value.array().value();
    for (const JsonValue& item : items) values += write(item, out);
    out.end_array();
  } else if (value.is_object()) {
    out.begin_object();
    const auto members = value.members().value();
    for (const JsonMember& member : members) {
      out.key(member.key);
      values += write(member.value, out);
      check(value.find(member.key) != nullptr, "a member is found by its key");
    }
    out.end_object();
  } else if (value.is_string()) {
    out.value(value.string().value());
  } else if (value.is_number()) {
    out.value(value.number().value());
  } else if (value.is_null()) {
    out.null();
  } else {
    out.value(value.boolean().value());
  }
  return values;
}

size_t rewrite(const JsonDocument& document, std::string& text) {
  JsonWriter writer(text);
  return write(document.root(), writer);
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const Result<JsonDocument> first =
      JsonDocument::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!first.ok()) return 0;
  std::string once, twice;
  const size_t values = rewrite(first.value(), once);
  const Result<JsonDocument> second = JsonDocument::parse(once, "fuzz");
  check(second.ok(), "written JSON is read again");
  check(rewrite(second.value(), twice) == values && once == twice, "the second time is the same");
  return 0;
}
