#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normal_form.h"
#include "text/tokenizer_model.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace deepinfer::text {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // positions are 32 bits
constexpr size_t kMaxIdleScratch = 16;

struct Scratch {
  BpeScratch bpe;
  std::vector<uint32_t> ends;  // of the pieces, offsets in the text
};

// What a call needs beside the immutable state: one per call at a time, kept warm between calls.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto scratch = std::move(idle_.back());
        idle_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void give(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdleScratch) idle_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;  // under mutex_
};

}  // namespace

struct Tokenizer::State {
  TokenizerModel model;
  Bpe bpe;
  AddedTokens raw;         // found in the text as it came
  AddedTokens normalized;  // found in the normalized text, between those
  mutable ScratchPool pool;

  static Result<std::shared_ptr<const State>> create(TokenizerModel model,
                                                     const std::string& source);

  Result<void> encode_raw(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  Result<void> encode_normalized(std::string_view text, bool added, Scratch& scratch,
                                 std::vector<int32_t>& ids) const;
  Result<void> encode_pieces(std::string_view text, Scratch& scratch,
                             std::vector<int32_t>& ids) const;
};

Result<std::shared_ptr<const Tokenizer::State>> Tokenizer::State::create(
    TokenizerModel model, const std::string& source) {
  std::array<int32_t, 256> byte_ids{};
  for (size_t b = 0; b < byte_ids.size(); ++b) {
    const char byte = static_cast<char>(b);
    const auto id = model.vocabulary.find_base({&byte, 1});
    const bool needed = (b >= 0x20 && b < 0x7F) || model.has_unknown;
    if (!id && needed) {
      return Error::corrupt(source,
                            fmt::format("the vocabulary has no entry for byte 0x{:02X}", b));
    }
    byte_ids[b] = id.value_or(Bpe::kNoId);
  }
  auto state = std::make_shared<State>();
  std::vector<const AddedToken*> raw, normalized;
  std::unordered_set<std::string_view> spellings;
  for (AddedToken& token : model.added) {
    if (model.nfc && token.normalized) token.spelling = to_nfc(token.spelling);
    (token.normalized ? normalized : raw).push_back(&token);
    if (!spellings.insert(token.spelling).second) {
      return Error::corrupt(source, fmt::format("added token \"{}\" comes twice", token.spelling));
    }
  }
  state->raw = AddedTokens(raw);
  state->normalized = AddedTokens(normalized);
  state->bpe = Bpe(model.merges, byte_ids, model.vocabulary, model.whole_pieces);
  state->model = std::move(model);
  state->model.merges = {};
  return std::shared_ptr<const State>(std::move(state));
}

Result<void> Tokenizer::State::encode_raw(std::string_view text, Scratch& scratch,
                                          std::vector<int32_t>& ids) const {
  size_t at = 0;
  while (const auto match = raw.find(text, at)) {
    TRY(encode_normalized(text.substr(at, match->begin - at), true, scratch, ids));
    ids.push_back(match->id);
    at = match->end;
  }
  return encode_normalized(text.substr(at), true, scratch, ids);
}

Result<void> Tokenizer::State::encode_normalized(std::string_view text, bool added,
                                                 Scratch& scratch,
                                                 std::vector<int32_t>& ids) const {
  std::string composed;
  if (model.nfc && !is_surely_nfc(text)) {
    composed = to_nfc(text);
    text = composed;
  }
  size_t at = 0;
  while (const auto match = added ? normalized.find(text, at) : std::nullopt) {
    TRY(encode_pieces(text.substr(at, match->begin - at), scratch, ids));
    ids.push_back(match->id);
    at = match->end;
  }
  return encode_pieces(text.substr(at), scratch, ids);
}

Result<void> Tokenizer::State::encode_pieces(std::string_view text, Scratch& scratch,
                                             std::vector<int32_t>& ids) const {
  const auto* rule = std::get_if<SplitRule>(&model.splitter);
  size_t begin = 0;
  while (begin < text.size()) {
    scratch.ends.clear();
    if (rule != nullptr) {
      split_some(*rule, text, begin, scratch.ends);
    } else {
      TRY(std::get<RegexSplitter>(model.splitter).split(text, scratch.ends));
    }
    for (const uint32_t end : scratch.ends) {
      bpe.encode(text.substr(begin, end - begin), text.size() - begin, model.vocabulary,
                 scratch.bpe, ids);
      begin = end;
    }
  }
  return {};
}

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Result<Tokenizer> Tokenizer::from_json(std::string_view json, std::string source,
                                       std::string_view config_json) {
  TokenizerModel model = TRY(read_tokenizer_json(json, source, config_json));
  return Tokenizer(TRY(State::create(std::move(model), source)));
}

Result<Tokenizer> Tokenizer::from_parts(TokenizerParts parts) {
  TokenizerModel model = TRY(read_tokenizer_parts(parts));
  return Tokenizer(TRY(State::create(std::move(model), parts.source)));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  TRY(append(text, special, ids));
  return ids;
}

Result<void> Tokenizer::append(std::string_view text, SpecialTokens special,
                               std::vector<int32_t>& ids) const {
  if (text.size() > kMaxTextBytes) {
    return Error::exhausted("text",
                            fmt::format("{} bytes, the limit is {}", text.size(), kMaxTextBytes));
  }
  if (const size_t at = find_invalid_utf8(text); at != text.size()) {
    return Error::invalid("text", fmt::format("invalid UTF-8 at byte {} (0x{:02X})", at,
                                              static_cast<uint8_t>(text[at])));
  }
  const size_t before = ids.size();
  auto scratch = state_->pool.take();
  auto result = special == SpecialTokens::recognise
                    ? state_->encode_raw(text, *scratch, ids)
                    : state_->encode_normalized(text, false, *scratch, ids);
  state_->pool.give(std::move(scratch));
  if (!result.ok()) ids.resize(before);
  return result;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SkipSpecial skip) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (skip == SkipSpecial::yes && is_special(id)) continue;
    bytes += token_bytes(id);
  }
  std::string text;
  text.reserve(bytes.size());
  if (append_replacing_invalid(bytes, text) != bytes.size()) text += kReplacement;
  return text;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return state_->model.vocabulary.bytes(id);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view bytes) const {
  if (const auto id = state_->raw.find_exact(bytes)) return id;
  if (const auto id = state_->normalized.find_exact(bytes)) return id;
  return state_->model.vocabulary.find_any_base(bytes);
}

bool Tokenizer::has_token(int32_t id) const { return state_->model.vocabulary.has(id); }
bool Tokenizer::is_special(int32_t id) const { return state_->model.vocabulary.is_special(id); }
bool Tokenizer::is_added(int32_t id) const { return state_->model.vocabulary.is_added(id); }
size_t Tokenizer::vocab_size() const { return state_->model.vocabulary.size(); }
std::optional<int32_t> Tokenizer::bos_id() const { return state_->model.bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return state_->model.eos_id; }
bool Tokenizer::add_bos() const { return state_->model.add_bos; }

}  // namespace deepinfer::text
