#pragma once

// LlmService: an Llm in the background. Prompts from any thread, all of them computed together;
// text to a callback, or to be pulled.
//
//   auto service = TRY(LlmService::start(TRY(Llm::open("smollm2", {}))));
//   auto ticket = TRY(service->submit({.input = "The capital of France is"}));
//   const Answer& answer = ticket.reply->wait();
//
// Text arrives as generate() gives it: complete characters, and nothing that can still become a
// stop string. Every accepted prompt ends in one Delta with its answer, whatever happens; when the
// service is destroyed, what lives ends as cancelled first.
//
// A callback runs on the engine's thread: it must be short and must not throw, wait for the service
// or destroy it; it may submit and cancel. Nothing here waits busily.
//
// Ownership: the service owns the Llm, on which nobody may generate or score meanwhile. Threads:
// all functions from any, except that drain() and the destructor must not run inside of a callback.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "engine/engine_thread.h"
#include "llm/llm.h"
#include "llm/service/reply.h"

namespace deepinfer::llm {

class LlmService {
 public:
  using OnDelta = std::function<void(const Delta&)>;
  struct Ticket {
    uint64_t request = 0;
    std::shared_ptr<Reply> reply;
  };

  static Result<std::unique_ptr<LlmService>> start(std::unique_ptr<Llm> llm);
  ~LlmService();
  LlmService(const LlmService&) = delete;
  LlmService& operator=(const LlmService&) = delete;

  // The number of the request, which is Delta::index too. Text is turned into ids on the calling
  // thread. Fails on what generate() refuses, and (exhausted) when too many prompts live.
  Result<uint64_t> submit(const Prompt& prompt, OnDelta on_delta);
  Result<Ticket> submit(const Prompt& prompt);
  // Within a step; unknown and ended requests are fine.
  void cancel(uint64_t request);
  // No new prompts from now on; waits until all ended, or cancels them after `patience`.
  void drain(std::chrono::milliseconds patience);

  const Llm& llm() const { return *llm_; }
  const engine::EngineThread& thread() const { return *thread_; }

 private:
  LlmService(std::unique_ptr<Llm> llm, std::unique_ptr<ThreadPool> image_pool)
      : llm_(std::move(llm)), image_pool_(std::move(image_pool)) {}
  Result<engine::Request> make_request(const Prompt& prompt);
  Result<void> add(uint64_t id, const Prompt& prompt, OnDelta on_delta);

  std::unique_ptr<Llm> llm_;
  // Pictures are encoded while the model computes, so they need workers of their own.
  std::unique_ptr<ThreadPool> image_pool_;
  std::mutex images_mutex_;
  std::atomic<uint64_t> next_request_{1};
  std::unique_ptr<engine::EngineThread> thread_;  // last: its sinks use the others
};

}  // namespace deepinfer::llm
