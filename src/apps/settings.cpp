#include "apps/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "kernels/isa.h"
#include "llm/model_path.h"

namespace deepinfer::apps {
namespace {

// A JSON scalar as the text that the command line would have.
Result<std::string> scalar_text(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  switch (value.kind()) {
    case Kind::boolean:
      return std::string(value.boolean().value() ? "true" : "false");
    case Kind::integer:
      return std::to_string(value.integer().value());
    case Kind::big_integer:
      return std::to_string(value.unsigned_integer().value());
    case Kind::real:
      return fmt::format("{}", value.number().value());
    case Kind::string:
      return std::string(value.string().value());
    case Kind::null:
    case Kind::array:
    case Kind::object:
      break;
  }
  return value.error("expected a single value, found " + value.description());
}

Result<std::vector<std::string>> texts_of(const JsonValue& value) {
  std::vector<std::string> texts;
  if (value.is_string()) {
    texts.emplace_back(value.string().value());
    return texts;
  }
  for (const JsonValue& one : TRY(value.array())) texts.push_back(TRY(one.as<std::string>()));
  return texts;
}

Result<size_t> count_of(const char* name, std::string_view text) {
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size())
    return Error::invalid(name, fmt::format("\"{}\" is not a number from 0 on", text));
  return count;
}

// "ID:BIAS".
Result<std::pair<int32_t, float>> bias_of(const std::string& text) {
  const size_t colon = text.find(':');
  int32_t id = 0;
  float bias = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* const middle = begin + std::min(colon, text.size());
  const auto first = std::from_chars(begin, middle, id);
  if (colon != std::string::npos && first.ec == std::errc() && first.ptr == middle) {
    const auto second = std::from_chars(middle + 1, end, bias);
    if (second.ec == std::errc() && second.ptr == end) return std::pair(id, bias);
  }
  return Error::invalid("logit-bias", fmt::format("\"{}\" is not ID:BIAS", text.substr(0, 40)),
                        "--logit-bias 123:-2.5");
}

// {"123": -2.5}, or texts as on the command line.
Result<std::vector<std::string>> biases_of(const JsonValue& value) {
  if (!value.is_object()) return texts_of(value);
  std::vector<std::string> texts;
  for (const JsonMember& member : TRY(value.members()))
    texts.push_back(fmt::format("{}:{}", member.key, TRY(member.value.number())));
  return texts;
}

}  // namespace

void OutputSettings::declare(OptionTable& options) {
  options.add("json", &json, "one JSON object a line on stdout, nothing else there");
  options.add("log-level", &log_level, "what is logged on stderr",
              {.choices = {"debug", "info", "warning", "error", "off"}});
}

void EngineSettings::declare(OptionTable& options) {
  options.add("threads", &threads, "worker threads; all usable cores unless given",
              {.least = 1, .most = static_cast<double>(ThreadPool::kMaxThreads)});
  options.add("isa", &isa, "instruction set of the kernels",
              {.choices = {"auto", "avx2", "avx512", "emulated512", "ref"}});
  options.add("numerics", &numerics,
              "rounding of activations: int8 blocks, none at all, or as the official code",
              {.choices = {"fast", "exact", "faithful"}});
  options.add("kv", &kv, "cache rows in the model's official format, or unrounded",
              {.choices = {"official", "f32"}});
  options.add("max-rows", &max_rows, "rows a step may hold, so the largest prefill chunk",
              {.least = 1, .most = 8192});
  options.add("stream-memory", &stream_memory,
              "memory for experts that are read from disk when they are needed; without it they "
              "are resident when they fit, else get what the machine has to spare",
              {.bytes = true});
  options.add("no-overlap", &no_overlap,
              "plan each step after the one before it has ended, not while it computes");
  options.add("target-step-ms", &target_step_ms,
              "let prompts take no more of a step than keeps it this short while others are "
              "being answered; 0: no target",
              {.least = 0, .most = 1e6});
  options.add("image-profile", &image_profile,
              "how pictures are fitted: as the engine does, or as the hosted service",
              {.choices = {"native", "api"}});
  options.add("image-decode", &image_decode,
              "transparency and 16 bits of pictures: blended and rounded, or stripped",
              {.choices = {"blend", "strip"}});
  options.add("explain", &explain,
              "print which kernel was chosen for each operation, and why others refused");
}

Result<llm::LlmOptions> EngineSettings::llm_options() const {
  llm::LlmOptions options;
  options.model.target.isa = TRY(kernels::choose_isa(isa));
  options.model.target.numerics = TRY(kernels::choose_numerics(numerics));
  options.model.kv = kv == "f32" ? models::KvMode::f32 : models::KvMode::official;
  options.model.max_rows = max_rows;
  options.model.stream_bytes = stream_memory;
  options.images.profile = image_profile == "api" ? image::Profile::api : image::Profile::native;
  options.images.decode.samples =
      image_decode == "strip" ? image::SampleRule::strip : image::SampleRule::blend;
  options.pool.threads = threads;
  options.loop = no_overlap ? engine::LoopMode::plain : engine::LoopMode::overlapped;
  options.target_step_ms = target_step_ms;
  return options;
}

void SamplingSettings::declare(OptionTable& options) {
  options.add("max-tokens", &max_tokens, "end an answer after this many tokens",
              {.least = 1, .most = 1e9});
  options.add("min-tokens", &min_tokens, "let nothing end an answer before this many tokens",
              {.least = 0, .most = 1e9});
  options.add("seed", &seed, "of the random draws");
  options.add("temperature", &temperature, "0 always takes the most likely token",
              {.least = 0, .most = 100});
  options.add("top-p", &top_p, "draw among the likeliest tokens that reach this probability",
              {.least = 1e-6, .most = 1});
  options.add("top-k", &top_k, "draw among the K likeliest tokens; 0: all",
              {.least = 0, .most = 2147483647});
  options.add("min-p", &min_p, "leave out tokens below this share of the likeliest one",
              {.least = 0, .most = 1});
  options.add("logit-bias", &logit_bias,
              "ID:BIAS adds BIAS (-100 to 100) to the logit of token ID; may be repeated");
  options.add("n", &n, "answers to each prompt, with seeds in a row", {.least = 1, .most = 1024});
  options.add("best-of", &best_of,
              "compute this many answers and keep those with the largest mean log-probability",
              {.least = 1, .most = 1024});
  options.add("stop", &stop, "end an answer before this text; may be repeated");
  options.add("ignore-eos", &ignore_eos, "go on after the end of the answer, up to max-tokens");
  options.add("resume", &resume,
              "how a prompt takes up what is known of it: to the same bits, or with a replay of "
              "constant cost that is approximate [exact]",
              {.choices = {"exact", "replay"}});
  options.add("replay-tokens", &replay_tokens,
              "positions that --resume replay computes; the model's recommendation unless given",
              {.least = 1, .most = 1e9});
  options.add("draft", &draft, "propose tokens ahead, checked in one step; changes no answer",
              {.choices = {"none", "ngram"}});
}

Result<void> SamplingSettings::take_deepinfer_variables() {
  constexpr const char* kMode = "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE";
  constexpr const char* kKeep = "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS";
  constexpr const char* kDrafts = "DEEPINFER_USE_NEXTN_DECODE";
  if (const char* text = std::getenv(kDrafts)) {
    // How many may be drafted; who drafts is --draft's to say.
    most_drafts = TRY(count_of(kDrafts, text));
    if (most_drafts == 0) draft = "none";
  }
  const char* mode_text = std::getenv(kMode);
  const std::string mode = mode_text != nullptr ? mode_text : "off";
  if (mode == "off" || !resume.empty()) return {};
  if (mode == "mask") {
    return Error::invalid(kMode,
                          "\"mask\" computes every row as if replayed, which is not done here",
                          "\"compact\" gives the same tokens");
  }
  if (mode != "compact") return Error::invalid(kMode, "\"" + mode + "\", expected off or compact");
  const char* keep = std::getenv(kKeep);
  const size_t tokens = keep != nullptr ? TRY(count_of(kKeep, keep)) : 0;
  if (tokens == 0)
    return Error::invalid(kMode, "is \"compact\", " + std::string(kKeep) + " is not set", "140");
  resume = "replay";
  if (replay_tokens == 0) replay_tokens = tokens;
  return {};
}

Result<void> SamplingSettings::take_members(const JsonValue& line,
                                            const std::vector<std::string_view>& known) {
  OptionTable options;
  declare(options);
  for (const JsonMember& member : TRY(line.members())) {
    if (std::ranges::count(known, member.key) > 0) continue;
    std::string name = member.key;
    std::ranges::replace(name, '_', '-');
    if (!options.has(name)) return member.value.error("this option is not known here");
    if (name == "stop") {
      stop = TRY(texts_of(member.value));
      continue;
    }
    if (name == "logit-bias") {
      logit_bias = TRY(biases_of(member.value));
      continue;
    }
    const std::string text = TRY(scalar_text(member.value));
    const Result<void> taken = options.set(name, text);
    if (!taken.ok()) return member.value.error(taken.error().what);
  }
  return {};
}

Result<llm::Prompt> SamplingSettings::prompt() const {
  llm::Prompt prompt;
  prompt.max_tokens = max_tokens;
  prompt.stop = stop;
  prompt.ignore_eos = ignore_eos;
  prompt.sampling.seed = seed;
  prompt.sampling.temperature = static_cast<float>(temperature);
  prompt.sampling.top_p = static_cast<float>(top_p);
  prompt.sampling.top_k = static_cast<int32_t>(top_k);
  prompt.sampling.min_p = static_cast<float>(min_p);
  for (const std::string& text : logit_bias)
    prompt.sampling.logit_bias.push_back(TRY(bias_of(text)));
  prompt.min_tokens = min_tokens;
  prompt.choices = static_cast<uint32_t>(n);
  prompt.best_of = static_cast<uint32_t>(best_of);
  if (resume == "replay") prompt.resume = engine::Resume::replay;
  prompt.replay_tokens = replay_tokens;
  if (draft == "ngram") prompt.drafting = engine::Drafting::ngram;
  prompt.most_drafts = most_drafts;
  return prompt;
}

std::string model_of(const std::vector<std::string>& arguments) {
  return arguments.empty() ? llm::default_model() : arguments.front();
}

}  // namespace deepinfer::apps
