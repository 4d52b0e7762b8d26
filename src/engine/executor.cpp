#include "engine/executor.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

namespace deepinfer::engine {
namespace {

class InlineExecutor final : public Executor {
 public:
  InlineExecutor(Turn turn, Forward forward)
      : turn_(std::move(turn)), forward_(std::move(forward)) {}

  void turn() override {
    if (in_flight_) forward_();
    in_flight_ = turn_();
  }
  bool in_flight() const override { return in_flight_; }

 private:
  Turn turn_;
  Forward forward_;
  bool in_flight_ = false;
};

// One flag says whose turn it is; each side waits until it is its own. Idle, the thread is parked.
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(Turn turn, Forward forward)
      : turn_(std::move(turn)), forward_(std::move(forward)), thread_([this] { run(); }) {}

  ~ThreadExecutor() override {
    give(Owner::nobody);
    thread_.join();
  }

  void turn() override {
    give(Owner::thread);
    owner_.wait(Owner::thread, std::memory_order_acquire);
  }
  bool in_flight() const override { return in_flight_; }

 private:
  enum class Owner : uint32_t { caller, thread, nobody };

  void give(Owner owner) {
    owner_.store(owner, std::memory_order_release);
    owner_.notify_one();
  }

  void run() {
    while (true) {
      owner_.wait(Owner::caller, std::memory_order_acquire);
      if (owner_.load(std::memory_order_acquire) == Owner::nobody) return;
      const bool computes = turn_();
      in_flight_ = computes;  // read by the caller once it has the turn again
      give(Owner::caller);
      if (computes) forward_();
    }
  }

  Turn turn_;
  Forward forward_;
  bool in_flight_ = false;
  std::atomic<Owner> owner_{Owner::caller};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Executor> Executor::make_inline(Turn turn, Forward forward) {
  return std::make_unique<InlineExecutor>(std::move(turn), std::move(forward));
}

std::unique_ptr<Executor> Executor::make_thread(Turn turn, Forward forward) {
  return std::make_unique<ThreadExecutor>(std::move(turn), std::move(forward));
}

}  // namespace deepinfer::engine
