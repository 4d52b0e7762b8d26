#include "apps/engine_load.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"

namespace deepinfer::apps {

Result<EngineLoad> EngineLoad::create(models::Model& model,
                                      const engine::Engine::Options& options) {
  return EngineLoad(TRY(engine::Engine::create(model, options, system_clock())));
}

Result<void> EngineLoad::add(engine::Request request) {
  const uint64_t id = request.id;
  tracks_[id].added_ns = system_clock().now_ns();
  return engine_->add(std::move(request));
}

Result<void> EngineLoad::step() {
  TRY(engine_->step([&](engine::Event event) {
    Track& track = tracks_.at(event.request);
    if (event.has_token) track.token_ns.push_back(system_clock().now_ns());
    if (event.finish != engine::FinishReason::none) track.stats = event.stats;
    if (event.finish == engine::FinishReason::error) failure_ = event.error;
  }));
  if (!failure_.empty()) return Error{ErrorKind::internal, "bench", failure_, ""};
  return {};
}

Result<void> EngineLoad::finish() {
  while (busy()) TRY(step());
  return {};
}

std::vector<double> token_gaps_ms(const EngineLoad& load, const std::vector<uint64_t>& requests) {
  std::vector<double> gaps;
  for (const uint64_t request : requests) {
    const std::vector<int64_t>& times = load.track(request).token_ns;
    for (size_t i = 1; i < times.size(); ++i) {
      gaps.push_back(static_cast<double>(times[i] - times[i - 1]) / 1e6);
    }
  }
  std::sort(gaps.begin(), gaps.end());
  return gaps;
}

double quantile(const std::vector<double>& ascending, double q) {
  check(!ascending.empty(), "a quantile of nothing");
  const double place = q * static_cast<double>(ascending.size() - 1);
  return ascending[static_cast<size_t>(std::ceil(place))];
}

}  // namespace deepinfer::apps
