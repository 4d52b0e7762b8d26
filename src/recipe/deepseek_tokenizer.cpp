#include "recipe/deepseek_tokenizer.h"

#include "base/json.h"
#include "recipe/json_tree.h"

namespace deepinfer::recipe {
namespace {

struct Renamed {
  int64_t id;
  std::string_view name;
};

constexpr Renamed kRenamed[] = {
    {128799, DeepSeekTokens().system},
    {129264, DeepSeekTokens().image},
    {129279, "<\uFF5Cimage2\uFF5C>"},
};

}  // namespace

Result<text::Tokenizer> deepseek_tokenizer(std::string_view json, std::string source,
                                           DeepSeekVersion version) {
  text::Tokenizer tokenizer = TRY(text::Tokenizer::from_json(json, source));
  const bool has_names = tokenizer.token_to_id(DeepSeekTokens().system).has_value();
  if (version == DeepSeekVersion::v4 || has_names) return tokenizer;
  const JsonDocument document = TRY(JsonDocument::parse(json, source));
  Json tree = TRY(Json::from(document.root()));
  Json* added = tree.find("added_tokens");
  if (added == nullptr || !added->is_array()) return tokenizer;
  for (Json& token : added->items()) {
    for (const Renamed& renamed : kRenamed) {
      const Json* id = token.find("id");
      if (id == nullptr || *id != Json(renamed.id)) continue;
      token.set("content", renamed.name);
      if (renamed.name == DeepSeekTokens().image) token.set("special", true);
    }
  }
  return text::Tokenizer::from_json(tree.text(JsonStyle::compact), std::move(source));
}

}  // namespace deepinfer::recipe
