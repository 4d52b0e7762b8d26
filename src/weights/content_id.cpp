#include "weights/content_id.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <memory>
#include <string_view>

namespace deepinfer::weights {
namespace {

constexpr size_t kSampledTensors = 512;
constexpr size_t kSampleBytes = 1024;
constexpr size_t kSamples = 4;

struct StateDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using State = std::unique_ptr<XXH3_state_t, StateDeleter>;

void add(const State& state, const void* data, size_t bytes) {
  check(XXH3_128bits_update(state.get(), data, bytes) == XXH_OK);
}

void add_text(const State& state, std::string_view text) {
  const uint64_t length = text.size();  // so that ("ab", "c") differs from ("a", "bc")
  add(state, &length, sizeof(length));
  add(state, text.data(), text.size());
}

void add_samples(const State& state, const TensorView& view) {
  const size_t bytes = view.bytes();
  if (bytes <= kSamples * kSampleBytes) {
    if (bytes > 0) add(state, view.data, bytes);
    return;
  }
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t offset = (bytes - kSampleBytes) / (kSamples - 1) * i;
    add(state, view.data + offset, kSampleBytes);
  }
}

}  // namespace

Result<std::string> content_id(const Checkpoint& checkpoint) {
  const State state(XXH3_createState());
  if (!state || XXH3_128bits_reset(state.get()) != XXH_OK) {
    return Error::exhausted(checkpoint.path(), "no memory for the state of its content id");
  }
  const std::vector<NamedTensor>& tensors = checkpoint.tensors();
  const size_t stride = (tensors.size() + kSampledTensors - 1) / kSampledTensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    add_text(state, tensors[i].name);
    add_text(state, dtype_info(tensors[i].view.dtype).name);
    add_text(state, tensors[i].view.shape.text());
    if (i % stride == 0) add_samples(state, tensors[i].view);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace deepinfer::weights
