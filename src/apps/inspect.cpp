// deepinfer inspect: what a checkpoint holds, without loading it.

#include <fmt/format.h>

#include <map>

#include "apps/command.h"
#include "apps/open_model.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/json_writer.h"
#include "weights/content_id.h"
#include "weights/model_config.h"

namespace deepinfer::apps {
namespace {

using weights::LlamaConfig;

std::string_view rope_name(weights::RopeScaling scaling) {
  switch (scaling) {
    case weights::RopeScaling::none:
      return "none";
    case weights::RopeScaling::linear:
      return "linear";
    case weights::RopeScaling::llama3:
      return "llama3";
    case weights::RopeScaling::yarn:
      return "yarn";
  }
  return "none";
}

struct FormatTotals {
  size_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

struct Description {
  std::string path;
  std::string container;
  std::string content_id;
  LlamaConfig config;
  std::map<std::string, FormatTotals> formats;
  FormatTotals all;
  std::string recipe;     // empty: none known
  std::string tokenizer;  // what is wrong with it, or empty
  size_t tokens = 0;
};

void write_config(JsonWriter& json, const LlamaConfig& config) {
  json.key("config");
  json.begin_object();
  json.member("family", weights::family_name(config.family));
  json.member("layers", config.layers);
  json.member("hidden", config.hidden);
  json.member("intermediate", config.intermediate);
  json.member("heads", config.heads);
  json.member("kv_heads", config.kv_heads);
  json.member("head_dim", config.head_dim);
  json.member("vocab", config.vocab);
  json.member("context", config.context);
  json.member("norm_eps", config.norm_eps);
  json.key("rope");
  json.begin_object();
  json.member("theta", config.rope.theta);
  json.member("dims", config.rope.dims);
  json.member("scaling", rope_name(config.rope.scaling));
  json.member("factor", config.rope.factor);
  json.end_object();
  json.member("tied_embeddings", config.tied_embeddings);
  json.member("qkv_bias", config.qkv_bias);
  json.member("qk_norm", config.qk_norm);
  json.key("bos_id");
  if (config.bos_id) {
    json.value(*config.bos_id);
  } else {
    json.null();
  }
  json.key("eos_ids");
  json.begin_array();
  for (uint32_t id : config.eos_ids) json.value(id);
  json.end_array();
  json.end_object();
}

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
    json.member("bytes", tensor.view.bytes());
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return line + "\n";
}

std::string plain_text(const Description& seen, const weights::Checkpoint& checkpoint) {
  const LlamaConfig& c = seen.config;
  std::string text = fmt::format("{}\n", seen.path);
  text += fmt::format("  container   {}, {} file{}\n", seen.container, checkpoint.files().size(),
                      checkpoint.files().size() == 1 ? "" : "s");
  text += fmt::format("  content id  {}\n", seen.content_id);
  text += fmt::format("  family      {}: {} layers, hidden {}, intermediate {}\n",
                      weights::family_name(c.family), c.layers, c.hidden, c.intermediate);
  text += fmt::format("  attention   {} heads of {}, {} for keys and values{}{}\n", c.heads,
                      c.head_dim, c.kv_heads, c.qkv_bias ? ", bias" : "",
                      c.qk_norm ? ", norm of queries and keys" : "");
  text +=
      fmt::format("  rope        theta {}, scaling {}\n", c.rope.theta, rope_name(c.rope.scaling));
  text += fmt::format("  context     {} tokens\n", c.context);
  text += fmt::format("  vocabulary  {}{}\n", c.vocab,
                      c.tied_embeddings ? ", embeddings are the output head too" : "");
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
  return text;
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
    seen.config = TRY(weights::read_llama_config(checkpoint));
    for (const weights::NamedTensor& tensor : checkpoint.tensors()) {
      for (FormatTotals* totals :
           {&seen.formats[std::string(dtype_info(tensor.view.dtype).name)], &seen.all}) {
        ++totals->tensors;
        totals->elements += tensor.view.shape.elements();
        totals->bytes += tensor.view.bytes();
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
