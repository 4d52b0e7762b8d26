#include "models/model.h"

#include <string>

#include "models/deepseek_v3/deepseek_v3.h"
#include "models/deepseek_v4/deepseek_v4.h"
#include "models/deepseek_v41/deepseek_v41.h"
#include "models/llama/llama.h"
#include "weights/deepseek/deepseek_config.h"

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
    case weights::Family::deepseek_v4:
      return open_deepseek_v4(checkpoint, TRY(weights::read_deepseek_v4_config(checkpoint)),
                              options, pool, progress);
    case weights::Family::deepseek_v3:
    case weights::Family::deepseek_v32:
      return open_deepseek_v3(checkpoint, TRY(weights::read_deepseek_v3_config(checkpoint)),
                              options, pool, progress);
    case weights::Family::deepseek_v41:
      return open_deepseek_v41(checkpoint, TRY(weights::read_deepseek_v41_config(checkpoint)),
                               options, pool, progress);
  }
  check(false, "family of a model");
  return Error::unsupported(checkpoint.path(), "family");
}

}  // namespace deepinfer::models
