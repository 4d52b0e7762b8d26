#include "models/model.h"

#include <utility>

#include "models/llama.h"

namespace deepinfer::models {

Result<std::unique_ptr<Model>> open_model(const weights::Checkpoint& checkpoint,
                                          const ModelOptions& options, ThreadPool& pool,
                                          const Progress& progress) {
  if (options.max_rows == 0) return Error::invalid("max_rows", "0, a step needs one row or more");
  weights::ModelConfig config = TRY(weights::read_model_config(checkpoint));
  switch (config.family) {
    case weights::Family::llama:
    case weights::Family::qwen2:
    case weights::Family::qwen3:
      return open_llama(checkpoint, std::move(config), options, pool, progress);
  }
  check(false, "family without a model");
  return Error::unsupported(checkpoint.path(), "family without a model");
}

}  // namespace deepinfer::models
