// deepinfer inspect: what a checkpoint holds, without loading it.

#include <fmt/format.h>

#include <map>

#include "apps/command.h"
#include "apps/config_text.h"
#include "apps/open_model.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/json_writer.h"
#include "weights/content_id.h"

namespace deepinfer::apps {
namespace {

struct FormatTotals {
  size_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

struct Description {
  std::string path;
  std::string container;
  std::string content_id;
  models::AnyConfig config;
  std::vector<models::PartBytes> parts;
  std::map<std::string, FormatTotals> formats;
  FormatTotals all;
  std::string recipe;     // empty: none known
  std::string tokenizer;  // what is wrong with it, or empty
  size_t tokens = 0;
};

void write_totals(JsonWriter& json, const FormatTotals& totals) {
  json.member("tensors", totals.tensors);
  json.member("elements", totals.elements);
  json.member("bytes", totals.bytes);
}

std::string json_text(const Description& seen, const weights::Checkpoint& checkpoint) {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  json.member("path", seen.path);
  json.member("container", seen.container);
  json.key("files");
  json.begin_array();
  for (const std::string& file : checkpoint.files()) json.value(file);
  json.end_array();
  json.member("content_id", seen.content_id);
  json.key("config");
  write_config(json, seen.config);
  write_totals(json, seen.all);
  json.key("formats");
  json.begin_object();
  for (const auto& [name, totals] : seen.formats) {
    json.key(name);
    json.begin_object();
    write_totals(json, totals);
    json.end_object();
  }
  json.end_object();
  json.key("parts");
  write_parts(json, seen.parts);
  json.member("recipe", seen.recipe);
  json.member("tokenizer_tokens", seen.tokens);
  json.key("tensor_list");
  json.begin_array();
  for (const weights::NamedTensor& tensor : checkpoint.tensors()) {
    json.begin_object();
    json.member("name", tensor.name);
    json.member("dtype", dtype_info(tensor.view.dtype).name);
    json.key("shape");
    json.begin_array();
    for (size_t axis = 0; axis < tensor.view.shape.rank(); ++axis)
      json.value(tensor.view.shape[axis]);
    json.end_array();
    json.member("bytes", tensor.bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return line + "\n";
}

std::string plain_text(const Description& seen, const weights::Checkpoint& checkpoint) {
  std::string text = fmt::format("{}\n", seen.path);
  text += fmt::format("  container   {}, {} file{}\n", seen.container, checkpoint.files().size(),
                      checkpoint.files().size() == 1 ? "" : "s");
  text += fmt::format("  content id  {}\n", seen.content_id);
  text += config_text(seen.config);
  text +=
      fmt::format("  tokenizer   {}\n",
                  seen.tokenizer.empty() ? fmt::format("{} tokens", seen.tokens) : seen.tokenizer);
  text += fmt::format("  recipe      {}\n", seen.recipe.empty() ? "none" : seen.recipe);
  text += fmt::format("  parameters  {:.1f} M in {} tensors, {}\n",
                      static_cast<double>(seen.all.elements) / 1e6, seen.all.tensors,
                      bytes_text(static_cast<double>(seen.all.bytes)));
  for (const auto& [name, totals] : seen.formats) {
    text += fmt::format("    {:<8} {:>5} tensors {:>12}\n", name, totals.tensors,
                        bytes_text(static_cast<double>(totals.bytes)));
  }
  return text + "  parts\n" + parts_text(seen.parts);
}

class InspectCommand final : public Command {
 public:
  std::string_view name() const override { return "inspect"; }
  std::string_view summary() const override { return "what a checkpoint holds"; }
  std::string_view example() const override { return "  deepinfer inspect model.gguf --json"; }
  std::vector<std::string_view> positionals() const override { return {"MODEL"}; }
  void declare(OptionTable& options) override { output_.declare(options); }

  Result<int> run(const std::vector<std::string>& arguments) override {
    const std::string path = TRY(resolve_model_path(model_of(arguments), output_.json));
    const weights::Checkpoint checkpoint = TRY(weights::Checkpoint::open(path));
    Description seen;
    seen.path = path;
    seen.container = checkpoint.container() == weights::Container::gguf ? "gguf" : "safetensors";
    seen.content_id = TRY(weights::content_id(checkpoint));
    models::PlannedModel model = TRY(models::planned_from_checkpoint(checkpoint));
    seen.parts = models::add_up_parts(model.tensors);
    seen.config = std::move(model.config);
    for (const weights::NamedTensor& tensor : checkpoint.tensors()) {
      for (FormatTotals* totals :
           {&seen.formats[std::string(dtype_info(tensor.view.dtype).name)], &seen.all}) {
        ++totals->tensors;
        totals->elements += tensor.view.shape.elements();
        totals->bytes += tensor.bytes;
      }
    }
    const Result<text::Tokenizer> tokenizer = llm::open_tokenizer(checkpoint);
    if (tokenizer.ok()) {
      seen.tokens = tokenizer.value().vocab_size();
    } else {
      seen.tokenizer = tokenizer.error().what;
    }
    const Result<recipe::Layout> layout =
        llm::open_layout(checkpoint, tokenizer.ok() ? &tokenizer.value() : nullptr);
    if (layout.ok()) seen.recipe = layout.value().name;
    write_out(output_.json ? json_text(seen, checkpoint) : plain_text(seen, checkpoint));
    return kDone;
  }

 private:
  OutputSettings output_;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() { return std::make_unique<InspectCommand>(); }

}  // namespace deepinfer::apps
