#pragma once

// EngineMetrics: what an engine counts while it runs. Names are those of vLLM where the meaning is
// the same, with the prefix deepinfer_ instead of vllm:.
//
// Per request: queue, time to first token, between tokens, whole; prompt, reused, generated,
// drafted, accepted tokens. Per step: rows by kind, plan, compute, sample and bubble time; running,
// waiting, pages.
//
// Threads: any; see base/metrics.h.

#include <cstddef>
#include <cstdint>

#include "base/metrics.h"
#include "engine/request.h"

namespace deepinfer::engine {

class EngineMetrics {
 public:
  explicit EngineMetrics(Metrics& metrics);

  void queued(double seconds) { queue_.observe(seconds); }
  void first_token(double seconds) { first_token_.observe(seconds); }
  void next_token(double seconds) { between_tokens_.observe(seconds); }
  void token() { generated_.add(); }
  void ended(FinishReason reason, const RequestStats& stats, double seconds);
  void preempted() { preemptions_.add(); }
  // asked: prompt tokens of a sequence that starts; reused: of those, that are not computed.
  void started(size_t asked, size_t reused) {
    prefix_queries_.add(asked);
    prefix_hits_.add(reused);
  }
  struct Step {
    size_t prefill_rows = 0, decode_rows = 0, verify_rows = 0;
    size_t running = 0, waiting = 0;
    double cache_usage = 0;  // pages held, 0 .. 1
  };
  void step(const Step& step);
  void planned(double seconds) { plan_.observe(seconds); }
  void computed(double seconds) { compute_.observe(seconds); }
  void sampled(double seconds) { sample_.observe(seconds); }
  void bubble(double seconds) { bubble_.observe(seconds); }
  void failed_step() { failed_steps_.add(); }

 private:
  Metrics& metrics_;
  Gauge &running_, &waiting_, &cache_usage_;
  Counter &prompt_, &generated_, &preemptions_, &prefix_queries_, &prefix_hits_, &drafted_,
      &accepted_, &prefill_rows_, &decode_rows_, &verify_rows_, &failed_steps_;
  Counter* finished_[5];  // [FinishReason]
  Histogram &queue_, &first_token_, &between_tokens_, &per_token_, &whole_, &iteration_rows_,
      &plan_, &compute_, &sample_, &bubble_;
};

}  // namespace deepinfer::engine
