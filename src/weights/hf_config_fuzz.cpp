// Fuzzes config.json: whatever the text, a config that is accepted is consistent.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "weights/model_config.h"

using namespace deepinfer;
using namespace deepinfer::weights;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<LlamaConfig> config = parse_hf_llama_config(text, "input");
  if (!config.ok()) {
    check(!config.error().text().empty());
    return 0;
  }
  const LlamaConfig& model = config.value();
  check(model.layers > 0 && model.hidden > 0 && model.vocab > 0 && model.context > 0);
  check(model.kv_heads > 0 && model.heads % model.kv_heads == 0);
  check(model.head_dim > 0 && model.head_dim % 2 == 0 && model.rope.dims == model.head_dim);
  for (const uint32_t id : model.eos_ids) check(id < model.vocab);
  return 0;
}
