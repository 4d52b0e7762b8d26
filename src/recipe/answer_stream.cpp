#include "recipe/answer_stream.h"

#include <fmt/format.h>

#include <random>

#include "text/utf8.h"

namespace deepinfer::recipe {
namespace {

// The bytes end in a whole character that is not U+FFFD: decoding them would show no replacement
// at the end. A lead byte always starts a character anew, so its last four bytes tell.
bool ends_whole(std::string_view bytes) {
  if (bytes.empty()) return false;
  for (size_t length = 1; length <= std::min<size_t>(4, bytes.size()); ++length) {
    const std::string_view tail = bytes.substr(bytes.size() - length);
    if ((static_cast<uint8_t>(tail[0]) & 0xC0) == 0x80) continue;
    return text::find_invalid_utf8(tail) == tail.size() && tail != text::kReplacement;
  }
  return false;
}

}  // namespace

std::string random_call_suffix() {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::random_device device;
  std::string suffix;
  for (int i = 0; i < 20; ++i)
    suffix += kLetters[std::uniform_int_distribution<size_t>(0, kLetters.size() - 1)(device)];
  for (int i = 0; i < 4; ++i)
    suffix += kLetters[std::uniform_int_distribution<size_t>(0, 9)(device)];
  return suffix;
}

AnswerStream::AnswerStream(const ParsingOptions& options, bool thinking,
                           std::optional<text::Tokenizer> tokenizer, Suffix call_suffix)
    : parser_(options),
      thinking_(thinking),
      tokenizer_(std::move(tokenizer)),
      call_suffix_(std::move(call_suffix)) {}

Result<void> AnswerStream::push(const EngineChunk& chunk, std::vector<AnswerEvent>& events) {
  if (ended_) return {};
  if (const auto* ready = std::get_if<ReadyChunk>(&chunk)) {
    if (!started_) start(*ready, events);
    return {};
  }
  if (!started_) start({}, events);
  if (const auto* finish = std::get_if<EngineFinish>(&chunk)) {
    end(*finish, events);
  } else if (const auto* text = std::get_if<TextChunk>(&chunk)) {
    usage_.completion_tokens += text->tokens;
    push_text(text->text, Spelling::any, nullptr, events);
  } else {
    Result<void> pushed = push_tokens(std::get<TokenChunk>(chunk), events);
    if (!pushed.ok()) {
      ended_ = true;
      return pushed;
    }
  }
  if (parser_.stopped() && !ended_) end(std::nullopt, events);
  return {};
}

void AnswerStream::finish(std::vector<AnswerEvent>& events) {
  if (ended_) return;
  if (!started_) start({}, events);
  end(std::nullopt, events);
}

void AnswerStream::start(const ReadyChunk& ready, std::vector<AnswerEvent>& events) {
  started_ = true;
  usage_.prompt = ready.usage;
  AnswerEvent& event = events.emplace_back();
  event.kind = AnswerEvent::Kind::start;
  event.prompt = ready.usage;
  event.fingerprint = ready.fingerprint;
}

void AnswerStream::push_text(std::string_view text, Spelling spelling, Logprobs logprobs,
                             std::vector<AnswerEvent>& events) {
  if (logprobs) chunks_.emplace_back(pushed_, std::move(logprobs));
  ++pushed_;
  parser_.push(text, spelling, parsed_);
  translate(events);
}

Result<void> AnswerStream::push_tokens(const TokenChunk& chunk, std::vector<AnswerEvent>& events) {
  if (!tokenizer_)
    return Error::unsupported("answer", "has token ids, but there is no tokenizer to read them");
  if (chunk.logprobs && chunk.logprobs->size() != chunk.ids.size()) {
    return Error::invalid("answer", fmt::format("has {} log-probabilities for {} tokens",
                                                chunk.logprobs->size(), chunk.ids.size()));
  }
  for (size_t i = 0; i < chunk.ids.size() && !parser_.stopped(); ++i) {
    const int32_t id = chunk.ids[i];
    const bool control = tokenizer_->is_added(id);
    // A control token ends the text before it, whole or not, and is a chunk of its own.
    if (control) release_tokens(Spelling::plain, events);
    // Ids that came without log-probabilities before these show none.
    if (chunk.logprobs) {
      waiting_logprobs_.resize(waiting_.size());
      waiting_logprobs_.push_back((*chunk.logprobs)[i]);
    }
    waiting_.push_back(id);
    waiting_bytes_ += tokenizer_->token_bytes(id);
    if (control) release_tokens(Spelling::control, events);
  }
  if (ends_whole(waiting_bytes_)) release_tokens(Spelling::plain, events);
  return {};
}

void AnswerStream::release_tokens(Spelling spelling, std::vector<AnswerEvent>& events) {
  if (waiting_.empty() || parser_.stopped()) return;
  usage_.completion_tokens += waiting_.size();
  push_text(tokenizer_->decode(waiting_, text::SkipSpecial::no), spelling, entries_of_waiting(),
            events);
  waiting_.clear();
  waiting_logprobs_.clear();
  waiting_bytes_.clear();
}

Logprobs AnswerStream::entries_of_waiting() const {
  if (waiting_logprobs_.size() != waiting_.size()) return nullptr;
  std::vector<LogprobEntry> entries;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    LogprobEntry& entry = entries.emplace_back(entry_of(waiting_[i], waiting_logprobs_[i].logprob));
    for (const auto& [id, logprob] : waiting_logprobs_[i].top)
      entry.top.push_back(entry_of(id, logprob));
  }
  return std::make_shared<const std::vector<LogprobEntry>>(std::move(entries));
}

LogprobEntry AnswerStream::entry_of(int32_t id, float logprob) const {
  LogprobEntry entry;
  entry.logprob = logprob;
  entry.bytes = tokenizer_->token_bytes(id);
  if (text::find_invalid_utf8(entry.bytes) == entry.bytes.size()) {
    entry.token = entry.bytes;
    return entry;
  }
  for (const char byte : entry.bytes)
    entry.token += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return entry;
}

void AnswerStream::translate(std::vector<AnswerEvent>& events) {
  using From = OutputEvent::Kind;
  using To = AnswerEvent::Kind;
  for (OutputEvent& parsed : parsed_) {
    if (parsed.kind == From::stop) {
      stop_sequence_ = std::move(parsed.text);
      continue;
    }
    AnswerEvent& event = events.emplace_back();
    while (!chunks_.empty() && chunks_.front().first < parsed.chunk) chunks_.pop_front();
    switch (parsed.kind) {
      case From::reasoning:
        reasoning_ += parsed.text;
        event.kind = To::reasoning;
        break;
      case From::call:
        event.kind = To::call;
        event.call_id = next_call_id();
        break;
      case From::arguments:
        event.kind = To::arguments;
        break;
      default:
        event.kind = To::content;
    }
    const bool shows_text = event.kind == To::content || event.kind == To::reasoning;
    if (shows_text && !chunks_.empty() && chunks_.front().first == parsed.chunk)
      event.logprobs = chunks_.front().second;
    event.text = std::move(parsed.text);
  }
  parsed_.clear();
}

// "ET" tells the server, when the id comes back, that there was no thinking to send along.
std::string AnswerStream::next_call_id() {
  const bool empty = thinking_ && reasoning_.empty();
  return fmt::format("call_{:02}_{}{}", calls_++, empty ? "ET_" : "", call_suffix_());
}

void AnswerStream::end(std::optional<EngineFinish> finish, std::vector<AnswerEvent>& events) {
  if (!parser_.stopped()) parser_.finish(parsed_);
  translate(events);
  ended_ = true;
  AnswerEvent& event = events.emplace_back();
  event.kind = AnswerEvent::Kind::end;
  if (stop_sequence_) {
    event.finish = AnswerFinish::stop_sequence;
    event.stop_sequence = stop_sequence_;
  } else if (finish == EngineFinish::length) {
    event.finish = AnswerFinish::length;
  } else if (finish == EngineFinish::content_filter) {
    event.finish = AnswerFinish::content_filter;
  } else if (finish == EngineFinish::stop && parser_.calls() > 0) {
    event.finish = AnswerFinish::tool_calls;
  }
  if (tokenizer_) {
    const auto ids = tokenizer_->encode(reasoning_, text::SpecialTokens::recognise);
    usage_.reasoning_tokens = ids.ok() ? ids.value().size() : 0;
  }
  event.usage = usage_;
}

}  // namespace deepinfer::recipe
