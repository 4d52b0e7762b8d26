#include "base/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

// The exceptions of toml++ are off: a parse returns its error.
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "base/check.h"
#include "base/file.h"

namespace deepinfer {
namespace {

constexpr size_t kFileLimit = size_t{1} << 20;

using Entry = OptionTable::Entry;

// A value before it is known whether the option takes it.
using Value = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

std::string shown(const Value& value) {
  struct {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const { return fmt::format("\"{}\"", text); }
    std::string operator()(const std::vector<std::string>& items) const {
      return fmt::format("a list of {}", items.size());
    }
  } show;
  return std::visit(show, value);
}

std::string joined(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
  return out;
}

// A number and a unit: "8GB", "1.5 GiB".
std::optional<int64_t> parse_bytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"B", 1},        {"kB", 1e3},    {"KB", 1e3},     {"MB", 1e6},
                             {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10}, {"MiB", 0x1p20},
                             {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc()) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (!(bytes >= 0 && bytes < 0x1p62)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

// "a whole number from 1 to 1024"
std::string wanted(const Entry& entry) {
  struct {
    std::string operator()(bool*) const { return "true or false"; }
    std::string operator()(int64_t*) const { return "a whole number"; }
    std::string operator()(size_t*) const { return "a whole number, not negative"; }
    std::string operator()(double*) const { return "a number"; }
    std::string operator()(std::string*) const { return "a text"; }
    std::string operator()(std::vector<std::string>*) const { return "a list of texts"; }
  } name;
  if (!entry.rule.choices.empty()) return "one of " + joined(entry.rule.choices);
  std::string out = entry.rule.bytes ? "a number of bytes, such as 8GB or 512MiB"
                                     : std::visit(name, entry.target);
  if (entry.rule.least) out += fmt::format(" from {}", *entry.rule.least);
  if (entry.rule.most) out += fmt::format(" up to {}", *entry.rule.most);
  return out;
}

bool within(const OptionRule& rule, double number) {
  return (!rule.least || number >= *rule.least) && (!rule.most || number <= *rule.most);
}

bool chosen(const OptionRule& rule, const std::string& text) {
  return rule.choices.empty() ||
         std::find(rule.choices.begin(), rule.choices.end(), text) != rule.choices.end();
}

// Whether the option takes the value, by type, range and choice; with `write` it also does. A value
// that a stronger source overrules is still checked, so that a bad file does not hide.
struct Take {
  const OptionRule& rule;
  const Value& value;
  bool write;

  bool operator()(bool* target) const {
    const bool* flag = std::get_if<bool>(&value);
    if (flag && write) *target = *flag;
    return flag != nullptr;
  }
  bool operator()(int64_t* target) const {
    const int64_t* number = std::get_if<int64_t>(&value);
    if (!number || !within(rule, static_cast<double>(*number))) return false;
    if (write) *target = *number;
    return true;
  }
  bool operator()(size_t* target) const {
    const int64_t* number = std::get_if<int64_t>(&value);
    const std::string* text = std::get_if<std::string>(&value);
    const std::optional<int64_t> bytes = rule.bytes && text ? parse_bytes(*text) : std::nullopt;
    if (bytes) number = &*bytes;
    if (!number || *number < 0 || !within(rule, static_cast<double>(*number))) return false;
    if (write) *target = static_cast<size_t>(*number);
    return true;
  }
  bool operator()(double* target) const {
    const int64_t* whole = std::get_if<int64_t>(&value);
    const double* real = std::get_if<double>(&value);
    if (!whole && !real) return false;
    const double number = whole ? static_cast<double>(*whole) : *real;
    if (!std::isfinite(number) || !within(rule, number)) return false;
    if (write) *target = number;
    return true;
  }
  bool operator()(std::string* target) const {
    const std::string* text = std::get_if<std::string>(&value);
    if (!text || !chosen(rule, *text)) return false;
    if (write) *target = *text;
    return true;
  }
  bool operator()(std::vector<std::string>* target) const {
    const auto* items = std::get_if<std::vector<std::string>>(&value);
    if (!items) return false;
    for (const std::string& item : *items) {
      if (!chosen(rule, item)) return false;
    }
    if (write) *target = *items;
    return true;
  }
};

// place: "DEEPINFER_THREADS", "config.toml:3", "--threads".
Result<void> assign(Entry& entry, const Value& value, OptionTable::Source source,
                    const std::string& place) {
  const bool in_force = source >= entry.source;
  if (!std::visit(Take{entry.rule, value, in_force}, entry.target)) {
    return Error::invalid(
        place, fmt::format("{}: expected {}, found {}", entry.name, wanted(entry), shown(value)));
  }
  if (in_force) entry.source = source;
  return {};
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view yes : {"true", "1", "on", "yes"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"false", "0", "off", "no"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  if (text.empty()) return items;
  while (true) {
    const size_t comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    if (comma == text.npos) return items;
    text.remove_prefix(comma + 1);
  }
}

template <class T>
Value or_text(std::optional<T> parsed, std::string_view text) {
  return parsed ? Value(*parsed) : Value(std::string(text));
}

// Text as the option's own type where it reads as such, as text otherwise (and then refused).
Value value_of_text(const Entry& entry, std::string_view text) {
  struct {
    std::string_view text;
    Value operator()(bool*) const { return or_text(parse_bool(text), text); }
    Value operator()(int64_t*) const { return or_text(parse_number<int64_t>(text), text); }
    Value operator()(size_t*) const { return or_text(parse_number<int64_t>(text), text); }
    Value operator()(double*) const { return or_text(parse_number<double>(text), text); }
    Value operator()(std::string*) const { return std::string(text); }
    Value operator()(std::vector<std::string>*) const { return split_list(text); }
  } read{text};
  return std::visit(read, entry.target);
}

}  // namespace

// Visits a parsed file: tables become "table.key".
class TomlWalk {
 public:
  TomlWalk(OptionTable& table, const std::string& file) : table_(table), file_(file) {}

  Result<void> walk(const toml::table& node, const std::string& prefix) {
    for (const auto& [key, child] : node) {
      std::string name = prefix + std::string(key.str());
      std::replace(name.begin(), name.end(), '_', '-');
      const std::string place =
          fmt::format("{}:{}", file_, static_cast<unsigned>(key.source().begin.line));
      Entry* entry = table_.find(name);
      const toml::table* inner = child.as_table();
      if (inner && !entry) {
        TRY(walk(*inner, name + "."));
        continue;
      }
      if (!entry) {
        return Error::invalid(place, fmt::format("unknown option \"{}\"", name));
      }
      TRY(take(*entry, child, place));
    }
    return {};
  }

 private:
  Result<void> take(Entry& entry, const toml::node& node, const std::string& place) {
    std::optional<Value> value = convert(node);
    if (!value) {
      return Error::invalid(place, fmt::format("{}: expected {}, found {}", entry.name,
                                               wanted(entry), type_name(node)));
    }
    return assign(entry, *value, OptionTable::Source::file, place);
  }

  static std::string type_name(const toml::node& node) {
    switch (node.type()) {
      case toml::node_type::table:
        return "a table";
      case toml::node_type::array:
        return "a list with other items than texts";
      default:
        return "a date or time";
    }
  }

  static std::optional<Value> convert(const toml::node& node) {
    if (const auto* flag = node.as_boolean()) return Value(flag->get());
    if (const auto* whole = node.as_integer()) return Value(int64_t{whole->get()});
    if (const auto* real = node.as_floating_point()) return Value(real->get());
    if (const auto* text = node.as_string()) return Value(std::string(text->get()));
    const toml::array* array = node.as_array();
    if (!array) return std::nullopt;
    std::vector<std::string> items;
    for (const toml::node& item : *array) {
      const auto* text = item.as_string();
      if (!text) return std::nullopt;
      items.emplace_back(text->get());
    }
    return Value(std::move(items));
  }

  OptionTable& table_;
  const std::string& file_;
};

void OptionTable::add(std::string name, Target target, std::string description, OptionRule rule) {
  check(!has(name), "an option of this name exists");
  entries_.push_back({std::move(name), target, std::move(description), std::move(rule)});
}

Result<void> OptionTable::load_file(const std::string& path) {
  const std::string text = TRY(read_file(path, kFileLimit));
  return load_toml(text, path);
}

Result<void> OptionTable::load_toml(std::string_view text, const std::string& name) {
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Error::invalid(
        fmt::format("{}:{}", name, static_cast<unsigned>(error.source().begin.line)),
        fmt::format("is not TOML: {}", error.description()));
  }
  return TomlWalk(*this, name).walk(parsed.table(), "");
}

Result<void> OptionTable::load_environment() {
  std::vector<std::string_view> list;
  for (char** variable = ::environ; variable && *variable; ++variable) list.push_back(*variable);
  return load_environment(list);
}

Result<void> OptionTable::load_environment(std::span<const std::string_view> list) {
  for (Entry& entry : entries_) {
    const std::string variable = variable_of(entry.name);
    for (std::string_view text : list) {
      if (text.size() <= variable.size() || text[variable.size()] != '=') continue;
      if (text.substr(0, variable.size()) != variable) continue;
      TRY(assign(entry, value_of_text(entry, text.substr(variable.size() + 1)), Source::environment,
                 variable));
    }
  }
  return {};
}

Result<void> OptionTable::set(std::string_view name, std::string_view text) {
  Entry* entry = find(name);
  if (!entry) return Error::invalid(fmt::format("--{}", name), "unknown option");
  return assign(*entry, value_of_text(*entry, text), Source::command_line,
                fmt::format("--{}", name));
}

OptionTable::Source OptionTable::source(std::string_view name) const {
  const Entry* entry = find(name);
  check(entry != nullptr, "no option of this name");
  return entry->source;
}

std::string OptionTable::variable_of(std::string_view name) {
  std::string out = "DEEPINFER_";
  for (const char c : name) {
    const bool lower = c >= 'a' && c <= 'z';
    out += lower ? static_cast<char>(c - 'a' + 'A') : (c == '-' || c == '.' ? '_' : c);
  }
  return out;
}

OptionTable::Entry* OptionTable::find(std::string_view name) {
  for (Entry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const OptionTable::Entry* OptionTable::find(std::string_view name) const {
  return const_cast<OptionTable*>(this)->find(name);
}

}  // namespace deepinfer
