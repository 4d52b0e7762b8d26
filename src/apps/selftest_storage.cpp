#include "apps/selftest_storage.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/thread_pool.h"
#include "models/packed_matrices.h"
#include "models/plan/memory_plan.h"
#include "weights/packed/pack_writer.h"

namespace deepinfer::apps {

namespace fs = std::filesystem;

Result<std::vector<uint64_t>> stream_budgets(const weights::Checkpoint& checkpoint) {
  const models::PlannedModel model = TRY(models::planned_from_checkpoint(checkpoint));
  const cache::CacheLayout layout =
      TRY(models::planned_cache(model.config, models::KvMode::official));
  const models::MemoryPlan plan = models::plan_memory(model, layout, {});
  if (plan.expert_count == 0) return std::vector<uint64_t>{};
  // A slot is larger than an expert by its padding, and a few raw experts wait to be packed.
  constexpr uint64_t kPadding = 48 * 1024;
  const uint64_t slot = 2 * plan.expert_bytes + kPadding;
  const uint64_t layer = std::max<uint64_t>(plan.experts_per_token, 8) * slot;
  return std::vector<uint64_t>{layer, layer + plan.expert_count * slot / 4,
                               layer + plan.expert_count * slot};
}

Result<PackedCopy> PackedCopy::create(const weights::Checkpoint& checkpoint, kernels::Isa isa) {
  std::error_code failure;
  const fs::path parent = fs::temp_directory_path(failure);
  if (failure) return Error::io("temporary directory", failure.message());
  const std::string folder =
      parent / fmt::format("deepinfer-selftest-{}-{}", ::getpid(), kernels::isa_name(isa));
  fs::remove_all(folder, failure);
  PackedCopy copy(folder);
  const kernels::Target target = {.isa = isa, .numerics = kernels::Numerics::fast};
  const std::unique_ptr<ThreadPool> pool = TRY(ThreadPool::create({}));
  const auto matrices = TRY(models::packed_matrices(checkpoint, target));
  TRY(weights::write_packed(checkpoint, matrices, folder, *pool,
                            {.target = target, .progress = {}, .cancel = nullptr}));
  copy.checkpoint_ = std::make_unique<weights::Checkpoint>(TRY(weights::Checkpoint::open(folder)));
  return copy;
}

PackedCopy::PackedCopy(PackedCopy&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), checkpoint_(std::move(other.checkpoint_)) {}

PackedCopy::~PackedCopy() {
  if (folder_.empty()) return;
  checkpoint_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  fs::remove_all(folder_ + ".partial", ignored);
}

bool is_packed(const weights::Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors(), [](const weights::NamedTensor& tensor) {
    return tensor.view.panels != PanelLayout::rows;
  });
}

}  // namespace deepinfer::apps
