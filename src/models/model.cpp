#include "models/model.h"

#include <string>

#include "models/llama.h"

namespace deepinfer::models {

Result<std::unique_ptr<Model>> open_model(const weights::Checkpoint& checkpoint,
                                          const ModelOptions& options, ThreadPool& pool,
                                          const Progress& progress) {
  if (options.max_rows == 0) return Error::invalid("max_rows", "0, a step needs one row or more");
  const weights::Family family = TRY(weights::read_family(checkpoint));
  switch (family) {
    case weights::Family::llama:
    case weights::Family::qwen2:
    case weights::Family::qwen3:
      return open_llama(checkpoint, TRY(weights::read_llama_config(checkpoint)), options, pool,
                        progress);
    case weights::Family::deepseek_v3:
    case weights::Family::deepseek_v32:
    case weights::Family::deepseek_v4:
    case weights::Family::deepseek_v41:
      break;
  }
  return Error::unsupported(checkpoint.path(), "no model computes " +
                                                   std::string(weights::family_name(family)));
}

}  // namespace deepinfer::models
