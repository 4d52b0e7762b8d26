// The strict form of a schema. What a node may hold, and in which order it is written.

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "recipe/json_schema.h"

namespace deepinfer::recipe {
namespace {

constexpr std::array<std::string_view, 5> kFormats = {"email", "hostname", "ipv4", "ipv6", "uuid"};
constexpr std::array<std::string_view, 5> kSimpleTypes = {"string", "number", "integer", "boolean",
                                                          "null"};
constexpr std::array<std::string_view, 7> kNumberKeywords = {
    "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};

Error wrong(const std::string& path, const std::string& what) {
  return Error::invalid(path.empty() ? "strict schema" : "strict schema " + path, what);
}

// The member, unless it is null.
const Json* given(const Json& node, std::string_view key) {
  const Json* found = node.find(key);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

Result<Json> strict_node(const Json& node, const std::string& path);

Result<void> copy_text(const Json& node, std::string_view key, const std::string& path, Json& out) {
  const Json* found = given(node, key);
  if (found == nullptr) return {};
  if (!found->is_string()) return wrong(path, std::string(key) + " is no string");
  out.set(key, *found);
  return {};
}

Result<Json> strict_string(const Json& node, const std::string& path) {
  Json out = Json::object();
  out.set("type", "string");
  TRY(copy_text(node, "description", path, out));
  TRY(copy_text(node, "pattern", path, out));
  TRY(copy_text(node, "format", path, out));
  const Json* format = out.find("format");
  if (format != nullptr &&
      std::find(kFormats.begin(), kFormats.end(), format->string()) == kFormats.end())
    return wrong(path, "the format " + format->string() + " is not supported");
  if (const Json* values = given(node, "enum")) {
    if (!values->is_array()) return wrong(path, "enum is no array");
    for (const Json& value : values->items()) {
      if (!value.is_string()) return wrong(path, "enum holds a value that is no string");
    }
    out.set("enum", *values);
  }
  return out;
}

Result<Json> strict_number(const Json& node, const std::string& path, bool integer) {
  Json out = Json::object();
  out.set("type", integer ? "integer" : "number");
  TRY(copy_text(node, "description", path, out));
  for (std::string_view key : kNumberKeywords) {
    const Json* value = given(node, key);
    if (value == nullptr) continue;
    const bool whole = value->is_integer() && value->number() < 0x1p63;
    if (integer ? !whole : !value->is_number())
      return wrong(path, std::string(key) + " is no " + (integer ? "integer" : "number"));
    out.set(key, *value);
  }
  return out;
}

Result<Json> strict_array(const Json& node, const std::string& path) {
  const Json* items = given(node, "items");
  if (items == nullptr) return wrong(path, "an array needs items");
  Json out = Json::object();
  out.set("type", "array");
  out.set("items", TRY(strict_node(*items, path + ".items")));
  TRY(copy_text(node, "description", path, out));
  return out;
}

Result<Json> strict_object(const Json& node, const std::string& path, bool may_be_empty) {
  const Json* more = given(node, "additionalProperties");
  if (more != nullptr && *more != Json(false))
    return wrong(path, "additionalProperties must be false");
  const Json* properties = given(node, "properties");
  if (properties != nullptr && !properties->is_object())
    return wrong(path, "properties is no object");
  if (!may_be_empty && (properties == nullptr || properties->members().empty()))
    return wrong(path, "an object needs properties");
  Json strict = Json::object();
  Json names = Json::array();
  if (properties != nullptr) {
    for (const Json::Member& member : properties->members()) {
      strict.members().push_back(
          {member.key, TRY(strict_node(member.value, path + "." + member.key))});
      names.push_back(member.key);
    }
  }
  if (const Json* listed = given(node, "required")) {
    if (!listed->is_array()) return wrong(path, "required is no array");
    std::vector<std::string> wanted, found;
    for (const Json& name : names.items()) wanted.push_back(name.string());
    for (const Json& name : listed->items()) {
      if (!name.is_string()) return wrong(path, "required holds a value that is no string");
      found.push_back(name.string());
    }
    std::sort(wanted.begin(), wanted.end());
    std::sort(found.begin(), found.end());
    if (wanted != found) return wrong(path, "required must name every property");
  }
  Json out = Json::object();
  out.set("type", "object");
  out.set("properties", std::move(strict));
  out.set("additionalProperties", false);
  out.set("required", std::move(names));
  TRY(copy_text(node, "description", path, out));
  return out;
}

Result<Json> strict_types(const Json& node, const Json& types, const std::string& path) {
  for (const Json& type : types.items()) {
    if (!type.is_string() ||
        std::find(kSimpleTypes.begin(), kSimpleTypes.end(), type.string()) == kSimpleTypes.end())
      return wrong(path, type.text(JsonStyle::compact) + " is no simple type");
  }
  Json out = Json::object();
  out.set("type", types);
  TRY(copy_text(node, "description", path, out));
  return out;
}

Result<Json> strict_node(const Json& node, const std::string& path) {
  if (!node.is_object()) return wrong(path, "is no object");
  const Json* type = given(node, "type");
  if (const Json* choices = given(node, "anyOf"); choices != nullptr && type == nullptr) {
    if (!choices->is_array()) return wrong(path, "anyOf is no array");
    Json list = Json::array();
    size_t index = 0;
    for (const Json& choice : choices->items()) {
      list.push_back(TRY(strict_node(choice, path + ".anyOf[" + std::to_string(index++) + "]")));
    }
    Json out = Json::object();
    out.set("anyOf", std::move(list));
    TRY(copy_text(node, "description", path, out));
    return out;
  }
  if (const Json* reference = given(node, "$ref"); reference != nullptr && type == nullptr) {
    if (!reference->is_string()) return wrong(path, "$ref is no string");
    Json out = Json::object();
    out.set("$ref", *reference);
    return out;
  }
  if (type == nullptr) return wrong(path, "needs a type, anyOf or $ref");
  if (type->is_array()) return strict_types(node, *type, path);
  if (type->is("object")) return strict_object(node, path, false);
  if (type->is("array")) return strict_array(node, path);
  if (type->is("string")) return strict_string(node, path);
  if (type->is("number") || type->is("integer"))
    return strict_number(node, path, type->is("integer"));
  if (!type->is("boolean") && !type->is("null"))
    return wrong(path, type->text(JsonStyle::compact) + " is no type");
  Json out = Json::object();
  out.set("type", *type);
  TRY(copy_text(node, "description", path, out));
  return out;
}

}  // namespace

Result<Json> strict_schema(const Json& schema, bool may_be_empty) {
  const Json* type = schema.find("type");
  if (type == nullptr || !type->is("object")) return wrong("", "the top must have the type object");
  return strict_object(schema, "", may_be_empty);
}

}  // namespace deepinfer::recipe
