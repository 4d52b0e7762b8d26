#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <unordered_set>

#include "text/pre_tokenizer_json.h"
#include "text/tokenizer_model.h"

namespace deepinfer::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kMaxMerges = 4'000'000;

Result<element> parse(simdjson::dom::parser& parser, std::string_view json,
                      const std::string& source) {
  if (json.size() > Tokenizer::kMaxJsonBytes) {
    return Error::exhausted(
        source, fmt::format("{} bytes, the limit is {}", json.size(), Tokenizer::kMaxJsonBytes));
  }
  element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    return Error::corrupt(source, fmt::format("not JSON: {}", simdjson::error_message(error)));
  }
  if (!root.is_object()) return Error::corrupt(source, "not a JSON object");
  return root;
}

bool flag(element json, std::string_view key, bool otherwise) {
  bool value = otherwise;
  (void)json[key].get(value);
  return value;
}

// Absent and null are the same in these files.
bool has(element json, std::string_view key) {
  element value;
  return !json[key].get(value) && !value.is_null();
}

class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  Result<TokenizerModel> read(element root, std::string_view config_json) {
    element model;
    if (root["model"].get(model) || !model.is_object())
      return corrupt("\"model\" is not an object");
    TRY(check_model(model));
    object vocabulary;
    if (model["vocab"].get(vocabulary)) return corrupt("\"model.vocab\" is not an object");
    array added;
    if (has(root, "added_tokens") && root["added_tokens"].get(added)) {
      return corrupt("\"added_tokens\" is not an array");
    }
    const bool any_added = has(root, "added_tokens");
    TRY(read_vocabulary(vocabulary, any_added ? &added : nullptr));
    TRY(read_merges(model));
    if (any_added) TRY(read_added(added));
    if (has(root, "normalizer"))
      out_.nfc = TRY(read_normalizer(root["normalizer"].value_unsafe(), source_));
    if (!has(root, "pre_tokenizer")) return unsupported("no pre_tokenizer");
    out_.splitter = TRY(read_pre_tokenizer(root["pre_tokenizer"].value_unsafe(), source_));
    TRY(check_decoder(root));
    if (has(root, "post_processor"))
      TRY(read_post_processor(root["post_processor"].value_unsafe()));
    if (!config_json.empty()) TRY(read_config(config_json));
    out_.has_unknown = has(model, "unk_token");
    out_.whole_pieces = flag(model, "ignore_merges", false);
    return std::move(out_);
  }

 private:
  Error corrupt(std::string what) const { return Error::corrupt(source_, std::move(what)); }
  Error unsupported(std::string what) const { return Error::unsupported(source_, std::move(what)); }

  Result<void> check_model(element model) const {
    std::string_view type = "BPE";
    if (has(model, "type") && model["type"].get(type))
      return corrupt("\"model.type\" is no string");
    if (type != "BPE") return unsupported(fmt::format("model type \"{}\", not BPE", type));
    for (const char* key : {"byte_fallback", "fuse_unk"}) {
      if (flag(model, key, false)) return unsupported(fmt::format("\"model.{}\"", key));
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      std::string_view text;
      if (!model[key].get(text) && !text.empty()) {
        return unsupported(fmt::format("\"model.{}\" \"{}\"", key, text));
      }
    }
    double dropout = 0;
    if (has(model, "dropout") && (model["dropout"].get(dropout) || dropout != 0)) {
      return unsupported("\"model.dropout\"");
    }
    return {};
  }

  Result<int64_t> read_id(element json, std::string_view spelled) const {
    int64_t id = 0;
    if (json.get(id) || id < 0 || static_cast<size_t>(id) >= Tokenizer::kMaxVocabulary) {
      return corrupt(fmt::format("id of \"{}\" is not a number in 0..{}", spelled,
                                 Tokenizer::kMaxVocabulary - 1));
    }
    return id;
  }

  Result<void> read_vocabulary(object vocabulary, const array* added) {
    size_t capacity = 0;
    size_t count = 0;
    for (const auto [spelled, value] : vocabulary) {
      const int64_t id = TRY(read_id(value, spelled));
      capacity = std::max(capacity, static_cast<size_t>(id) + 1);
      ++count;
    }
    if (added != nullptr) {
      for (const element token : *added) {
        element id;
        if (token["id"].get(id)) return corrupt("an added token has no id");
        capacity = std::max(capacity, static_cast<size_t>(TRY(read_id(id, "added token"))) + 1);
      }
    }
    if (count > Tokenizer::kMaxVocabulary) {
      return corrupt(
          fmt::format("{} vocabulary entries, the limit is {}", count, Tokenizer::kMaxVocabulary));
    }
    out_.vocabulary = Vocabulary(capacity, count);
    for (const auto [spelled, value] : vocabulary) {
      if (auto wrong = out_.vocabulary.add_base(value.get_int64().value_unsafe(), spelled)) {
        return corrupt(*std::move(wrong));
      }
    }
    return {};
  }

  Result<void> read_merges(element model) {
    array merges;
    if (model["merges"].get(merges)) return corrupt("\"model.merges\" is not an array");
    for (const element merge : merges) {
      const size_t rank = out_.merges.size();
      if (rank == kMaxMerges) {
        return corrupt(fmt::format("more than {} merges", kMaxMerges));
      }
      std::string_view left, right;
      if (!merge.get(left)) {
        out_.merges.push_back(TRY(resolve_merge(left, rank, out_.vocabulary, source_)));
        continue;
      }
      array sides;
      if (merge.get(sides) || sides.size() != 2 || sides.at(0).get(left) ||
          sides.at(1).get(right)) {
        return corrupt(fmt::format("merge {} is neither a string nor two strings", rank));
      }
      out_.merges.push_back(TRY(resolve_merge(left, right, rank, out_.vocabulary, source_)));
    }
    return {};
  }

  Result<void> read_added(array added) {
    std::unordered_set<std::string_view> seen;
    for (const element json : added) {
      std::string_view spelling;
      if (json["content"].get(spelling)) return corrupt("an added token has no content");
      TRY(check_spelling(spelling, source_));
      for (const char* key : {"lstrip", "rstrip", "single_word"}) {
        if (flag(json, key, false)) {
          return unsupported(fmt::format("added token \"{}\" with {}", spelling, key));
        }
      }
      if (!seen.insert(spelling).second) {
        return corrupt(fmt::format("added token \"{}\" comes twice", spelling));
      }
      const auto id = static_cast<int32_t>(json["id"].get_int64().value_unsafe());
      const bool special = flag(json, "special", false);
      if (auto wrong = out_.vocabulary.add_added(id, spelling, special)) {
        return corrupt(*std::move(wrong));
      }
      out_.added.push_back(
          {std::string(spelling), id, special, flag(json, "normalized", !special)});
    }
    return {};
  }

  Result<void> check_decoder(element root) const {
    if (!has(root, "decoder")) return {};
    std::string_view type;
    if (root["decoder"]["type"].get(type)) return corrupt("\"decoder\" has no type");
    if (type != "ByteLevel") return unsupported(fmt::format("decoder type \"{}\"", type));
    return {};
  }

  // ByteLevel only moves offsets. A template may put one token before the text: that is BOS.
  Result<void> read_post_processor(element json) {
    std::string_view type;
    if (json["type"].get(type)) return corrupt("\"post_processor\" has no type");
    if (type == "ByteLevel") return {};
    if (type == "TemplateProcessing") return read_template(json);
    array list;
    if (type != "Sequence" || json["processors"].get(list)) {
      return unsupported(fmt::format("post-processor type \"{}\"", type));
    }
    for (const element step : list) {
      if (step["type"].get(type)) return corrupt("a post-processor has no type");
      if (type == "TemplateProcessing") {
        TRY(read_template(step));
      } else if (type != "ByteLevel") {
        return unsupported(fmt::format("post-processor type \"{}\"", type));
      }
    }
    return {};
  }

  Result<void> read_template(element json) {
    array single;
    if (json["single"].get(single)) return corrupt("a post-processor template has no \"single\"");
    bool text_seen = false;
    for (const element part : single) {
      std::string_view token;
      if (part["SpecialToken"]["id"].get(token)) {
        text_seen = true;
        continue;
      }
      if (text_seen || out_.add_bos) {
        return unsupported(fmt::format("post-processor adds \"{}\" beside BOS", token));
      }
      out_.bos_id = TRY(resolve(token, "post-processor"));
      out_.add_bos = true;
    }
    return {};
  }

  Result<int32_t> resolve(std::string_view token, std::string_view where) const {
    for (const AddedToken& added : out_.added) {
      if (added.spelling == token) return added.id;
    }
    const auto id = out_.vocabulary.find_any_base(token);
    if (!id) return corrupt(fmt::format("{}: token \"{}\" is not in the vocabulary", where, token));
    return *id;
  }

  Result<void> read_config(std::string_view config_json) {
    simdjson::dom::parser parser;
    const element config = TRY(parse(parser, config_json, source_ + " (tokenizer_config)"));
    const auto token = [&](const char* key, std::optional<int32_t>& id) -> Result<void> {
      std::string_view text;
      if (!config[key].get(text) || !config[key]["content"].get(text)) id = TRY(resolve(text, key));
      return {};
    };
    TRY(token("bos_token", out_.bos_id));
    TRY(token("eos_token", out_.eos_id));
    out_.add_bos = flag(config, "add_bos_token", out_.add_bos);
    if (out_.add_bos && !out_.bos_id) return corrupt("add_bos_token is true, bos_token is not set");
    return {};
  }

  const std::string& source_;
  TokenizerModel out_;
};

}  // namespace

Result<TokenizerModel> read_tokenizer_json(std::string_view json, const std::string& source,
                                           std::string_view config_json) {
  simdjson::dom::parser parser;
  const element root = TRY(parse(parser, json, source));
  return Reader(source).read(root, config_json);
}

}  // namespace deepinfer::text
