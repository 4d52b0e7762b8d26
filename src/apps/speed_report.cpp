#include "apps/speed_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/limits.h"

namespace deepinfer::apps {
namespace {

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

}  // namespace

std::string speed_text(const llm::Speed& speed, size_t weight_bytes_per_step,
                       double read_gb_per_s) {
  std::string text =
      fmt::format("read {} tokens at {:.0f} tokens/s", speed.prompt_tokens,
                  rate(static_cast<double>(speed.prompt_tokens), speed.prefill_seconds));
  if (speed.decode_steps == 0) return text;
  text += fmt::format("; wrote {} tokens at {:.1f} tokens/s", speed.decode_tokens,
                      rate(static_cast<double>(speed.decode_tokens), speed.decode_seconds));
  const double bytes =
      static_cast<double>(speed.decode_steps) * static_cast<double>(weight_bytes_per_step);
  const double gb_per_s = rate(bytes, speed.decode_seconds) / 1e9;
  text += fmt::format(", {:.1f} GB/s of weights", gb_per_s);
  if (read_gb_per_s <= 0) return text;
  const double share = gb_per_s / read_gb_per_s;
  text += fmt::format(", {:.0f} % of the {:.1f} GB/s that this machine's memory gives", 100 * share,
                      read_gb_per_s);
  if (share > 1) text += " (above 100 %: part of the weights stays in the processor's cache)";
  return text;
}

double measure_read_gb_per_s(ThreadPool& pool) {
  constexpr size_t kLeastBytes = size_t{256} << 20;
  const size_t bytes = std::max(kLeastBytes, 2 * kernels::last_level_cache_bytes());
  const Result<kernels::Isa> isa = kernels::choose_isa("auto");
  const Result<kernels::BandwidthProbe> probe =
      kernels::BandwidthProbe::create(pool, std::min(bytes, kernels::default_probe_bytes()));
  if (!isa.ok() || !probe.ok()) return 0;
  double best = 0;
  for (int pass = 0; pass < 3; ++pass)
    best = std::max(best, probe.value().measure(pool, isa.value()));
  return best / 1e9;
}

}  // namespace deepinfer::apps
