#pragma once

// OutputParser: what the model writes, as it comes, to reasoning, answer and tool calls.
//
//   OutputParser parser(options);
//   std::vector<OutputEvent> events;
//   for (chunk : chunks) parser.push(chunk, Spelling::any, events);
//   parser.finish(events);
//
// One table of states (output_states.h) says which spellings end a state, what becomes of them and
// of the text before. Contents, names and arguments do not depend on where chunks are cut, not even
// inside a character; only the number of spaces that replace prose in JSON mode does. Text is held
// back as long as it may be the start of a marker. Every input is an output of some model: parsing
// cannot fail, broken calls give broken arguments.
//
// Chunks that came as token ids tell control tokens from text that looks like them: then markers
// are recognised in control tokens only, and stop strings in other text only.
//
// Source: specification of the DeepSeek output format, sections 5 and 6. Time is linear in the
// text, memory is what is held back. Threads: one at a time.

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/output_states.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

// How the bytes of a chunk came: as text of unknown origin, as ordinary tokens, as control tokens.
enum class Spelling : uint8_t { any, plain, control };

struct OutputEvent {
  enum class Kind { content, reasoning, call, arguments, stop };
  Kind kind = Kind::content;
  std::string text;    // call: the name; stop: the stop string
  uint64_t chunk = 0;  // content and reasoning: the push() that brought the text, counted from 0
  bool operator==(const OutputEvent&) const = default;
};

class OutputParser {
 public:
  explicit OutputParser(const ParsingOptions& options);
  OutputParser(OutputParser&&) noexcept = default;  // patterns view strings of the parser
  OutputParser(const OutputParser&) = delete;

  // Appends what the chunk completes. Bytes that are no UTF-8 become U+FFFD. After a stop event
  // nothing more comes.
  void push(std::string_view chunk, Spelling spelling, std::vector<OutputEvent>& events);
  // The end of the output: what was held back. Call it once; push() is over.
  void finish(std::vector<OutputEvent>& events);

  bool stopped() const { return stopped_; }
  size_t calls() const { return calls_; }  // names completed so far

 private:
  struct Action {
    OutputAct act;
    std::string_view text;  // arguments: what is written; stop: the stop string
    bool operator==(const Action&) const = default;
  };
  // One spelling that a state waits for, and how much of it was seen.
  struct Pattern {
    std::string_view literal;
    size_t control_begin, control_end;  // bytes of the literal that are a control token
    const uint32_t* failures;           // [literal.size()], longest border of each prefix
    bool newlines, lead;
    OutputState next;
    Action action;
    size_t matched = 0;
    size_t run = 0;     // line ends right before this place
    size_t before = 0;  // line ends right before the match
  };
  struct State {
    std::vector<Pattern> patterns;
    Action rest;                   // what text becomes that no pattern takes
    std::array<bool, 256> wakes;   // bytes that can change a pattern that has seen nothing
    bool counts_newlines = false;  // some pattern has `newlines`
  };
  struct Chunk {
    uint64_t end;  // offset in the output
    uint64_t number;
  };
  struct Segment {
    uint64_t end;
    Action action;
  };
  void build(const ParsingOptions& options);
  void add_pattern(State& state, Pattern pattern);
  void enter(OutputState state);
  void scan(std::string_view text, Spelling spelling);
  size_t feed(Pattern& pattern, char byte, Spelling spelling) const;
  void take(const Pattern& pattern, size_t length);
  void release();
  void add_segment(uint64_t end, const Action& action);
  void drain(bool final, std::vector<OutputEvent>& events);
  void emit(std::string_view text, const Action& action, uint64_t chunk,
            std::vector<OutputEvent>& events);
  std::string_view bytes(uint64_t begin, uint64_t end) const;

  std::vector<std::string> stops_;
  std::deque<std::vector<uint32_t>> failures_;
  std::vector<State> states_;  // by number
  State* state_ = nullptr;
  bool fresh_ = true;   // nothing was seen in this state
  bool asleep_ = true;  // no pattern has seen anything

  std::string text_;  // from offset text_begin_ on
  uint64_t text_begin_ = 0;
  uint64_t scanned_ = 0;  // offsets in the output
  uint64_t segmented_ = 0;
  uint64_t drained_ = 0;
  std::string cut_;  // start of a character that the last chunk did not complete
  std::deque<Chunk> chunks_;
  std::deque<Segment> segments_;

  std::string name_;
  size_t calls_ = 0;
  uint64_t pushes_ = 0;
  bool stopped_ = false;
};

}  // namespace deepinfer::recipe
