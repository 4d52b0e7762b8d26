#include "text/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

namespace deepinfer::text {
namespace {

// Steps of the matcher for one match, and memory for its backtracking in KiB.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 65'536;
constexpr size_t kJitStackStart = size_t{32} << 10;
constexpr size_t kJitStackLimit = size_t{8} << 20;

// White_Space without the brackets of a class; PCRE2's own \s adds U+180E.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f})"
    R"(\x{205f}\x{3000})";

// \s and, outside of a class, \S written out.
std::string with_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's' && in_class) {
        out += kWhiteSpace;
      } else if ((next == 's' || next == 'S') && !in_class) {
        out += next == 's' ? "[" : "[^";
        out += kWhiteSpace;
        out += ']';
      } else {
        out += c;
        out += next;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct MatchState {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  explicit MatchState(const pcre2_code* of)
      : data(pcre2_match_data_create_from_pattern(of, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr)) {
    if (context == nullptr) return;
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  bool ok() const { return data != nullptr && context != nullptr; }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
};

}  // namespace

struct RegexSplitter::Code {
  struct Free {
    void operator()(pcre2_code* unused) const { pcre2_code_free(unused); }
  };
  std::string pattern;
  std::unique_ptr<pcre2_code, Free> code;

  // Appends the ends of the pieces of text[begin, end); text beyond `end` is not seen.
  Result<void> split(std::string_view text, size_t begin, size_t end, const MatchState& state,
                     std::vector<uint32_t>& ends) const {
    const auto* piece = reinterpret_cast<PCRE2_SPTR>(text.data()) + begin;
    const size_t size = end - begin;
    size_t gap = 0;  // start of what no match took yet
    size_t from = 0;
    while (from < size) {
      const int rc = pcre2_match(code.get(), piece, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                                 state.data, state.context);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) return Error::exhausted(fmt::format("pattern {}", pattern), message_of(rc));
      const size_t* range = pcre2_get_ovector_pointer(state.data);
      if (range[0] < from || range[1] <= range[0]) {  // \K moves the start
        return Error::unsupported(fmt::format("pattern {}", pattern), "moves the match's start");
      }
      if (gap < range[0]) ends.push_back(static_cast<uint32_t>(begin + range[0]));
      ends.push_back(static_cast<uint32_t>(begin + range[1]));
      gap = from = range[1];
    }
    if (gap < size) ends.push_back(static_cast<uint32_t>(end));
    return {};
  }
};

Result<RegexSplitter> RegexSplitter::create(const std::vector<std::string>& patterns,
                                            const std::string& source) {
  if (patterns.size() > kMaxPatterns) {
    return Error::unsupported(source, fmt::format("{} pre-tokenizer patterns, the limit is {}",
                                                  patterns.size(), kMaxPatterns));
  }
  std::vector<Code> codes;
  for (const std::string& pattern : patterns) {
    if (pattern.size() > kMaxPatternBytes) {
      return Error::unsupported(source, fmt::format("pre-tokenizer pattern of {} bytes, limit {}",
                                                    pattern.size(), kMaxPatternBytes));
    }
    const std::string text = with_white_space(pattern);
    int error = 0;
    size_t offset = 0;
    pcre2_code* compiled =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
    if (compiled == nullptr) {
      return Error::unsupported(
          source, fmt::format("pre-tokenizer pattern {}: {}", pattern, message_of(error)));
    }
    codes.push_back({pattern, std::unique_ptr<pcre2_code, Code::Free>(compiled)});
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without a JIT it is interpreted
  }
  return RegexSplitter(std::make_shared<const std::vector<Code>>(std::move(codes)));
}

Result<void> RegexSplitter::split(std::string_view text, std::vector<uint32_t>& ends) const {
  std::vector<uint32_t> before = {static_cast<uint32_t>(text.size())};
  std::vector<uint32_t> after;
  for (const Code& code : *codes_) {
    after.clear();
    const MatchState state(code.code.get());
    if (!state.ok()) return Error::exhausted("text", "no memory to match a pattern");
    size_t begin = 0;
    for (const uint32_t end : before) {
      TRY(code.split(text, begin, end, state, after));
      begin = end;
    }
    std::swap(before, after);
  }
  if (!text.empty()) ends.insert(ends.end(), before.begin(), before.end());
  return {};
}

}  // namespace deepinfer::text
