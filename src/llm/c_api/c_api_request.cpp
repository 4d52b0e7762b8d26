#include "llm/c_api/c_api_request.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace deepinfer::llm {
namespace {

// The caller's struct, as long as its program knows it, on top of the defaults.
template <typename Struct>
Result<Struct> widened(const Struct& given, void (*init)(Struct*), const char* name) {
  Struct full;
  init(&full);
  size_t size = 0;
  std::memcpy(&size, &given, sizeof size);
  if (size < sizeof size || size > sizeof full) {
    return Error::invalid(name,
                          "its size is " + std::to_string(size) + ", this library knows " +
                              std::to_string(sizeof full),
                          std::string("call ") + name + "_init() first");
  }
  std::memcpy(&full, &given, size);
  return full;
}

template <typename Item>
Result<void> need(const Item* items, size_t count, const char* name) {
  if (count > 0 && items == nullptr)
    return Error::invalid(name, std::to_string(count) + " of them, and no place where they are");
  return {};
}

Result<Input> input_of(const deepinfer_request& request) {
  const int given =
      (request.text != nullptr) + (request.ids != nullptr) + (request.messages != nullptr);
  if (given != 1)
    return Error::invalid("request", std::to_string(given) + " of text, ids and messages are set",
                          "set one");
  if (request.text != nullptr) return Input(std::string(request.text));
  if (request.ids != nullptr)
    return Input(std::vector<int32_t>(request.ids, request.ids + request.id_count));
  recipe::Conversation conversation;
  for (size_t i = 0; i < request.message_count; ++i) {
    const deepinfer_message& message = request.messages[i];
    const std::string name = "message " + std::to_string(i);
    if (message.role == nullptr || message.content == nullptr)
      return Error::invalid(name, "has no role or no content");
    const auto role = recipe::role_from_name(message.role);
    if (!role) return Error::invalid(name, "\"" + std::string(message.role) + "\" is not a role");
    conversation.messages.push_back({*role, std::string(message.content)});
  }
  return Input(std::move(conversation));
}

sampling::Parameters sampling_of(const deepinfer_request& request) {
  sampling::Parameters sampling;
  sampling.temperature = request.temperature;
  sampling.top_p = request.top_p;
  sampling.top_k = request.top_k;
  sampling.min_p = request.min_p;
  sampling.repetition_penalty = request.repetition_penalty;
  sampling.presence_penalty = request.presence_penalty;
  sampling.frequency_penalty = request.frequency_penalty;
  sampling.seed = request.seed;
  for (size_t i = 0; i < request.bias_count; ++i)
    sampling.logit_bias.emplace_back(request.bias[i].id, request.bias[i].bias);
  return sampling;
}

}  // namespace

deepinfer_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
      return DEEPINFER_INVALID;
    case ErrorKind::not_found:
      return DEEPINFER_NOT_FOUND;
    case ErrorKind::corrupt:
      return DEEPINFER_CORRUPT;
    case ErrorKind::unsupported:
      return DEEPINFER_UNSUPPORTED;
    case ErrorKind::io:
      return DEEPINFER_IO;
    case ErrorKind::exhausted:
      return DEEPINFER_EXHAUSTED;
    case ErrorKind::cancelled:
      return DEEPINFER_CANCELLED;
    case ErrorKind::internal:
      break;
  }
  return DEEPINFER_INTERNAL;
}

Result<Prompt> prompt_of(const deepinfer_request& given) {
  const deepinfer_request request =
      TRY(widened(given, deepinfer_request_init, "deepinfer_request"));
  TRY(need(request.ids, request.id_count, "ids"));
  TRY(need(request.messages, request.message_count, "messages"));
  TRY(need(request.stop, request.stop_count, "stop"));
  TRY(need(request.stop_ids, request.stop_id_count, "stop_ids"));
  TRY(need(request.bias, request.bias_count, "bias"));
  Prompt prompt;
  prompt.input = TRY(input_of(request));
  prompt.sampling = sampling_of(request);
  prompt.max_tokens = request.max_tokens;
  prompt.min_tokens = request.min_tokens;
  for (size_t i = 0; i < request.stop_count; ++i) {
    if (request.stop[i] == nullptr)
      return Error::invalid("stop", "text " + std::to_string(i) + " is NULL");
    prompt.stop.emplace_back(request.stop[i]);
  }
  if (request.stop_id_count > 0)
    prompt.stop_ids.assign(request.stop_ids, request.stop_ids + request.stop_id_count);
  prompt.ignore_eos = request.ignore_eos != 0;
  prompt.want_text = request.ids_only == 0;
  prompt.choices = request.choices;
  prompt.best_of = request.best_of;
  if (request.replay != 0) prompt.resume = engine::Resume::replay;
  prompt.replay_tokens = request.replay_tokens;
  if (request.draft != 0) prompt.drafting = engine::Drafting::ngram;
  prompt.priority = request.priority;
  prompt.timeout_ms = request.timeout_ms;
  prompt.salt = request.salt;
  return prompt;
}

Result<LlmOptions> options_of(const deepinfer_model_options& given) {
  const deepinfer_model_options wanted =
      TRY(widened(given, deepinfer_model_options_init, "deepinfer_model_options"));
  LlmOptions options;
  options.pool.threads = wanted.threads;
  options.max_sequences = wanted.max_sequences;
  options.model.max_rows = wanted.max_rows;
  options.context = wanted.context;
  options.cache_bytes = wanted.cache_bytes;
  options.prefix_cache = wanted.no_prefix_cache == 0;
  if (wanted.max_sequences == 0 || wanted.max_rows == 0 || wanted.max_rows > 8192) {
    return Error::invalid("deepinfer_model_options",
                          std::to_string(wanted.max_sequences) + " sequences and " +
                              std::to_string(wanted.max_rows) + " rows",
                          "1 or more, and 1 to 8192");
  }
  options.model.target.isa = TRY(kernels::choose_isa("auto"));
  options.model.target.numerics =
      TRY(kernels::choose_numerics(wanted.numerics != nullptr ? wanted.numerics : "fast"));
  return options;
}

}  // namespace deepinfer::llm
