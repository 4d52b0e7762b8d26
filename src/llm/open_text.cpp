// What a checkpoint says about text: its tokenizer and its chat layout.

#include "base/json.h"
#include "llm/llm.h"
#include "weights/gguf/gguf_tokenizer.h"
#include "weights/model_config.h"

namespace deepinfer::llm {
namespace {

using weights::Checkpoint;
using weights::Container;

std::optional<int32_t> as_id(const std::optional<uint32_t>& id) {
  if (!id) return std::nullopt;
  return static_cast<int32_t>(*id);
}

Result<text::Tokenizer> open_gguf_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.metadata().count("tokenizer.ggml.tokens") == 0) {
    return Error::not_found(checkpoint.path(), "carries no tokenizer",
                            "give token ids, or a GGUF file with tokenizer.ggml.*");
  }
  weights::GgufTokenizer lists = TRY(weights::read_gguf_tokenizer(checkpoint));
  text::TokenizerParts parts;
  parts.source = checkpoint.path();
  parts.model = std::move(lists.model);
  parts.pre = std::move(lists.pre);
  parts.tokens = std::move(lists.tokens);
  parts.token_types.reserve(lists.token_types.size());
  for (weights::GgufTokenType type : lists.token_types)
    parts.token_types.push_back(static_cast<int32_t>(type));
  parts.merges = std::move(lists.merges);
  parts.bos_id = as_id(lists.bos);
  parts.eos_id = as_id(lists.eos);
  if (checkpoint.metadata().count("tokenizer.ggml.add_bos_token") != 0)
    parts.add_bos = lists.add_bos;
  return text::Tokenizer::from_parts(std::move(parts));
}

// "chat_template" of tokenizer_config.json: a text, or a list of {name, template}.
Result<std::string> template_of_config(const std::string& text, const std::string& path) {
  const JsonDocument config = TRY(JsonDocument::parse(text, path));
  const JsonValue* entry = config.root().find("chat_template");
  if (entry == nullptr || entry->is_null()) return std::string();
  if (entry->is_string()) return entry->as<std::string>();
  for (const JsonValue& one : TRY(entry->array())) {
    if (TRY(one.get<std::string>("name")) == "default") return one.get<std::string>("template");
  }
  return std::string();
}

Result<std::string> chat_template(const Checkpoint& checkpoint) {
  if (checkpoint.container() == Container::gguf) {
    const auto entry = checkpoint.metadata().find("tokenizer.chat_template");
    if (entry == checkpoint.metadata().end()) return std::string();
    const auto* text = std::get_if<std::string>(&entry->second);
    return text != nullptr ? *text : std::string();
  }
  if (auto text = checkpoint.side_file("chat_template.jinja")) return *text;
  if (auto text = checkpoint.side_file("tokenizer_config.json"))
    return template_of_config(*text, checkpoint.path() + "/tokenizer_config.json");
  return std::string();
}

}  // namespace

Result<text::Tokenizer> open_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.container() == Container::gguf) return open_gguf_tokenizer(checkpoint);
  const std::optional<std::string> json = checkpoint.side_file("tokenizer.json");
  if (!json) {
    return Error::not_found(checkpoint.path(), "has no tokenizer.json",
                            "give token ids, or put the model's tokenizer.json there");
  }
  const std::string config = checkpoint.side_file("tokenizer_config.json").value_or("");
  return text::Tokenizer::from_json(*json, checkpoint.path() + "/tokenizer.json", config);
}

Result<recipe::Layout> open_layout(const Checkpoint& checkpoint, const text::Tokenizer* tokenizer) {
  const weights::ModelConfig config = TRY(weights::read_model_config(checkpoint));
  const std::string text = TRY(chat_template(checkpoint));
  return recipe::choose_layout(
      {.chat_template = text, .family = weights::family_name(config.family)}, tokenizer);
}

}  // namespace deepinfer::llm
