#include "tests/tidy/function_scan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace deepinfer::tidy {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// 1'000 or 0x'ff: the quote stands inside a token that starts with a digit.
bool is_digit_separator(std::string_view text, std::size_t quote) {
  std::size_t start = quote;
  while (start > 0 && (is_word(text[start - 1]) || text[start - 1] == '\'')) --start;
  return start < quote && std::isdigit(static_cast<unsigned char>(text[start])) != 0;
}

// Blanks text[begin, end) except line ends.
void blank(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

// The end of the literal that opens with the quote at `begin`: one past its closing quote.
std::size_t literal_end(std::string_view text, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != text[begin] && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

// The same for R"mark(...)mark", with the quote at `begin`.
std::size_t raw_literal_end(std::string_view text, std::size_t begin) {
  const std::size_t open = text.find('(', begin);
  if (open == std::string_view::npos) return text.size();
  const std::string close = ")" + std::string(text.substr(begin + 1, open - begin - 1)) + "\"";
  const std::size_t end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

void blank_preprocessor(std::string& text) {
  bool continued = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t first = text.find_first_not_of(" \t", begin);
    const bool directive = continued || (first < end && text[first] == '#');
    continued = directive && end > begin && text[end - 1] == '\\';
    if (directive) blank(text, begin, end);
    begin = end + 1;
  }
}

enum class Brace { kScope, kFunction, kInitializer };

// What the brace after `header` opens at namespace or class scope. `header` is the text since the
// last declaration ended, blanks collapsed.
Brace brace_kind(std::string header) {
  while (!header.empty() && header.back() == ' ') header.pop_back();
  std::string_view rest = header;
  if (rest.starts_with("template")) {
    int depth = 0;
    std::size_t i = rest.find('<');
    for (; i < rest.size(); ++i) {
      depth += rest[i] == '<' ? 1 : rest[i] == '>' ? -1 : 0;
      if (depth == 0) break;
    }
    rest.remove_prefix(std::min(i + 1, rest.size()));
  }
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  static constexpr std::array<std::string_view, 6> kScopes = {
      "namespace", "class", "struct", "union", "enum", "inline namespace"};
  for (const std::string_view word : kScopes) {
    if (rest.starts_with(word) && (rest.size() == word.size() || !is_word(rest[word.size()]))) {
      return Brace::kScope;
    }
  }
  const bool has_parameters = rest.find(')') != std::string_view::npos;
  if (rest.starts_with("extern \"\"") && !has_parameters) return Brace::kScope;
  if (!has_parameters || rest.ends_with('=') || rest.ends_with(',')) return Brace::kInitializer;
  // `Type::Type(int a) : a_` before `{a}`: a member's initializer, the body comes later.
  const std::size_t members = rest.find(") : ");
  if (members != std::string_view::npos && is_word(rest.back())) return Brace::kInitializer;
  return Brace::kFunction;
}

// Walks over code_only() text; one object per file.
class Scanner {
 public:
  std::vector<Function> scan(std::string_view code) {
    for (const char c : code) {
      if (c == '\n') ++line_;
      take(c);
    }
    return std::move(functions_);
  }

 private:
  void take(char c) {
    if (c == '{') return open();
    if (c == '}') return close();
    if (!at_scope()) return;
    if (c == '(') ++parentheses_;
    if (c == ')') --parentheses_;
    if (c == ';' && parentheses_ == 0) return restart();
    const bool access = header_ == "public" || header_ == "private" || header_ == "protected";
    if (c == ':' && access) return restart();
    append(c);
  }

  bool at_scope() const { return stack_.empty() || stack_.back() == Brace::kScope; }

  void append(char c) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (header_.empty()) {
      if (space) return;
      first_line_ = line_;
    }
    if (space && header_.back() == ' ') return;
    header_ += space ? ' ' : c;
  }

  void restart() {
    header_.clear();
    parentheses_ = 0;
  }

  void open() {
    if (!at_scope()) {
      stack_.push_back(stack_.back());  // whatever it is, it belongs to what is around it
      return;
    }
    // A brace inside parentheses is a default argument or a lambda among arguments.
    const Brace kind = parentheses_ > 0 ? Brace::kInitializer : brace_kind(header_);
    stack_.push_back(kind);
    if (kind == Brace::kScope) restart();
  }

  void close() {
    if (stack_.empty()) return;
    const Brace kind = stack_.back();
    stack_.pop_back();
    if (!at_scope()) return;
    if (kind == Brace::kInitializer) return append('}');
    if (kind == Brace::kFunction) {
      functions_.push_back({first_line_, line_ - first_line_ + 1, header_});
    }
    restart();
  }

  std::vector<Brace> stack_;  // open braces, outermost first
  std::string header_;        // text since the last declaration ended, at scope level only
  std::size_t first_line_ = 1;
  std::size_t line_ = 1;
  int parentheses_ = 0;  // open at scope level
  std::vector<Function> functions_;
};

}  // namespace

std::string code_only(const SourceFile& file) {
  std::string text;
  for (const std::string& line : file.lines) text += line + "\n";
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "//") == 0) {
      const std::size_t end = std::min(text.find('\n', i), text.size());
      blank(text, i, end);
      i = end;
    } else if (text.compare(i, 2, "/*") == 0) {
      const std::size_t close = text.find("*/", i + 2);
      const std::size_t end = close == std::string::npos ? text.size() : close + 2;
      blank(text, i, end);
      i = end;
    } else if (text[i] == '"') {
      const bool raw = i > 0 && text[i - 1] == 'R' && (i < 2 || !is_word(text[i - 2]));
      const std::size_t end = raw ? raw_literal_end(text, i) : literal_end(text, i);
      blank(text, i + 1, end - 1);
      i = end;
    } else if (text[i] == '\'' && !is_digit_separator(text, i)) {
      const std::size_t end = literal_end(text, i);
      blank(text, i + 1, end - 1);
      i = end;
    } else {
      ++i;
    }
  }
  blank_preprocessor(text);
  return text;
}

std::vector<Function> functions_of(const SourceFile& file) {
  return Scanner().scan(code_only(file));
}

}  // namespace deepinfer::tidy
