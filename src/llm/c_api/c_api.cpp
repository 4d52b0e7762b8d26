// The C interface. Each function is a guarded call of LlmService.

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <deepinfer/deepinfer.h>
#include "llm/c_api/c_api_request.h"
#include "llm/service/llm_service.h"

using deepinfer::Error;
using deepinfer::ErrorKind;
using deepinfer::Result;
namespace llm = deepinfer::llm;

struct deepinfer_answer {
  llm::Answer answer;
  std::vector<std::string> errors;  // [choices]

  explicit deepinfer_answer(llm::Answer complete) : answer(std::move(complete)) {
    for (uint32_t i = 0; const llm::Answer* one = choice(i); ++i)
      errors.push_back(one->error ? one->error->text() : "");
  }
  const llm::Answer* choice(uint32_t number) const {
    if (number == 0) return &answer;
    return number <= answer.others.size() ? &answer.others[number - 1] : nullptr;
  }
};

// Replies may outlive their model.
struct Gate {
  std::mutex mutex;
  llm::LlmService* service = nullptr;  // null: the model was closed
};

struct deepinfer_model {
  std::unique_ptr<llm::LlmService> service;
  std::shared_ptr<Gate> gate;
};

struct deepinfer_reply {
  std::shared_ptr<Gate> gate;
  llm::LlmService::Ticket ticket;
  std::string piece;
  mutable std::mutex mutex;
  mutable std::unique_ptr<deepinfer_answer> answer;  // made when first asked for
};

namespace {

// Per thread, so a caller reads the error of its own call.
std::string& error_text() {
  static thread_local std::string text;
  return text;
}

deepinfer_status fail(const Error& error) {
  error_text() = error.text();
  return llm::status_of(error.kind);
}

deepinfer_status missing(const char* name) { return fail(Error::invalid(name, "is NULL")); }

// Runs `body` so that nothing is thrown at a C program.
template <typename Body>
deepinfer_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Error::exhausted("memory", "there is not enough"));
  } catch (const std::exception& problem) {
    return fail(Error{ErrorKind::internal, "deepinfer", problem.what(), ""});
  } catch (...) {
    return fail(Error{ErrorKind::internal, "deepinfer", "an unknown exception", ""});
  }
}

deepinfer_finish finish_of(deepinfer::engine::FinishReason reason) {
  using deepinfer::engine::FinishReason;
  switch (reason) {
    case FinishReason::none:
      return DEEPINFER_FINISH_NONE;
    case FinishReason::stop:
      return DEEPINFER_FINISH_STOP;
    case FinishReason::length:
      return DEEPINFER_FINISH_LENGTH;
    case FinishReason::cancelled:
      return DEEPINFER_FINISH_CANCELLED;
    case FinishReason::error:
      break;
  }
  return DEEPINFER_FINISH_ERROR;
}

const llm::Answer* choice_of(const deepinfer_answer* answer, uint32_t choice) {
  return answer != nullptr ? answer->choice(choice) : nullptr;
}

void set(size_t* place, size_t value) {
  if (place != nullptr) *place = value;
}

Result<llm::LlmService::Ticket> submit(llm::LlmService& service, const llm::Prompt& prompt,
                                       deepinfer_callback callback, void* user) {
  if (callback == nullptr) return service.submit(prompt);
  const auto reply = std::make_shared<llm::Reply>();
  const uint64_t request = TRY(service.submit(prompt, [=](const llm::Delta& delta) {
    if (!delta.text.empty()) {
      const std::string text(delta.text);
      callback(user, delta.choice, text.c_str(), text.size(), nullptr);
    }
    if (delta.answer == nullptr) return;
    const deepinfer_answer answer(*delta.answer);
    callback(user, 0, "", 0, &answer);
    reply->take({.text = {}, .answer = delta.answer});
  }));
  return llm::LlmService::Ticket{.request = request, .reply = reply};
}

}  // namespace

extern "C" {

uint32_t deepinfer_abi_version(void) { return DEEPINFER_ABI_VERSION; }
const char* deepinfer_version(void) { return DEEPINFER_VERSION; }
const char* deepinfer_last_error(void) { return error_text().c_str(); }

void deepinfer_model_options_init(deepinfer_model_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->size = sizeof *options;
  options->max_sequences = 64;
  options->max_rows = 512;
}

deepinfer_status deepinfer_open(const char* path, const deepinfer_model_options* options,
                                deepinfer_model** out) {
  if (path == nullptr) return missing("path");
  if (out == nullptr) return missing("out");
  return guarded([&] {
    deepinfer_model_options defaults;
    deepinfer_model_options_init(&defaults);
    Result<llm::LlmOptions> wanted = llm::options_of(options != nullptr ? *options : defaults);
    if (!wanted.ok()) return fail(wanted.error());
    Result<std::unique_ptr<llm::Llm>> opened = llm::Llm::open(path, wanted.value());
    if (!opened.ok()) return fail(opened.error());
    auto service = llm::LlmService::start(std::move(opened).value());
    if (!service.ok()) return fail(service.error());
    auto gate = std::make_shared<Gate>();
    gate->service = service.value().get();
    *out = new deepinfer_model{std::move(service).value(), std::move(gate)};
    return DEEPINFER_OK;
  });
}

void deepinfer_close(deepinfer_model* model) {
  if (model == nullptr) return;
  {
    const std::lock_guard lock(model->gate->mutex);
    model->gate->service = nullptr;
  }
  delete model;
}

uint64_t deepinfer_context(const deepinfer_model* model) {
  return model != nullptr ? model->service->thread().limits().context : 0;
}

void deepinfer_request_init(deepinfer_request* request) {
  if (request == nullptr) return;
  *request = {};
  request->size = sizeof *request;
  request->max_tokens = 256;
  request->top_p = 1;
  request->repetition_penalty = 1;
  request->choices = 1;
}

deepinfer_status deepinfer_generate(deepinfer_model* model, const deepinfer_request* request,
                                    deepinfer_answer** out) {
  if (model == nullptr) return missing("model");
  if (request == nullptr) return missing("request");
  if (out == nullptr) return missing("out");
  return guarded([&] {
    const Result<llm::Prompt> prompt = llm::prompt_of(*request);
    if (!prompt.ok()) return fail(prompt.error());
    const auto ticket = model->service->submit(prompt.value());
    if (!ticket.ok()) return fail(ticket.error());
    *out = new deepinfer_answer(ticket.value().reply->wait());
    return DEEPINFER_OK;
  });
}

deepinfer_status deepinfer_submit(deepinfer_model* model, const deepinfer_request* request,
                                  deepinfer_callback callback, void* user, deepinfer_reply** out) {
  if (model == nullptr) return missing("model");
  if (request == nullptr) return missing("request");
  if (out == nullptr) return missing("out");
  return guarded([&] {
    const Result<llm::Prompt> prompt = llm::prompt_of(*request);
    if (!prompt.ok()) return fail(prompt.error());
    auto reply = std::make_unique<deepinfer_reply>();
    reply->gate = model->gate;
    auto ticket = submit(*model->service, prompt.value(), callback, user);
    if (!ticket.ok()) return fail(ticket.error());
    reply->ticket = std::move(ticket).value();
    *out = reply.release();
    return DEEPINFER_OK;
  });
}

deepinfer_status deepinfer_poll(deepinfer_reply* reply, uint32_t timeout_ms, const char** text,
                                size_t* length, uint32_t* choice) {
  if (reply == nullptr) return missing("reply");
  if (text == nullptr) return missing("text");
  return guarded([&] {
    auto piece = reply->ticket.reply->next(std::chrono::milliseconds(timeout_ms));
    if (!piece) return reply->ticket.reply->ended() ? DEEPINFER_END : DEEPINFER_TIMEOUT;
    reply->piece = std::move(piece->text);
    *text = reply->piece.c_str();
    set(length, reply->piece.size());
    if (choice != nullptr) *choice = piece->choice;
    return DEEPINFER_OK;
  });
}

void deepinfer_cancel(deepinfer_reply* reply) {
  if (reply == nullptr) return;
  (void)guarded([&] {
    const std::lock_guard lock(reply->gate->mutex);
    if (reply->gate->service != nullptr) reply->gate->service->cancel(reply->ticket.request);
    return DEEPINFER_OK;
  });
}

const deepinfer_answer* deepinfer_reply_answer(const deepinfer_reply* reply) {
  if (reply == nullptr || !reply->ticket.reply->ended()) return nullptr;
  (void)guarded([&] {
    const std::lock_guard lock(reply->mutex);
    if (!reply->answer)
      reply->answer = std::make_unique<deepinfer_answer>(reply->ticket.reply->wait());
    return DEEPINFER_OK;
  });
  return reply->answer.get();
}

void deepinfer_reply_free(deepinfer_reply* reply) {
  deepinfer_cancel(reply);
  delete reply;
}

uint32_t deepinfer_answer_choices(const deepinfer_answer* answer) {
  return answer != nullptr ? static_cast<uint32_t>(answer->errors.size()) : 0;
}

const char* deepinfer_answer_text(const deepinfer_answer* answer, uint32_t choice, size_t* length) {
  const llm::Answer* one = choice_of(answer, choice);
  if (one == nullptr) return nullptr;
  set(length, one->text.size());
  return one->text.c_str();
}

const int32_t* deepinfer_answer_ids(const deepinfer_answer* answer, uint32_t choice,
                                    size_t* count) {
  const llm::Answer* one = choice_of(answer, choice);
  if (one == nullptr) return nullptr;
  set(count, one->ids.size());
  return one->ids.data();
}

const float* deepinfer_answer_logprobs(const deepinfer_answer* answer, uint32_t choice,
                                       size_t* count) {
  const llm::Answer* one = choice_of(answer, choice);
  if (one == nullptr) return nullptr;
  set(count, one->logprobs.size());
  return one->logprobs.data();
}

deepinfer_finish deepinfer_answer_finish(const deepinfer_answer* answer, uint32_t choice) {
  const llm::Answer* one = choice_of(answer, choice);
  return one != nullptr ? finish_of(one->finish) : DEEPINFER_FINISH_NONE;
}

const char* deepinfer_answer_error(const deepinfer_answer* answer, uint32_t choice) {
  return choice_of(answer, choice) != nullptr ? answer->errors[choice].c_str() : nullptr;
}

deepinfer_status deepinfer_answer_usage(const deepinfer_answer* answer, uint32_t choice,
                                        deepinfer_usage* usage) {
  const llm::Answer* one = choice_of(answer, choice);
  if (one == nullptr) return missing("choice");
  if (usage == nullptr) return missing("usage");
  *usage = {.prompt_tokens = one->stats.prompt_tokens,
            .cached_tokens = one->stats.cached_tokens,
            .completion_tokens = one->stats.completion_tokens,
            .drafted_tokens = one->stats.drafted,
            .accepted_tokens = one->stats.accepted,
            .first_token_ms = one->stats.ttft_ms,
            .token_ms = one->stats.tpot_ms};
  return DEEPINFER_OK;
}

void deepinfer_answer_free(deepinfer_answer* answer) { delete answer; }

deepinfer_status deepinfer_tokenize(const deepinfer_model* model, const char* text, int32_t* ids,
                                    size_t capacity, size_t* count) {
  if (model == nullptr) return missing("model");
  if (text == nullptr) return missing("text");
  if (ids == nullptr && capacity > 0) return missing("ids");
  if (count == nullptr) return missing("count");
  return guarded([&] {
    const auto made = model->service->llm().encode(std::string(text));
    if (!made.ok()) return fail(made.error());
    std::copy_n(made.value().begin(), std::min(capacity, made.value().size()), ids);
    *count = made.value().size();
    return DEEPINFER_OK;
  });
}

deepinfer_status deepinfer_detokenize(const deepinfer_model* model, const int32_t* ids,
                                      size_t count, char* text, size_t capacity, size_t* length) {
  if (model == nullptr) return missing("model");
  if (ids == nullptr && count > 0) return missing("ids");
  if (text == nullptr && capacity > 0) return missing("text");
  if (length == nullptr) return missing("length");
  return guarded([&] {
    const auto tokenizer = model->service->llm().tokenizer();
    if (!tokenizer.ok()) return fail(tokenizer.error());
    const std::string made =
        tokenizer.value().decode({ids, count}, deepinfer::text::SkipSpecial::yes);
    if (capacity > 0) {
      const size_t bytes = std::min(capacity - 1, made.size());
      std::memcpy(text, made.data(), bytes);
      text[bytes] = '\0';
    }
    *length = made.size();
    return DEEPINFER_OK;
  });
}

}  // extern "C"
