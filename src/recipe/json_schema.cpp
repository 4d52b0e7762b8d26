#include "recipe/json_schema.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

namespace deepinfer::recipe {
namespace {

enum class Rule {
  schema,
  schema_list,  // an array of schemas, not empty
  schema_map,   // an object of schemas
  pattern_map,  // the same, its keys are patterns
  items,        // a schema; older drafts: or a list
  text,
  pattern,
  reference,
  number,
  positive,
  limit,  // a number; draft 4: a boolean
  count,
  boolean,
  list,
  names,     // an array of distinct strings
  name_map,  // an object of such arrays
  type,
};

struct Keyword {
  std::string_view name;
  Rule rule;
};

constexpr Keyword kKeywords[] = {
    {"$anchor", Rule::text},
    {"$comment", Rule::text},
    {"$defs", Rule::schema_map},
    {"$dynamicRef", Rule::reference},
    {"$id", Rule::text},
    {"$ref", Rule::reference},
    {"$schema", Rule::text},
    {"additionalProperties", Rule::schema},
    {"allOf", Rule::schema_list},
    {"anyOf", Rule::schema_list},
    {"contains", Rule::schema},
    {"contentEncoding", Rule::text},
    {"contentMediaType", Rule::text},
    {"contentSchema", Rule::schema},
    {"definitions", Rule::schema_map},
    {"dependentRequired", Rule::name_map},
    {"dependentSchemas", Rule::schema_map},
    {"deprecated", Rule::boolean},
    {"description", Rule::text},
    {"else", Rule::schema},
    {"enum", Rule::list},
    {"examples", Rule::list},
    {"exclusiveMaximum", Rule::limit},
    {"exclusiveMinimum", Rule::limit},
    {"format", Rule::text},
    {"if", Rule::schema},
    {"items", Rule::items},
    {"maxContains", Rule::count},
    {"maxItems", Rule::count},
    {"maxLength", Rule::count},
    {"maxProperties", Rule::count},
    {"maximum", Rule::number},
    {"minContains", Rule::count},
    {"minItems", Rule::count},
    {"minLength", Rule::count},
    {"minProperties", Rule::count},
    {"minimum", Rule::number},
    {"multipleOf", Rule::positive},
    {"not", Rule::schema},
    {"oneOf", Rule::schema_list},
    {"pattern", Rule::pattern},
    {"patternProperties", Rule::pattern_map},
    {"prefixItems", Rule::schema_list},
    {"properties", Rule::schema_map},
    {"propertyNames", Rule::schema},
    {"readOnly", Rule::boolean},
    {"required", Rule::names},
    {"then", Rule::schema},
    {"title", Rule::text},
    {"type", Rule::type},
    {"unevaluatedItems", Rule::schema},
    {"unevaluatedProperties", Rule::schema},
    {"uniqueItems", Rule::boolean},
    {"writeOnly", Rule::boolean},
};

constexpr std::array<std::string_view, 7> kTypes = {"array",  "boolean", "integer", "null",
                                                    "number", "object",  "string"};

bool is_type(const Json& value) {
  return value.is_string() &&
         std::find(kTypes.begin(), kTypes.end(), value.string()) != kTypes.end();
}

Error wrong(const std::string& path, const std::string& what) {
  return Error::invalid(path.empty() ? "schema" : path, what);
}

std::string below(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

bool compiles(const std::string& pattern) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &code,
                    &offset, nullptr),
      pcre2_code_free);
  return compiled != nullptr;
}

class SchemaChecker {
 public:
  explicit SchemaChecker(const Json& root) : root_(root) {
    const Json* draft = root.find("$schema");
    const std::string name = draft != nullptr && draft->is_string() ? draft->string() : "";
    old_items_ =
        name.find("draft-0") != std::string::npos || name.find("2019-09") != std::string::npos;
    draft4_ = name.find("draft-04") != std::string::npos;
  }

  Result<void> run() {
    TRY(schema(root_, ""));
    for (const auto& [path, reference] : references_) {
      if (!resolves(reference)) return wrong(path, "\"" + reference + "\" leads nowhere");
    }
    return {};
  }

 private:
  Result<void> schema(const Json& value, const std::string& path) {
    if (value.is_bool()) return {};
    if (!value.is_object()) return wrong(path, "is no schema: neither an object nor a boolean");
    for (const char* key : {"$id", "$anchor", "$dynamicAnchor"}) {
      const Json* name = value.find(key);
      if (name != nullptr && name->is_string())
        (key[1] == 'i' ? ids_ : anchors_).push_back(name->string());
    }
    for (const Json::Member& member : value.members()) {
      for (const Keyword& keyword : kKeywords) {
        if (keyword.name != member.key) continue;
        TRY(check_keyword(keyword.rule, member.value, below(path, member.key)));
        break;
      }
    }
    return {};
  }

  Result<void> check_keyword(Rule rule, const Json& value, const std::string& path) {
    switch (rule) {
      case Rule::schema:
        return schema(value, path);
      case Rule::items:
        return old_items_ && value.is_array() ? schemas(value, path, true) : schema(value, path);
      case Rule::schema_list:
        return schemas(value, path, false);
      case Rule::schema_map:
      case Rule::pattern_map:
        return schema_map(value, path, rule == Rule::pattern_map);
      case Rule::names:
        return names(value, path);
      case Rule::name_map:
        if (!value.is_object()) return wrong(path, "is no object");
        for (const Json::Member& member : value.members())
          TRY(names(member.value, below(path, member.key)));
        return {};
      case Rule::type:
        return type(value, path);
      default:
        return scalar(rule, value, path);
    }
  }

  Result<void> scalar(Rule rule, const Json& value, const std::string& path) {
    switch (rule) {
      case Rule::text:
        if (!value.is_string()) return wrong(path, "is no string");
        return {};
      case Rule::pattern:
        if (!value.is_string() || !compiles(value.string()))
          return wrong(path, "is no regular expression");
        return {};
      case Rule::reference:
        if (!value.is_string()) return wrong(path, "is no reference");
        references_.emplace_back(path, value.string());
        return {};
      case Rule::limit:
        if (draft4_ && value.is_bool()) return {};
        [[fallthrough]];
      case Rule::number:
        if (!value.is_number()) return wrong(path, "is no number");
        return {};
      case Rule::positive:
        if (!value.is_number() || !(value.number() > 0)) return wrong(path, "is not above 0");
        return {};
      case Rule::count:
        if (!value.is_number() || value.number() < 0 ||
            value.number() != std::floor(value.number()))
          return wrong(path, "is no count");
        return {};
      case Rule::boolean:
        if (!value.is_bool()) return wrong(path, "is neither true nor false");
        return {};
      default:
        if (!value.is_array()) return wrong(path, "is no array");
        return {};
    }
  }

  Result<void> schemas(const Json& value, const std::string& path, bool may_be_empty) {
    if (!value.is_array()) return wrong(path, "is no array of schemas");
    if (value.items().empty() && !may_be_empty) return wrong(path, "is empty");
    size_t index = 0;
    for (const Json& item : value.items())
      TRY(schema(item, path + "[" + std::to_string(index++) + "]"));
    return {};
  }

  Result<void> schema_map(const Json& value, const std::string& path, bool patterns) {
    if (!value.is_object()) return wrong(path, "is no object of schemas");
    for (const Json::Member& member : value.members()) {
      if (patterns && !compiles(member.key))
        return wrong(below(path, member.key), "is no regular expression");
      TRY(schema(member.value, below(path, member.key)));
    }
    return {};
  }

  Result<void> names(const Json& value, const std::string& path) {
    if (!value.is_array()) return wrong(path, "is no array of names");
    std::vector<std::string_view> seen;
    for (const Json& item : value.items()) {
      if (!item.is_string()) return wrong(path, "holds a value that is no string");
      seen.push_back(item.string());
    }
    std::sort(seen.begin(), seen.end());
    if (std::adjacent_find(seen.begin(), seen.end()) != seen.end())
      return wrong(path, "names something twice");
    return {};
  }

  Result<void> type(const Json& value, const std::string& path) {
    if (is_type(value)) return {};
    if (!value.is_array() || value.items().empty())
      return wrong(path, value.text(JsonStyle::compact) + " is no type");
    for (const Json& item : value.items()) {
      if (!is_type(item)) return wrong(path, item.text(JsonStyle::compact) + " is no type");
    }
    return names(value, path);
  }

  bool resolves(const std::string& reference) const {
    const size_t hash = reference.find('#');
    const std::string base = reference.substr(0, hash);
    std::string fragment = hash == std::string::npos ? "" : reference.substr(hash + 1);
    if (!base.empty()) {
      if (base.find("json-schema.org/") != std::string::npos) return true;  // built-in everywhere
      const auto named = [&](const std::string& id) { return id.substr(0, id.find('#')) == base; };
      return std::any_of(ids_.begin(), ids_.end(), named);
    }
    if (fragment.empty()) return true;
    if (fragment[0] == '/') return points_somewhere(fragment);
    return std::find(anchors_.begin(), anchors_.end(), fragment) != anchors_.end();
  }

  // A JSON pointer: "/$defs/a~1b", with %XX escapes.
  bool points_somewhere(std::string_view pointer) const {
    const Json* at = &root_;
    while (!pointer.empty()) {
      pointer.remove_prefix(1);
      const size_t end = std::min(pointer.find('/'), pointer.size());
      const std::string token = unescaped(pointer.substr(0, end));
      pointer.remove_prefix(end);
      if (at->is_array()) {
        size_t index = 0;
        for (char digit : token) {
          if (digit < '0' || digit > '9' || index > at->items().size()) return false;
          index = index * 10 + static_cast<size_t>(digit - '0');
        }
        if (token.empty() || index >= at->items().size()) return false;
        at = &at->items()[index];
      } else if (at = at->find(token); at == nullptr) {
        return false;
      }
    }
    return at->is_object() || at->is_bool();
  }

  static std::string unescaped(std::string_view token) {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'                 ? c - '0'
             : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87
                                                  : -1;
    };
    std::string plain;
    for (size_t i = 0; i < token.size(); ++i) {
      if (token[i] == '%' && i + 2 < token.size() && digit(token[i + 1]) >= 0 &&
          digit(token[i + 2]) >= 0) {
        plain += static_cast<char>(digit(token[i + 1]) * 16 + digit(token[i + 2]));
        i += 2;
      } else {
        plain += token[i];
      }
    }
    std::string out;
    for (size_t i = 0; i < plain.size(); ++i) {
      if (plain[i] == '~' && i + 1 < plain.size() && (plain[i + 1] == '0' || plain[i + 1] == '1')) {
        out += plain[++i] == '0' ? '~' : '/';
      } else {
        out += plain[i];
      }
    }
    return out;
  }

  const Json& root_;
  bool old_items_ = false;
  bool draft4_ = false;
  std::vector<std::string> ids_, anchors_;
  std::vector<std::pair<std::string, std::string>> references_;  // path, target
};

}  // namespace

Result<void> check_json_schema(const Json& schema) { return SchemaChecker(schema).run(); }

}  // namespace deepinfer::recipe
