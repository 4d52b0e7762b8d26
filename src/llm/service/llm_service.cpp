#include "llm/service/llm_service.h"

#include <utility>

#include "base/clock.h"
#include "llm/prompt_stream.h"

namespace deepinfer::llm {

Result<std::unique_ptr<LlmService>> LlmService::start(std::unique_ptr<Llm> llm) {
  check(llm != nullptr, "a service without a model");
  llm->engine_.reset();  // its pages are the service's now
  std::unique_ptr<ThreadPool> image_pool;
  if (llm->image_rules_) image_pool = TRY(ThreadPool::create({.threads = 1}));
  std::unique_ptr<engine::Engine> engine = TRY(llm->make_engine(1));
  std::unique_ptr<LlmService> service(new LlmService(std::move(llm), std::move(image_pool)));
  service->llm_->prompt_images_.reset();  // it may know the other workers
  service->thread_ = engine::EngineThread::start(std::move(engine), system_clock());
  return service;
}

LlmService::~LlmService() = default;

Result<engine::Request> LlmService::make_request(const Prompt& prompt) {
  if (image_pool_ == nullptr) return llm_->make_request(prompt, *llm_->pool_);
  const std::lock_guard lock(images_mutex_);
  return llm_->make_request(prompt, *image_pool_);
}

Result<void> LlmService::add(uint64_t id, const Prompt& prompt, OnDelta on_delta) {
  engine::Request request = TRY(make_request(prompt));
  request.id = id;
  struct Live {
    PromptStream stream;
    OnDelta on_delta;
  };
  const auto live = std::make_shared<Live>(
      Live{PromptStream(id, llm_->path(), prompt, llm_->tokenizer_or_null()), std::move(on_delta)});
  engine::EngineThread* const thread = thread_.get();
  Result<void> added = thread->add(std::move(request), [live, thread, id](engine::Event event) {
    if (live->stream.take(event, live->on_delta) == PromptStream::Then::cancel) thread->cancel(id);
  });
  if (added.ok()) return {};
  return prompt_error(added.error());
}

Result<uint64_t> LlmService::submit(const Prompt& prompt, OnDelta on_delta) {
  const uint64_t id = next_request_++;
  TRY(add(id, prompt, std::move(on_delta)));
  return id;
}

Result<LlmService::Ticket> LlmService::submit(const Prompt& prompt) {
  Ticket ticket{.request = next_request_++, .reply = std::make_shared<Reply>()};
  TRY(add(ticket.request, prompt,
          [reply = ticket.reply](const Delta& delta) { reply->take(delta); }));
  return ticket;
}

void LlmService::cancel(uint64_t request) { thread_->cancel(request); }

void LlmService::drain(std::chrono::milliseconds patience) { thread_->drain(patience); }

}  // namespace deepinfer::llm
