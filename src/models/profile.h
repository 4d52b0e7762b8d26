#pragma once

// Profile: where the time of forward() goes, by kind of operation. Costs one branch per operation
// while it is off.
//
//   { auto timer = profile.measure(Operation::qkv, weight_bytes, operations); matmul(...); }
//
// Threads: the one that calls forward().

#include <array>
#include <chrono>
#include <string_view>
#include <vector>

#include "kernels/matmul.h"
#include "models/model.h"

namespace deepinfer::models {

enum class Operation {
  embedding,
  norm,
  qkv,
  rope,
  query,
  absorb,
  attention,
  attention_output,
  ffn_up,
  activation,
  ffn_down,
  router,
  expert_read,
  experts_up,
  experts_down,
  shared_expert,
  hyper_connection,
  compressor,
  indexer,
  engram_read,
  engram,
  logits,
};
inline constexpr size_t kOperationCount = static_cast<size_t>(Operation::logits) + 1;
std::string_view operation_name(Operation operation);

class Profile {
 public:
  class Timer {
   public:
    Timer(OperationTime* target, size_t weight_bytes, double operations);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    OperationTime* target_;  // null while profiling is off
    std::chrono::steady_clock::time_point start_;
    kernels::ProductOperations before_;
  };

  void set_on(bool on) { on_ = on; }
  Timer measure(Operation operation, size_t weight_bytes = 0, double operations = 0) {
    return Timer(on_ ? &times_[static_cast<size_t>(operation)] : nullptr, weight_bytes, operations);
  }
  // What was measured since the last call, the operations that ran only.
  std::vector<OperationTime> take();

 private:
  bool on_ = false;
  std::array<OperationTime, kOperationCount> times_;
};

}  // namespace deepinfer::models
