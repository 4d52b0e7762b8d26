#include "recipe/output_parser.h"

#include <algorithm>

#include "recipe/json_tree.h"
#include "text/utf8.h"

namespace deepinfer::recipe {

OutputParser::OutputParser(const ParsingOptions& options) {
  for (const std::string& stop : options.stop_sequences) {
    if (!stop.empty()) stops_.push_back(stop);
  }
  build(options);
  enter(start_state(options));
}

void OutputParser::build(const ParsingOptions& options) {
  states_.resize(kOutputStates);
  for (State& state : states_) state.wakes.fill(false);
  for (const OutputRest& rest : output_rests())
    states_[static_cast<size_t>(rest.state)].rest = {rest.act, {}};
  using Rule = OutputRule;
  for (const OutputRow& row : output_rows()) {
    State& state = states_[static_cast<size_t>(row.state)];
    if (row.rule == Rule::stops) {
      for (const std::string& stop : stops_)
        add_pattern(state, {stop, 0, 0, nullptr, false, false, row.next, {row.act, stop}});
    } else if (row.rule != Rule::tools || options.parse_tool_calls) {
      const bool newlines = row.rule == Rule::newlines || row.rule == Rule::tools;
      add_pattern(state, {row.spelled.text,
                          row.spelled.control_begin,
                          row.spelled.control_end,
                          nullptr,
                          newlines,
                          row.rule == Rule::lead,
                          state_for_mode(row.next, options),
                          {row.act, row.text}});
    }
  }
}

void OutputParser::add_pattern(State& state, Pattern pattern) {
  const std::string_view literal = pattern.literal;
  std::vector<uint32_t>& failures = failures_.emplace_back(literal.size(), 0);
  for (size_t i = 1, border = 0; i < literal.size(); ++i) {
    while (border > 0 && literal[i] != literal[border]) border = failures[border - 1];
    if (literal[i] == literal[border]) ++border;
    failures[i] = static_cast<uint32_t>(border);
  }
  pattern.failures = failures.data();
  state.wakes[static_cast<uint8_t>(literal[0])] = true;
  if (pattern.newlines) state.wakes['\n'] = state.counts_newlines = true;
  state.patterns.push_back(pattern);
}

void OutputParser::enter(OutputState state) {
  state_ = &states_[static_cast<size_t>(state)];
  for (Pattern& pattern : state_->patterns) pattern.matched = pattern.run = pattern.before = 0;
  fresh_ = asleep_ = true;
}

void OutputParser::push(std::string_view chunk, Spelling spelling,
                        std::vector<OutputEvent>& events) {
  const uint64_t number = pushes_++;
  if (stopped_) return;
  const size_t begin = text_.size();
  if (cut_.empty() && text::find_invalid_utf8(chunk) == chunk.size()) {
    text_ += chunk;
  } else {
    cut_ += chunk;
    cut_.erase(0, text::append_replacing_invalid(cut_, text_));
    if (text_.size() == begin) return;  // only part of a character: it comes with the rest
  }
  chunks_.push_back({text_begin_ + text_.size(), number});
  scan(std::string_view(text_).substr(begin), spelling);
  release();
  drain(false, events);
}

void OutputParser::finish(std::vector<OutputEvent>& events) {
  if (stopped_) return;
  if (!cut_.empty()) {
    cut_.clear();
    text_ += text::kReplacement;
    scanned_ += text::kReplacement.size();
    chunks_.push_back({scanned_, pushes_});
  }
  add_segment(scanned_, state_->rest);
  drain(true, events);
}

// Length of the match that the byte completes, else 0.
size_t OutputParser::feed(Pattern& pattern, char byte, Spelling spelling) const {
  if (pattern.lead) return fresh_ && byte == pattern.literal[0] ? 1 : 0;
  const auto fits = [&](size_t at) {
    if (byte != pattern.literal[at]) return false;
    if (spelling == Spelling::any) return true;
    const bool control = at >= pattern.control_begin && at < pattern.control_end;
    return control == (spelling == Spelling::control);
  };
  bool broke = false;
  while (pattern.matched > 0 && !fits(pattern.matched)) {
    pattern.matched = pattern.failures[pattern.matched - 1];
    broke = true;
  }
  if (broke) pattern.run = 0;
  if (fits(pattern.matched)) {
    if (pattern.matched++ == 0) pattern.before = pattern.run;
  } else {
    // A line end that breaks a match is not counted.
    pattern.run = byte == '\n' && !broke ? pattern.run + 1 : 0;
  }
  if (pattern.matched < pattern.literal.size()) return 0;
  return pattern.matched + (pattern.newlines ? pattern.before : 0);
}

void OutputParser::scan(std::string_view text, Spelling spelling) {
  for (size_t at = 0; at < text.size();) {
    if (asleep_) {
      const size_t begin = at;
      while (at < text.size() && !state_->wakes[static_cast<uint8_t>(text[at])]) ++at;
      if (at > begin) {
        fresh_ = false;
        if (state_->counts_newlines) {
          for (Pattern& pattern : state_->patterns) pattern.run = 0;
        }
        scanned_ += at - begin;
      }
      if (at == text.size()) return;
    }
    const char byte = text[at++];
    ++scanned_;
    const Pattern* hit = nullptr;
    size_t length = 0;
    asleep_ = true;
    for (Pattern& pattern : state_->patterns) {
      const size_t matched = feed(pattern, byte, spelling);
      if (pattern.matched > 0) asleep_ = false;
      if (matched > 0 && hit == nullptr) {
        hit = &pattern;
        length = matched;
      }
    }
    fresh_ = false;
    if (hit != nullptr) take(*hit, length);
  }
}

void OutputParser::take(const Pattern& pattern, size_t length) {
  add_segment(scanned_ - length, state_->rest);
  add_segment(scanned_, pattern.action);
  enter(pattern.next);
}

// Text that no pattern can take any more.
void OutputParser::release() {
  size_t held = 0;
  for (const Pattern& pattern : state_->patterns) {
    if (pattern.lead) continue;
    size_t own = pattern.matched;
    if (pattern.newlines) own = own > 0 ? own + pattern.before : pattern.run;
    held = std::max(held, own);
  }
  add_segment(scanned_ - held, state_->rest);
}

void OutputParser::add_segment(uint64_t end, const Action& action) {
  if (end <= segmented_) return;
  segmented_ = end;
  if (!segments_.empty() && segments_.back().action == action && action.act <= OutputAct::escaped) {
    segments_.back().end = end;
  } else {
    segments_.push_back({end, action});
  }
}

std::string_view OutputParser::bytes(uint64_t begin, uint64_t end) const {
  return std::string_view(text_).substr(begin - text_begin_, end - begin);
}

// Maps segments back on chunks: a piece goes out when it fills the rest of a chunk, or when
// another segment follows it.
void OutputParser::drain(bool final, std::vector<OutputEvent>& events) {
  while (!segments_.empty() && !chunks_.empty() && !stopped_) {
    const Segment segment = segments_.front();
    const Chunk chunk = chunks_.front();
    const bool once = segment.action.act > OutputAct::mark;
    if (once && chunk.end < segment.end) {
      while (!chunks_.empty() && chunks_.front().end <= segment.end) chunks_.pop_front();
      drained_ = segment.end;
      segments_.pop_front();
      emit({}, segment.action, chunk.number, events);
    } else if (segment.end >= chunk.end) {
      const std::string_view text = bytes(drained_, chunk.end);
      drained_ = chunk.end;
      chunks_.pop_front();
      if (segment.end == drained_) segments_.pop_front();
      emit(text, segment.action, chunk.number, events);
    } else if (segments_.size() > 1 || final || once) {
      const std::string_view text = bytes(drained_, segment.end);
      drained_ = segment.end;
      segments_.pop_front();
      emit(text, segment.action, chunk.number, events);
    } else {
      break;
    }
  }
  constexpr size_t kKept = 1 << 16;
  const size_t done = drained_ - text_begin_;
  if (done == text_.size() || done > kKept) {
    text_.erase(0, done);
    text_begin_ = drained_;
  }
}

void OutputParser::emit(std::string_view text, const Action& action, uint64_t chunk,
                        std::vector<OutputEvent>& events) {
  using Kind = OutputEvent::Kind;
  switch (action.act) {
    case OutputAct::content:
    case OutputAct::mark:
      events.push_back({Kind::content, std::string(text), chunk});
      break;
    case OutputAct::space:
      events.push_back({Kind::content, " ", chunk});
      break;
    case OutputAct::reasoning:
      events.push_back({Kind::reasoning, std::string(text), chunk});
      break;
    case OutputAct::drop:
      break;
    case OutputAct::begin:
      name_.clear();
      break;
    case OutputAct::name:
      name_ += text;
      break;
    case OutputAct::call:
      ++calls_;
      events.push_back({Kind::call, name_, chunk});
      break;
    case OutputAct::arguments:
      events.push_back({Kind::arguments, std::string(action.text), chunk});
      break;
    case OutputAct::raw:
      events.push_back({Kind::arguments, std::string(text), chunk});
      break;
    case OutputAct::escaped: {
      OutputEvent& event = events.emplace_back(OutputEvent{Kind::arguments, {}, chunk});
      append_json_escaped(event.text, text);
      break;
    }
    case OutputAct::stop:
      stopped_ = true;
      events.push_back({Kind::stop, std::string(action.text), chunk});
      break;
  }
}

}  // namespace deepinfer::recipe
