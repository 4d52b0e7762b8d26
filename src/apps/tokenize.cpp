// deepinfer tokenize: text lines or JSON strings to ids, and back.

#include <iostream>

#include "apps/command.h"
#include "apps/open_model.h"
#include "apps/prompt_file.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace deepinfer::apps {
namespace {

Result<text::Tokenizer> open_tokenizer_of(const std::string& model, bool quiet) {
  if (!model.ends_with(".json")) {
    const std::string path = TRY(resolve_model_path(model, quiet));
    const weights::Checkpoint checkpoint = TRY(weights::Checkpoint::open(path));
    return llm::open_tokenizer(checkpoint);
  }
  const std::string json = TRY(read_file(model, text::Tokenizer::kMaxJsonBytes));
  const std::string folder = model.substr(0, model.rfind('/') + 1);
  const Result<std::string> config = read_file(folder + "tokenizer_config.json", 64u << 20);
  return text::Tokenizer::from_json(json, model, config.ok() ? config.value() : "");
}

class TokenizeCommand final : public Command {
 public:
  std::string_view name() const override { return "tokenize"; }
  std::string_view summary() const override { return "lines of text to token ids, and back"; }
  std::string_view example() const override {
    return "  echo 'Hello world' | deepinfer tokenize smollm2\n"
           "  echo '[19556, 905]' | deepinfer tokenize smollm2 --decode";
  }
  std::vector<std::string_view> positionals() const override { return {"MODEL|tokenizer.json"}; }

  void declare(OptionTable& options) override {
    options.add("decode", &decode_, "ids in, text out");
    options.add("special", &special_,
                "recognise spellings of control tokens; with --decode: show them");
    output_.declare(options);
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    const text::Tokenizer tokenizer = TRY(open_tokenizer_of(model_of(arguments), output_.json));
    std::string line;
    for (size_t number = 1; std::getline(std::cin, line); ++number) {
      if (line.ends_with('\r')) line.pop_back();
      const std::string place = "stdin line " + std::to_string(number);
      const std::string out =
          decode_ ? TRY(decoded(tokenizer, line, place)) : TRY(encoded(tokenizer, line, place));
      if (!write_out(out + "\n")) return kFailed;
    }
    return kDone;
  }

 private:
  // A line that is a JSON string or {"text": ...} stands for its value, any other for itself.
  static Result<std::string> text_of(const std::string& line, const std::string& place) {
    const bool quoted = line.size() >= 2 && line.front() == '"' && line.back() == '"';
    if (!quoted && !line.starts_with("{\"text\"")) return line;
    const Result<JsonDocument> document = JsonDocument::parse(line, place);
    if (!document.ok()) return line;
    const JsonValue& root = document.value().root();
    return root.is_string() ? root.as<std::string>() : root.get<std::string>("text");
  }

  Result<std::string> encoded(const text::Tokenizer& tokenizer, const std::string& line,
                              const std::string& place) const {
    const std::string text = TRY(text_of(line, place));
    const auto special = special_ ? text::SpecialTokens::recognise : text::SpecialTokens::plain;
    Result<std::vector<int32_t>> ids = tokenizer.encode(text, special);
    if (!ids.ok()) {
      Error error = ids.error();
      error.thing = place + ": " + error.thing;
      return error;
    }
    std::string out;
    JsonWriter json(out);
    if (output_.json) {
      json.begin_object();
      json.key("ids");
    }
    json.begin_array();
    for (int32_t id : ids.value()) json.value(id);
    json.end_array();
    if (output_.json) json.end_object();
    return out;
  }

  Result<std::string> decoded(const text::Tokenizer& tokenizer, const std::string& line,
                              const std::string& place) const {
    std::vector<int32_t> ids;
    if (line.starts_with('{')) {
      const JsonDocument document = TRY(JsonDocument::parse(line, place));
      const JsonValue* list = TRY(document.root().member("ids"));
      for (const JsonValue& id : TRY(list->array())) ids.push_back(TRY(id.as<int32_t>()));
    } else {
      ids = TRY(parse_ids(line, place));
    }
    for (int32_t id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= tokenizer.vocab_size()) {
        return Error::invalid(place, "id " + std::to_string(id) + " is outside of the " +
                                         std::to_string(tokenizer.vocab_size()) + " tokens");
      }
    }
    const std::string text =
        tokenizer.decode(ids, special_ ? text::SkipSpecial::no : text::SkipSpecial::yes);
    if (!output_.json) return text;
    std::string out;
    JsonWriter json(out);
    json.begin_object();
    json.member("text", text);
    json.end_object();
    return out;
  }

  bool decode_ = false;
  bool special_ = false;
  OutputSettings output_;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() { return std::make_unique<TokenizeCommand>(); }

}  // namespace deepinfer::apps
