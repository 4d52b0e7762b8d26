#include "engine/engine_metrics.h"

#include <string>
#include <vector>

namespace deepinfer::engine {
namespace {

// Seconds of waiting, tokens and whole requests.
const std::vector<double>& long_times() {
  static const std::vector<double> bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                             0.25,  0.5,    1,     2.5,  5,     10,   30,
                                             60,    120,    300,   600,  1800};
  return bounds;
}

// Seconds of parts of a step.
const std::vector<double>& short_times() {
  static const std::vector<double> bounds = {1e-6,   2.5e-6, 5e-6, 1e-5,   2.5e-5, 5e-5, 1e-4,
                                             2.5e-4, 5e-4,   1e-3, 2.5e-3, 5e-3,   0.01, 0.025,
                                             0.05,   0.1,    0.25, 0.5,    1,      2.5,  10};
  return bounds;
}

const std::vector<double>& row_counts() {
  static const std::vector<double> bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  return bounds;
}

std::string named(const char* name) { return std::string("deepinfer_") + name; }

}  // namespace

EngineMetrics::EngineMetrics(Metrics& metrics)
    : metrics_(metrics),
      running_(metrics.gauge(named("num_requests_running"), "Sequences that run.")),
      waiting_(metrics.gauge(named("num_requests_waiting"), "Sequences that wait to run.")),
      cache_usage_(metrics.gauge(named("kv_cache_usage_perc"), "Pages held, 1 means all.")),
      prompt_(metrics.counter(named("prompt_tokens_total"), "Prompt tokens of ended requests.")),
      generated_(metrics.counter(named("generation_tokens_total"), "Tokens generated.")),
      preemptions_(metrics.counter(named("num_preemptions_total"),
                                   "Sequences that gave their pages back for a while.")),
      prefix_queries_(metrics.counter(named("prefix_cache_queries_total"),
                                      "Prompt tokens that were looked for in the prefix cache.")),
      prefix_hits_(metrics.counter(named("prefix_cache_hits_total"),
                                   "Prompt tokens that were not computed.")),
      drafted_(metrics.counter(named("spec_decode_num_draft_tokens_total"), "Drafts verified.")),
      accepted_(
          metrics.counter(named("spec_decode_num_accepted_tokens_total"), "Drafts that stood.")),
      prefill_rows_(
          metrics.counter(named("step_rows_total"), "Rows computed.", {{"kind", "prefill"}})),
      decode_rows_(
          metrics.counter(named("step_rows_total"), "Rows computed.", {{"kind", "decode"}})),
      verify_rows_(
          metrics.counter(named("step_rows_total"), "Rows computed.", {{"kind", "verify"}})),
      failed_steps_(metrics.counter(named("failed_steps_total"), "Steps that the model failed.")),
      queue_(metrics.histogram(named("request_queue_time_seconds"),
                               "From arrival to the first row.", long_times())),
      first_token_(metrics.histogram(named("time_to_first_token_seconds"),
                                     "From arrival to the first token.", long_times())),
      between_tokens_(metrics.histogram(named("inter_token_latency_seconds"),
                                        "Between two tokens of a sequence.", long_times())),
      per_token_(metrics.histogram(named("request_time_per_output_token_seconds"),
                                   "Mean time of a request's later tokens.", long_times())),
      whole_(metrics.histogram(named("e2e_request_latency_seconds"), "From arrival to the end.",
                               long_times())),
      iteration_rows_(
          metrics.histogram(named("iteration_tokens_total"), "Rows of a step.", row_counts())),
      plan_(metrics.histogram(named("step_plan_seconds"), "Planning a step.", short_times())),
      compute_(metrics.histogram(named("step_compute_seconds"), "Forward pass of a step.",
                                 short_times())),
      sample_(metrics.histogram(named("step_sample_seconds"), "Reading and committing a step.",
                                short_times())),
      bubble_(metrics.histogram(named("step_bubble_seconds"),
                                "From the end of a step's sampling to the next forward pass.",
                                short_times())) {
  for (size_t reason = 0; reason < std::size(finished_); ++reason) {
    finished_[reason] = nullptr;
    if (static_cast<FinishReason>(reason) == FinishReason::none) continue;
    finished_[reason] = &metrics_.counter(
        named("request_success_total"), "Requests that ended, by reason.",
        {{"finished_reason", std::string(finish_reason_name(static_cast<FinishReason>(reason)))}});
  }
}

void EngineMetrics::ended(FinishReason reason, const RequestStats& stats, double seconds) {
  finished_[static_cast<size_t>(reason)]->add();
  prompt_.add(stats.prompt_tokens);
  drafted_.add(stats.drafted);
  accepted_.add(stats.accepted);
  whole_.observe(seconds);
  if (stats.completion_tokens > 1) per_token_.observe(stats.tpot_ms / 1e3);
}

void EngineMetrics::step(const Step& step) {
  prefill_rows_.add(step.prefill_rows);
  decode_rows_.add(step.decode_rows);
  verify_rows_.add(step.verify_rows);
  iteration_rows_.observe(
      static_cast<double>(step.prefill_rows + step.decode_rows + step.verify_rows));
  running_.set(static_cast<double>(step.running));
  waiting_.set(static_cast<double>(step.waiting));
  cache_usage_.set(step.cache_usage);
}

}  // namespace deepinfer::engine
