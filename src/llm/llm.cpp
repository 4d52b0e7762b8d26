#include "llm/llm.h"

#include <algorithm>
#include <utility>

#include "base/memory.h"
#include "llm/model_path.h"
#include "llm/stop_matcher.h"
#include "models/memory_plan.h"
#include "text/stream_decoder.h"
#include "text/token_classes.h"

namespace deepinfer::llm {
namespace {

using engine::FinishReason;

size_t pages_for(size_t tokens) {
  return (tokens + cache::kTokensPerPage - 1) / cache::kTokensPerPage;
}

// Stop ids that the layout adds when messages were rendered with it.
std::vector<int32_t> turn_end_ids(const recipe::Layout& layout, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (std::string_view spelling : layout.turn_ends) {
    if (const auto id = tokenizer.token_to_id(spelling)) ids.push_back(*id);
  }
  return ids;
}

// Memory for experts that stream when the caller names none: 0 when everything fits, else what nine
// tenths of the usable memory leave beside the rest of the model and the cache of one context.
Result<uint64_t> default_stream_bytes(const weights::Checkpoint& checkpoint,
                                      const LlmOptions& options) {
  const models::PlannedModel model = TRY(models::planned_from_checkpoint(checkpoint));
  const cache::CacheLayout layout = TRY(models::planned_cache(model.config, options.model.kv));
  models::PlanRequest request;
  const uint64_t trained = models::base_config(model.config).context;
  request.context = std::min<uint64_t>(options.context != 0 ? options.context : 8192, trained);
  request.memory = usable_memory_bytes() / 10 * 9;
  request.kv = options.model.kv;
  request.max_rows = options.model.max_rows;
  const models::MemoryPlan plan = models::plan_memory(model, layout, request);
  if (plan.resident) return uint64_t{0};
  if (!plan.runs) {
    return Error::exhausted(checkpoint.path(),
                            "needs at least " + std::to_string(plan.floor_bytes) +
                                " bytes of memory, nine tenths of what may be used are " +
                                std::to_string(request.memory),
                            "deepinfer plan says what takes how much");
  }
  return plan.stream_bytes;
}

}  // namespace

// One prompt on its way.
struct Llm::Stream {
  size_t index = 0;
  uint64_t request = 0;
  Answer* answer = nullptr;
  std::optional<text::StreamDecoder> decoder;  // absent: no text wanted
  StopMatcher matcher{{}};
  bool done = false;
};

struct Llm::Run {
  std::span<const Prompt> prompts;
  std::vector<Answer> answers;
  std::vector<Stream> streams;
  uint64_t first_request = 0;
  size_t live = 0;
  size_t started = 0;  // have their first token, or ended without one
  size_t tokens = 0;
  std::vector<uint64_t> to_cancel;  // found during a step, told to the engine after it
  const std::function<void(const Delta&)>* on_delta = nullptr;

  void emit(size_t index, std::string_view text, const Answer* answer) {
    if (*on_delta && (!text.empty() || answer != nullptr)) (*on_delta)({index, text, answer});
  }
  void fail(size_t index, Error error) {
    Answer& answer = answers[index];
    answer.finish = FinishReason::error;
    answer.error = std::move(error);
    streams[index].done = true;
    emit(index, {}, &answer);
  }
};

Llm::Llm(std::string path, weights::Checkpoint checkpoint, LlmOptions options)
    : path_(std::move(path)), options_(std::move(options)), checkpoint_(std::move(checkpoint)) {}

Llm::~Llm() = default;

Result<std::unique_ptr<Llm>> Llm::open(const std::string& model, const LlmOptions& options) {
  std::string path = TRY(resolve_model(model, options.fetch));
  weights::Checkpoint checkpoint = TRY(weights::Checkpoint::open(path));
  LlmOptions wanted = options;
  const std::optional<ImageRules> image_rules = TRY(read_image_rules(checkpoint));
  if (image_rules) {
    // All positions of a picture run in one step.
    wanted.model.max_rows = std::max(wanted.model.max_rows, image_rules->most_positions);
  }
  if (wanted.model.stream_bytes == 0) {
    wanted.model.stream_bytes = TRY(default_stream_bytes(checkpoint, options));
  }
  std::unique_ptr<Llm> llm(new Llm(std::move(path), std::move(checkpoint), wanted));
  llm->image_rules_ = image_rules;
  Result<text::Tokenizer> tokenizer = open_tokenizer(llm->checkpoint_);
  if (tokenizer.ok()) {
    llm->tokenizer_ = std::move(tokenizer).value();
    wanted.model.engram_classes = [made = *llm->tokenizer_](size_t vocab) {
      return Result<std::vector<int32_t>>(text::token_classes(made, vocab));
    };
  } else {
    llm->tokenizer_error_ = tokenizer.error();
  }
  llm->pool_ = TRY(ThreadPool::create(options.pool));
  llm->model_ =
      TRY(models::open_model(llm->checkpoint_, wanted.model, *llm->pool_, options.load_progress));
  const size_t trained = llm->model_->config().context;
  if (options.context > trained) {
    return Error::invalid(
        "--context",
        std::to_string(options.context) + " tokens, the model has " + std::to_string(trained),
        "ask for no more than the model's");
  }
  return llm;
}

size_t Llm::context() const {
  return options_.context != 0 ? options_.context : model_->config().context;
}

Result<text::Tokenizer> Llm::tokenizer() const {
  if (!tokenizer_) return *tokenizer_error_;
  return *tokenizer_;
}

Result<recipe::Layout> Llm::layout() const {
  return open_layout(checkpoint_, tokenizer_ ? &*tokenizer_ : nullptr);
}

Result<std::vector<int32_t>> Llm::encode(const Input& input) const {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input)) return *ids;
  const text::Tokenizer tokenizer = TRY(this->tokenizer());
  if (const auto* conversation = std::get_if<recipe::Conversation>(&input)) {
    const recipe::Layout layout = TRY(this->layout());
    const recipe::PromptPieces prompt = TRY(layout.render(*conversation));
    return prompt.encode(tokenizer);
  }
  std::vector<int32_t> ids;
  if (tokenizer.add_bos()) ids.push_back(*tokenizer.bos_id());
  TRY(tokenizer.append(std::get<std::string>(input), text::SpecialTokens::recognise, ids));
  // A text that spells BOS itself does not get a second one.
  if (tokenizer.add_bos() && ids.size() > 1 && ids[1] == ids[0]) ids.erase(ids.begin());
  return ids;
}

Result<void> Llm::ensure_engine(std::vector<size_t> needs) {
  const size_t context = this->context();
  for (size_t& need : needs) need = std::min(std::max<size_t>(need, 1), context);
  std::sort(needs.begin(), needs.end(), std::greater<>());
  const size_t sequences =
      std::min(std::max<size_t>(needs.size(), 1), std::max<size_t>(options_.max_sequences, 1));
  size_t pages = 0;
  for (size_t i = 0; i < std::min(sequences, needs.size()); ++i) pages += pages_for(needs[i]) + 1;
  const size_t limit = options_.cache_bytes != 0 ? options_.cache_bytes : total_memory_bytes() / 4;
  const size_t one =
      pages_for(needs.empty() ? 1 : needs.front()) * model_->cache_layout().page_bytes();
  const size_t wanted = pages * model_->cache_layout().page_bytes();
  const size_t bytes = std::min(wanted, std::max(limit, options_.cache_bytes != 0 ? 0 : one));
  const size_t waiting = std::max(needs.size(), engine::Engine::Options().max_waiting);
  if (engine_ != nullptr && engine_sequences_ >= sequences && engine_cache_bytes_ >= bytes &&
      engine_waiting_ >= waiting)
    return {};
  engine_.reset();
  engine::Engine::Options engine_options;
  engine_options.max_sequences = sequences;
  engine_options.max_waiting = waiting;
  engine_options.max_rows = options_.model.max_rows;
  engine_options.context = context;
  engine_options.cache_bytes = bytes;
  engine_options.isa = options_.model.target.isa;
  engine_ = TRY(engine::Engine::create(*model_, engine_options, system_clock()));
  engine_sequences_ = sequences;
  engine_waiting_ = waiting;
  engine_cache_bytes_ = bytes;
  return {};
}

Result<PromptWithImages> Llm::prepare(const Prompt& prompt) {
  PromptWithImages input = {.ids = TRY(encode(prompt.input)), .images = {}};
  if (prompt.want_text && !prompt.stop.empty() && !tokenizer_) return *tokenizer_error_;
  // A placeholder without its picture is a mistake too.
  const bool placeholders =
      image_rules_ && std::ranges::count(input.ids, image_rules_->placeholder) > 0;
  if (!prompt.images.empty() || placeholders) {
    if (!prompt_images_) {
      prompt_images_ = TRY(PromptImages::open(checkpoint_, options_.model, *pool_));
    }
    input = TRY(prompt_images_->expand(input.ids, prompt.images, options_.images));
  }
  if (input.ids.size() > context()) {
    return Error::invalid("prompt", std::to_string(input.ids.size()) +
                                        " tokens, the context holds " + std::to_string(context()));
  }
  return input;
}

void Llm::start(size_t index, const Prompt& prompt, PromptWithImages input, Run& run) {
  Stream& stream = run.streams[index];
  stream.index = index;
  stream.request = run.first_request + index;
  stream.answer = &run.answers[index];
  engine::Request request;
  request.id = stream.request;
  request.prompt = std::move(input.ids);
  request.images = std::move(input.images);
  request.sampling = prompt.sampling;
  // A picture is nothing that a model can say.
  if (image_rules_) request.sampling.banned_ids.push_back(image_rules_->placeholder);
  request.max_tokens = prompt.max_tokens;
  request.ignore_eos = prompt.ignore_eos;
  const bool messages = std::holds_alternative<recipe::Conversation>(prompt.input);
  if (messages && !prompt.ignore_eos) {
    Result<recipe::Layout> layout = this->layout();
    if (layout.ok()) request.stop_ids = turn_end_ids(layout.value(), *tokenizer_);
  }
  if (prompt.want_text && tokenizer_) {
    stream.decoder.emplace(*tokenizer_, text::SkipSpecial::yes);
    stream.matcher = StopMatcher(prompt.stop);
  }
  Result<void> added = engine_->add(std::move(request));
  if (!added.ok()) {
    // The engine calls it by a number that nobody outside knows.
    Error error = added.error();
    error.thing = "prompt";
    return run.fail(index, std::move(error));
  }
  ++run.live;
}

void Llm::finish(Stream& stream, const engine::Event& event, Run& run) {
  Answer& answer = *stream.answer;
  answer.stats = event.stats;
  answer.stats.completion_tokens = answer.ids.size();
  answer.finish = event.finish;
  std::string rest;
  if (stream.matcher.stopped()) {
    // The engine was told to cancel, but what ended the answer is its text.
    answer.finish = FinishReason::stop;
  } else if (stream.decoder) {
    rest = stream.matcher.push(stream.decoder->flush());
    rest += stream.matcher.flush();
    if (stream.matcher.stopped()) answer.finish = FinishReason::stop;
  }
  if (event.finish == FinishReason::error)
    answer.error = Error{ErrorKind::internal, path_, event.error, ""};
  answer.text += rest;
  stream.done = true;
  --run.live;
  run.emit(stream.index, rest, &answer);
}

void Llm::handle(const engine::Event& event, Run& run) {
  Stream& stream = run.streams[event.request - run.first_request];
  if (stream.done) return;
  Answer& answer = *stream.answer;
  if (event.has_token) {
    ++run.tokens;
    if (answer.ids.empty()) ++run.started;
  } else if (answer.ids.empty()) {
    ++run.started;
  }
  if (event.has_token && !stream.matcher.stopped()) {
    answer.ids.push_back(event.token.id);
    answer.logprobs.push_back(event.token.logprob);
    if (stream.decoder) {
      const std::string text = stream.matcher.push(stream.decoder->push(event.token.id));
      answer.text += text;
      run.emit(stream.index, text, nullptr);
    }
    if (stream.matcher.stopped() && event.finish == FinishReason::none)
      run.to_cancel.push_back(event.request);
  }
  if (event.finish != FinishReason::none) finish(stream, event, run);
}

Result<void> Llm::step_until_done(Run& run, const std::atomic<bool>* cancel) {
  bool cancelled = false;
  speed_ = {};
  const size_t starters = run.live;
  const uint64_t steps_before = engine_->counters().steps;
  const int64_t begin_ns = system_clock().now_ns();
  int64_t prefilled_ns = 0;
  uint64_t prefill_steps = 0;
  size_t prefill_tokens = 0;
  while (engine_->busy() && run.live > 0) {
    if (!cancelled && cancel != nullptr && cancel->load()) {
      cancelled = true;
      for (const Stream& stream : run.streams) {
        if (!stream.done) run.to_cancel.push_back(stream.request);
      }
    }
    // A request that ended in the meantime is not there to be cancelled.
    for (uint64_t request : std::exchange(run.to_cancel, {})) (void)engine_->cancel(request);
    Result<void> stepped = engine_->step([&](const engine::Event& event) { handle(event, run); });
    if (!stepped.ok()) return stepped;
    if (prefilled_ns == 0 && run.started >= starters) {
      prefilled_ns = system_clock().now_ns();
      prefill_steps = engine_->counters().steps - steps_before;
      prefill_tokens = run.tokens;
    }
  }
  if (prefilled_ns == 0) return {};
  speed_.prefill_seconds = seconds_of(prefilled_ns - begin_ns);
  speed_.decode_seconds = seconds_of(system_clock().now_ns() - prefilled_ns);
  speed_.decode_steps = engine_->counters().steps - steps_before - prefill_steps;
  speed_.decode_tokens = run.tokens - prefill_tokens;
  for (const Answer& answer : run.answers) speed_.prompt_tokens += answer.stats.prompt_tokens;
  return {};
}

Result<std::vector<Answer>> Llm::generate(std::span<const Prompt> prompts,
                                          const std::function<void(const Delta&)>& on_delta,
                                          const std::atomic<bool>* cancel) {
  Run run;
  run.prompts = prompts;
  run.answers.resize(prompts.size());
  run.streams.resize(prompts.size());
  run.first_request = next_request_;
  run.on_delta = &on_delta;
  next_request_ += prompts.size();

  std::vector<Result<PromptWithImages>> inputs;
  std::vector<size_t> needs;
  inputs.reserve(prompts.size());
  for (const Prompt& prompt : prompts) {
    inputs.push_back(prepare(prompt));
    if (inputs.back().ok()) needs.push_back(inputs.back().value().ids.size() + prompt.max_tokens);
  }
  if (!needs.empty()) TRY(ensure_engine(std::move(needs)));
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (inputs[i].ok()) {
      start(i, prompts[i], std::move(inputs[i]).value(), run);
    } else {
      run.fail(i, inputs[i].error());
    }
  }
  if (run.live == 0) return std::move(run.answers);
  const Result<void> done = step_until_done(run, cancel);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (run.streams[i].done) continue;
    run.fail(i, done.ok() ? Error{ErrorKind::internal, path_, "the engine lost the prompt", ""}
                          : done.error());
  }
  return std::move(run.answers);
}

}  // namespace deepinfer::llm
