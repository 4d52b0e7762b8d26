#include "models/profile.h"

namespace deepinfer::models {

std::string_view operation_name(Operation operation) {
  switch (operation) {
    case Operation::embedding:
      return "embedding";
    case Operation::norm:
      return "norm";
    case Operation::qkv:
      return "qkv";
    case Operation::rope:
      return "rope and append";
    case Operation::query:
      return "query";
    case Operation::absorb:
      return "latent keys and values";
    case Operation::attention:
      return "attention";
    case Operation::attention_output:
      return "attention output";
    case Operation::ffn_up:
      return "ffn gate and up";
    case Operation::activation:
      return "ffn activation";
    case Operation::ffn_down:
      return "ffn down";
    case Operation::router:
      return "router";
    case Operation::expert_read:
      return "experts read";
    case Operation::experts_up:
      return "experts gate and up";
    case Operation::experts_down:
      return "experts down";
    case Operation::shared_expert:
      return "shared expert";
    case Operation::hyper_connection:
      return "hyper-connections";
    case Operation::compressor:
      return "compressor";
    case Operation::indexer:
      return "indexer";
    case Operation::engram_read:
      return "engram read";
    case Operation::engram:
      return "engram";
    case Operation::logits:
      return "logits";
  }
  check(false, "operation");
  return {};
}

Profile::Timer::Timer(OperationTime* target, size_t weight_bytes, double operations)
    : target_(target) {
  if (target_ == nullptr) return;
  target_->calls += 1;
  target_->weight_bytes += weight_bytes;
  target_->operations += operations;
  before_ = kernels::product_operations();
  start_ = std::chrono::steady_clock::now();
}

Profile::Timer::~Timer() {
  if (target_ == nullptr) return;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  target_->seconds += passed.count();
  const kernels::ProductOperations now = kernels::product_operations();
  target_->int8_signed += now.int8_signed - before_.int8_signed;
  target_->int8_unsigned += now.int8_unsigned - before_.int8_unsigned;
}

std::vector<OperationTime> Profile::take() {
  std::vector<OperationTime> taken;
  for (size_t i = 0; i < kOperationCount; ++i) {
    if (times_[i].calls == 0) continue;
    times_[i].name = operation_name(static_cast<Operation>(i));
    taken.push_back(times_[i]);
    times_[i] = {};
  }
  return taken;
}

}  // namespace deepinfer::models
