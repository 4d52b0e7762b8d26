#include "llm/llm.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/memory.h"
#include "llm/conversation_prompt.h"
#include "llm/engine_size.h"
#include "llm/model_path.h"
#include "llm/prompt_stream.h"
#include "models/plan/memory_plan.h"
#include "text/token_classes.h"

namespace deepinfer::llm {
namespace {

using engine::FinishReason;

// Memory for experts that stream when the caller names none: 0 when everything fits, else what nine
// tenths of the usable memory leave beside the rest of the model and the cache of one context.
Result<uint64_t> default_stream_bytes(const weights::Checkpoint& checkpoint,
                                      const LlmOptions& options) {
  const models::PlannedModel model = TRY(models::planned_from_checkpoint(checkpoint));
  const cache::CacheLayout layout = TRY(models::planned_cache(model.config, options.model.kv));
  models::PlanRequest request;
  request.context =
      models::planned_context(options.context, models::base_config(model.config).context);
  request.memory = models::planned_memory(usable_memory_bytes());
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

// The prompts of one generate().
struct Llm::Run {
  std::vector<engine::Request> requests;  // [prompts]; moved out when the engine takes them
  std::vector<PromptStream> streams;      // [prompts]
  uint64_t first_request = 0;
  size_t next = 0;  // prompt that the engine gets next
  size_t live_choices = 0;
  size_t live = 0;                  // prompts that the engine has
  std::vector<uint64_t> to_cancel;  // found during a step, told to the engine after it
  PromptStream::OnDelta on_delta;

  void take(const engine::Event& event) {
    PromptStream& stream = streams[event.request - first_request];
    if (event.finish != FinishReason::none) --live_choices;
    const bool was_done = stream.done();
    if (stream.take(event, on_delta) == PromptStream::Then::cancel)
      to_cancel.push_back(event.request);
    if (stream.done() && !was_done) --live;
  }
  bool all_begun() const {
    return std::ranges::all_of(streams, [](const PromptStream& one) { return one.begun(); });
  }
  size_t tokens() const {
    size_t sum = 0;
    for (const PromptStream& stream : streams) sum += stream.tokens();
    return sum;
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
    return TRY(layout.render(*conversation)).encode(tokenizer);
  }
  std::vector<int32_t> ids;
  if (tokenizer.add_bos()) ids.push_back(*tokenizer.bos_id());
  TRY(tokenizer.append(std::get<std::string>(input), text::SpecialTokens::recognise, ids));
  // A text that spells BOS itself does not get a second one.
  if (tokenizer.add_bos() && ids.size() > 1 && ids[1] == ids[0]) ids.erase(ids.begin());
  return ids;
}

Result<std::unique_ptr<engine::Engine>> Llm::make_engine(size_t longest) {
  const uint64_t memory = usable_memory_bytes();
  SizeRequest wanted = {.memory = memory != 0 ? memory : total_memory_bytes(),
                        .cache_bytes = options_.cache_bytes,
                        .snapshot_bytes = options_.snapshot_bytes,
                        .longest = std::clamp<size_t>(longest, 1, context())};
  engine::Engine::Options options;
  options.max_sequences = std::max<size_t>(options_.max_sequences, 1);
  options.max_rows = options_.model.max_rows;
  options.context = context();
  options.prefix_cache = options_.prefix_cache;
  options.mode = options_.loop;
  options.target_step_ms = options_.target_step_ms;
  options.isa = options_.model.target.isa;
  options.pool = pool_.get();
  options.metrics = options_.metrics;
  if (options.prefix_cache)
    options.identity = TRY(cache_identity(checkpoint_, *model_, options_.model));
  while (true) {
    const EngineSize size = size_engine(*model_, wanted);
    options.cache_bytes = size.cache_bytes;
    options.snapshot_bytes = options.prefix_cache ? size.snapshot_bytes : 0;
    Result<std::unique_ptr<engine::Engine>> made =
        engine::Engine::create(*model_, options, system_clock());
    // The process may be refused what the machine has: half of it may do.
    const uint64_t least = cache::pages_for(wanted.longest) * model_->cache_layout().page_bytes();
    const bool smaller = options_.cache_bytes == 0 && size.cache_bytes / 2 >= least;
    if (made.ok() || made.error().kind != ErrorKind::exhausted || !smaller) return made;
    wanted.cache_bytes = size.cache_bytes / 2;
  }
}

Result<void> Llm::ensure_engine(size_t longest) {
  if (engine_ != nullptr && engine_->limits().context >= std::min(longest, context())) return {};
  engine_.reset();
  engine_ = TRY(make_engine(longest));
  return {};
}

// A picture takes many positions, its placeholder was one.
Result<PromptWithImages> Llm::place_images(const Prompt& prompt, std::vector<int32_t> ids,
                                           std::vector<size_t>& points, ThreadPool& pool) {
  // A placeholder without its picture is a mistake too.
  const bool placeholders = image_rules_ && std::ranges::count(ids, image_rules_->placeholder) > 0;
  if (prompt.images.empty() && !placeholders)
    return PromptWithImages{.ids = std::move(ids), .images = {}};
  if (!prompt_images_) prompt_images_ = TRY(PromptImages::open(checkpoint_, options_.model, pool));
  PromptWithImages input = TRY(prompt_images_->expand(ids, prompt.images, options_.images));
  for (size_t& point : points) {
    const auto before = ids.begin() + static_cast<ptrdiff_t>(std::min(point, ids.size()));
    const auto pictures =
        static_cast<size_t>(std::count(ids.begin(), before, image_rules_->placeholder));
    for (size_t i = 0; i < pictures; ++i) point += input.images[i].embeddings.size() - 1;
  }
  return input;
}

Result<engine::Request> Llm::make_request(const Prompt& prompt, ThreadPool& pool) {
  TRY(check_prompt(prompt));
  if (prompt.want_text && !prompt.stop.empty() && !tokenizer_) return *tokenizer_error_;
  ConversationPrompt parts;
  if (const auto* conversation = std::get_if<recipe::Conversation>(&prompt.input)) {
    if (!tokenizer_) return *tokenizer_error_;
    const recipe::Layout layout = TRY(this->layout());
    parts = TRY(encode_conversation(layout, *conversation, *tokenizer_));
    if (prompt.ignore_eos) parts.stop_ids.clear();
  } else {
    parts.ids = TRY(encode(prompt.input));
  }
  parts.stop_ids.insert(parts.stop_ids.end(), prompt.stop_ids.begin(), prompt.stop_ids.end());
  parts.resume_points.insert(parts.resume_points.end(), prompt.resume_points.begin(),
                             prompt.resume_points.end());
  PromptWithImages input =
      TRY(place_images(prompt, std::move(parts.ids), parts.resume_points, pool));
  if (input.ids.size() > context()) {
    return Error::invalid("prompt", std::to_string(input.ids.size()) +
                                        " tokens, the context holds " + std::to_string(context()));
  }
  engine::Request request;
  request.prompt = std::move(input.ids);
  request.images = std::move(input.images);
  request.sampling = prompt.sampling;
  // A picture is nothing that a model can say.
  if (image_rules_) request.sampling.banned_ids.push_back(image_rules_->placeholder);
  if (prompt.best_of > prompt.choices) request.sampling.want_logprob = true;
  request.max_tokens = prompt.max_tokens;
  request.min_tokens = prompt.min_tokens;
  request.stop_ids = std::move(parts.stop_ids);
  request.ignore_eos = prompt.ignore_eos;
  request.want_prompt_logprobs = prompt.want_prompt_logprobs;
  request.forced_ids = prompt.forced_ids;
  request.choices = std::max(prompt.choices, prompt.best_of);
  request.priority = prompt.priority;
  request.user = prompt.user;
  request.timeout_ms = prompt.timeout_ms;
  request.salt = prompt.salt;
  request.resume = prompt.resume;
  request.replay_tokens = prompt.replay_tokens;
  request.drafting = prompt.drafting;
  request.most_drafts = prompt.most_drafts;
  request.resume_points = std::move(parts.resume_points);
  request.keep = prompt.keep;
  return request;
}

// Gives the engine as many prompts as it takes.
Result<void> Llm::feed(Run& run) {
  while (run.next < run.streams.size()) {
    const size_t index = run.next;
    PromptStream& stream = run.streams[index];
    engine::Request& request = run.requests[index];
    const size_t choices = request.choices;
    if (!stream.done() && run.live > 0 && run.live_choices + choices > engine_->limits().waiting)
      return {};
    ++run.next;
    if (stream.done()) continue;
    request.id = run.first_request + index;
    Result<void> added = engine_->add(std::move(request));
    if (added.ok()) {
      ++run.live;
      run.live_choices += choices;
      continue;
    }
    stream.fail(prompt_error(added.error()), run.on_delta);
  }
  return {};
}

Result<void> Llm::step_until_done(Run& run, const std::atomic<bool>* cancel) {
  bool cancelled = false;
  const auto take = [&run](const engine::Event& event) { run.take(event); };
  const uint64_t steps_before = engine_->counters().steps;
  const int64_t begin_ns = system_clock().now_ns();
  int64_t prefilled_ns = 0;
  uint64_t prefill_steps = 0;
  size_t prefill_tokens = 0;
  while (run.live > 0 && engine_->busy()) {
    if (!cancelled && cancel != nullptr && cancel->load()) {
      cancelled = true;
      for (size_t i = 0; i < run.next; ++i) {
        if (!run.streams[i].done()) run.to_cancel.push_back(run.first_request + i);
      }
    }
    // A request that ended in the meantime is not there to be cancelled.
    for (uint64_t request : std::exchange(run.to_cancel, {})) (void)engine_->cancel(request);
    TRY(engine_->step(take));
    if (!cancelled) TRY(feed(run));
    if (prefilled_ns == 0 && run.all_begun()) {
      prefilled_ns = system_clock().now_ns();
      prefill_steps = engine_->counters().steps - steps_before;
      prefill_tokens = run.tokens();
    }
  }
  // The model and the workers belong to the caller again.
  TRY(engine_->drain(take));
  if (prefilled_ns == 0) return {};
  speed_.prefill_seconds = seconds_of(prefilled_ns - begin_ns);
  speed_.decode_seconds = seconds_of(system_clock().now_ns() - prefilled_ns);
  speed_.decode_steps = engine_->counters().steps - steps_before - prefill_steps;
  speed_.decode_tokens = run.tokens() - prefill_tokens;
  for (const PromptStream& stream : run.streams)
    speed_.prompt_tokens += stream.answer().stats.prompt_tokens;
  return {};
}

Result<std::vector<Answer>> Llm::generate(std::span<const Prompt> prompts,
                                          const std::function<void(const Delta&)>& on_delta,
                                          const std::atomic<bool>* cancel) {
  Run run;
  run.first_request = next_request_;
  run.on_delta = on_delta;
  run.requests.resize(prompts.size());
  run.streams.reserve(prompts.size());
  next_request_ += prompts.size();
  speed_ = {};
  size_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    run.streams.emplace_back(i, path_, prompts[i], tokenizer_or_null());
    Result<engine::Request> request = make_request(prompts[i], *pool_);
    if (request.ok()) {
      run.requests[i] = std::move(request).value();
      longest = std::max(longest, run.requests[i].prompt.size() + prompts[i].max_tokens);
    } else {
      run.streams[i].fail(request.error(), run.on_delta);
    }
  }
  Result<void> done;
  if (longest > 0) {
    TRY(ensure_engine(longest));
    done = feed(run);
    if (done.ok()) done = step_until_done(run, cancel);
  }
  std::vector<Answer> answers;
  answers.reserve(prompts.size());
  for (PromptStream& stream : run.streams) {
    const bool cancelled = done.ok() && cancel != nullptr && cancel->load();
    stream.fail(!done.ok()  ? done.error()
                : cancelled ? Error{ErrorKind::cancelled, "prompt", "was interrupted", ""}
                            : Error{ErrorKind::internal, path_, "the engine lost the prompt", ""},
                run.on_delta);
    answers.push_back(stream.take_answer());
  }
  return answers;
}

}  // namespace deepinfer::llm
