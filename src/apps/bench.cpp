// deepinfer bench: measures one thing, beside this machine's limit and, if asked, a peer.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/bench_batch.h"
#include "apps/bench_engine.h"
#include "apps/bench_prefix.h"
#include "apps/bench_report.h"
#include "apps/bench_samples.h"
#include "apps/bench_storage.h"
#include "apps/command.h"
#include "apps/interrupt.h"
#include "apps/open_model.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/progress.h"
#include "base/system.h"
#include "kernels/limits.h"
#include "llm/child_process.h"

namespace deepinfer::apps {
namespace {

constexpr double kPeakSeconds = 0.05;
constexpr size_t kPrefixTokens = 2048;

struct Peer {
  std::string name;
  std::string command;
  std::vector<double> values;
};

// "NAME=CMD".
Result<Peer> parse_peer(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    return Error::invalid("--peer", "\"" + text + "\" is not NAME=CMD");
  return Peer{text.substr(0, equals), text.substr(equals + 1), {}};
}

// The last number in a text.
Result<double> last_number(const std::string& text, const std::string& peer) {
  constexpr std::string_view kDigits = "0123456789.";
  const size_t end = text.find_last_of("0123456789");
  if (end != std::string::npos) {
    size_t start = end;
    while (start > 0 && kDigits.find(text[start - 1]) != std::string_view::npos) --start;
    double value = 0;
    const auto parsed = std::from_chars(text.data() + start, text.data() + end + 1, value);
    if (parsed.ec == std::errc() && std::isfinite(value)) return value;
  }
  return Error::invalid("peer " + peer, "its output holds no number");
}

Result<void> run_peer(Peer& peer, const InterruptScope& interrupt) {
  const llm::ChildResult result = TRY(llm::run_child(
      {.argv = {"/bin/sh", "-c", peer.command}, .environment = {}, .still_wanted = [&] {
         return !interrupt.interrupted();
       }}));
  if (result.exit_code != 0) {
    return Error::io(
        "peer " + peer.name,
        fmt::format("ended with exit code {}: {}", result.exit_code, one_line(result.errors, 200)));
  }
  peer.values.push_back(TRY(last_number(result.output, peer.name)));
  return {};
}

struct Work {
  double tokens = 0;
  std::vector<models::OperationTime> times;
};

class BenchCommand final : public Command {
 public:
  std::string_view name() const override { return "bench"; }
  std::string_view summary() const override {
    return "measure limits, start, prefill, decode, many streams, warm prompts, the engine or "
           "streaming";
  }
  std::string_view example() const override {
    return "  deepinfer bench limits\n"
           "  deepinfer bench decode smollm2 --profile\n"
           "  deepinfer bench decode model --context 65536\n"
           "  deepinfer bench batch model --streams 1,16\n"
           "  deepinfer bench prefix model --context 4096\n"
           "  deepinfer bench stream model --stream-memory 4GB\n"
           "  deepinfer bench prefill model.gguf --peer other='./run_other.sh model.gguf'";
  }
  std::vector<std::string_view> positionals() const override {
    return {"limits|start|prefill|decode|batch|prefix|engine|stream", "MODEL"};
  }

  void declare(OptionTable& options) override {
    options.add("rounds", &rounds_, "samples to take", {.least = 1, .most = 1000});
    options.add("profile", &profile_, "show where the time goes");
    options.add("context", &context_,
                "decode: after this many tokens of arbitrary content that nobody computed; prefix: "
                "tokens of the prompt");
    options.add("streams", &streams_, "batch: sequences that decode together, each its own line");
    options.add("mixed", &mixed_, "engine: only prompts that arrive while streams decode");
    options.add("peer", &peer_,
                "NAME=CMD: run this shell command in every round; the last number it prints is its "
                "tokens/s; may be repeated");
    engine_.declare(options);
    output_.declare(options);
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    const std::string what = arguments.empty() ? "" : arguments[0];
    constexpr std::string_view kKnown[] = {"limits", "start",  "prefill", "decode",
                                           "batch",  "prefix", "engine",  "stream"};
    if (std::ranges::count(kKnown, what) == 0) {
      return Error::invalid(
          "bench", what.empty() ? "nothing to measure was named" : "\"" + what + "\" is not known",
          "limits, start, prefill, decode, batch, prefix, engine or stream");
    }
    if (what == "limits") return bench_limits();
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    if (what == "start") return bench_start(model_of(rest));
    if (what == "stream") return bench_stream(model_of(rest));
    if (what == "batch" || what == "prefix" || what == "engine") {
      return bench_many(what, model_of(rest));
    }
    return bench_model(what, model_of(rest));
  }

 private:
  void print(const Measured& measured) const {
    write_out(output_.json ? measured_json(measured) : measured_text(measured));
  }

  Result<int> bench_limits() {
    InterruptScope interrupt;
    const kernels::Isa isa = TRY(kernels::choose_isa(engine_.isa));
    const std::unique_ptr<ThreadPool> pool = TRY(ThreadPool::create({.threads = engine_.threads}));
    if (!output_.json) write_out(cpu_model() + "\n");
    std::vector<kernels::Limits> rounds;
    MachineLoad seen;
    {
      Progress bar("bench limits", rounds_, Progress::Unit::count, !output_.json && decorates(2));
      const LoadSampler load;
      for (size_t round = 0; round < rounds_; ++round) {
        if (interrupt.interrupted()) return kInterrupted;
        rounds.push_back(TRY(kernels::measure_limits(*pool, isa, kPeakSeconds)));
        bar.update(round + 1);
      }
      seen = load.sample();
    }
    Measured one;
    one.isa = kernels::isa_name(isa);
    one.load = seen.others + seen.stolen;
    const auto print_rate = [&](std::string name, kernels::Rate kernels::Limits::* rate,
                                std::string unit) {
      one.name = std::move(name);
      one.unit = std::move(unit);
      for (double kernels::Rate::* which :
           {&kernels::Rate::one_thread, &kernels::Rate::all_threads}) {
        const bool all = which == &kernels::Rate::all_threads;
        std::vector<double> values;
        for (const kernels::Limits& limits : rounds) values.push_back(limits.*rate.*which / 1e9);
        one.spread = spread_of(values);
        one.threads = all ? rounds.front().threads : 1;
        if (one.spread.most > 0 && (!all || one.threads > 1)) print(one);
      }
    };
    print_rate("dram read", &kernels::Limits::read_bytes, "GB/s");
    print_rate("fp32 fma", &kernels::Limits::f32, "GOP/s");
    print_rate("int8 unsigned", &kernels::Limits::int8_unsigned, "GOP/s");
    print_rate("int8 signed", &kernels::Limits::int8_signed, "GOP/s");
    print_rate("bf16 dot", &kernels::Limits::bf16, "GOP/s");
    return kDone;
  }

  Result<int> bench_model(const std::string& what, const std::string& model) {
    std::vector<Peer> peers;
    for (const std::string& text : peer_) peers.push_back(TRY(parse_peer(text)));
    const std::unique_ptr<llm::Llm> llm = TRY(open_model(model, engine_, output_.json));
    InterruptScope interrupt;
    const kernels::Isa isa = TRY(kernels::choose_isa(engine_.isa));
    const kernels::BandwidthProbe probe = TRY(kernels::BandwidthProbe::create(llm->pool()));
    const Work work = TRY(warm_up(*llm, what));
    std::vector<double> speeds, limits, gigabytes;
    const bool wants_peaks = what == "prefill" || profile_;
    const MachineLimits peaks = wants_peaks ? TRY(machine_limits(*llm, isa)) : MachineLimits();
    MachineLoad seen;
    {
      Progress bar("bench " + what, rounds_, Progress::Unit::count, !output_.json && decorates(2));
      double others = 0;
      for (size_t round = 0; round < rounds_; ++round) {
        gigabytes.push_back(probe.measure(llm->pool(), isa) / 1e9);
        const LoadSampler load;
        speeds.push_back(TRY(measure(*llm, what)));
        const MachineLoad now = load.sample();
        others += (now.others + now.stolen) / static_cast<double>(rounds_);
        for (Peer& peer : peers) TRY(run_peer(peer, interrupt));
        if (interrupt.interrupted()) return kInterrupted;
        bar.update(round + 1);
      }
      seen.others = others;
    }
    Measured result;
    result.name = what;
    result.model = model;
    result.unit = "tokens/s";
    result.spread = spread_of(speeds);
    result.isa = kernels::isa_name(isa);
    result.threads = llm->pool().thread_count();
    result.load = seen.others;
    set_limit(result, *llm, spread_of(gigabytes).median, work, peaks);
    for (const Peer& peer : peers) result.peers.push_back({peer.name, spread_of(peer.values)});
    print(result);
    if (profile_) TRY(print_profile(*llm, what, peaks));
    return kDone;
  }

  // What runs requests through an engine, and gives several lines.
  Result<int> bench_many(const std::string& what, const std::string& model) {
    const std::vector<size_t> counts = TRY(stream_counts());
    const std::unique_ptr<llm::Llm> llm = TRY(open_model(model, engine_, output_.json));
    InterruptScope interrupt;
    const kernels::Isa isa = TRY(kernels::choose_isa(engine_.isa));
    const bool progress = !output_.json && decorates(2);
    Result<std::vector<Measured>> results = std::vector<Measured>{};
    if (what == "batch") {
      const MachineLimits limits = TRY(machine_limits(*llm, isa));
      results = measure_batch(*llm, isa, rounds_, counts, limits, progress, interrupt);
    } else if (what == "prefix") {
      const size_t tokens = context_ == 0 ? kPrefixTokens : context_;
      results = measure_prefix(*llm, isa, rounds_, tokens, progress, interrupt);
    } else {
      const EngineParts parts = mixed_ ? EngineParts::mixed_load : EngineParts::all;
      results =
          measure_engine(*llm, isa, rounds_, parts, engine_.target_step_ms, progress, interrupt);
    }
    if (interrupt.interrupted()) return kInterrupted;
    for (Measured& result : TRY(std::move(results))) {
      result.model = model;
      result.isa = kernels::isa_name(isa);
      result.threads = llm->pool().thread_count();
      print(result);
    }
    return kDone;
  }

  Result<std::vector<size_t>> stream_counts() const {
    std::vector<size_t> counts;
    for (const std::string& text : streams_) {
      const char* at = text.data();
      const char* const end = at + text.size();
      while (at < end) {
        size_t count = 0;
        const auto parsed = std::from_chars(at, end, count);
        const bool apart = parsed.ptr == end || *parsed.ptr == ',';
        if (parsed.ec != std::errc() || !apart || count == 0 || count > engine_.max_rows) {
          return Error::invalid("--streams", "\"" + text + "\", wanted are numbers from 1 to " +
                                                 std::to_string(engine_.max_rows));
        }
        counts.push_back(count);
        at = parsed.ptr == end ? end : parsed.ptr + 1;
      }
    }
    return counts;
  }

  Result<double> measure(llm::Llm& llm, const std::string& what) const {
    if (what == "prefill") return sample_prefill(llm);
    if (context_ != 0) return sample_decode_at(llm.model(), context_, kDecodeTokens);
    return sample_decode(llm);
  }

  Result<int> bench_start(const std::string& model) {
    const std::string path = TRY(resolve_model_path(model, output_.json));
    const llm::LlmOptions options = TRY(engine_.llm_options());
    Measured result = TRY(measure_start(path, options, rounds_));
    result.model = model;
    result.isa = kernels::isa_name(options.model.target.isa);
    print(result);
    return kDone;
  }

  Result<int> bench_stream(const std::string& model) {
    const std::unique_ptr<llm::Llm> llm = TRY(open_model(model, engine_, output_.json));
    InterruptScope interrupt;
    const kernels::Isa isa = TRY(kernels::choose_isa(engine_.isa));
    Measured result =
        TRY(measure_stream(*llm, isa, rounds_, !output_.json && decorates(2), interrupt));
    result.model = model;
    result.isa = kernels::isa_name(isa);
    result.threads = llm->pool().thread_count();
    print(result);
    if (profile_) {
      const auto limits = TRY(machine_limits(*llm, isa));
      TRY(print_profile(*llm, "stream", limits));
    }
    return kDone;
  }

  // The first run touches memory and is not counted; it tells how much work a token is.
  Result<Work> warm_up(llm::Llm& llm, const std::string& what) const {
    llm.model().set_profiling(true);
    TRY(measure(llm, what));
    const std::vector<models::OperationTime> times = llm.model().take_profile();
    llm.model().set_profiling(false);
    const double tokens = static_cast<double>(
        what == "decode" ? kDecodeTokens
                         : std::min<size_t>(kPrefillTokens, llm.model().config().context - 1));
    return Work{tokens, times};
  }

  static Result<MachineLimits> machine_limits(llm::Llm& llm, kernels::Isa isa) {
    const kernels::Limits limits = TRY(kernels::measure_limits(llm.pool(), isa, kPeakSeconds));
    return MachineLimits{.read_bytes = limits.read_bytes.all_threads,
                         .f32 = limits.f32.all_threads,
                         .int8_signed = limits.int8_signed.all_threads,
                         .int8_unsigned = limits.int8_unsigned.all_threads};
  }

  static void set_limit(Measured& result, llm::Llm& llm, double gb_per_s, const Work& work,
                        const MachineLimits& limits) {
    if (result.name == "decode") {
      result.limit = gb_per_s * 1e9 / static_cast<double>(llm.model().weight_bytes_per_step());
      result.limit_name = fmt::format("tokens/s by memory reads at {:.1f} GB/s", gb_per_s);
      return;
    }
    double floor = 0, int8 = 0, all = 0;
    for (const models::OperationTime& time : work.times) {
      floor += floor_seconds(time, limits);
      int8 += time.int8_signed + time.int8_unsigned;
      all += time.operations;
    }
    if (floor <= 0) return;
    result.limit = work.tokens / floor;
    result.limit_name = fmt::format(
        "tokens/s by arithmetic, fp32 fma at {:.0f} GOP/s and {:.0f} % of it int8 at {:.0f}",
        limits.f32 / 1e9, 100 * std::min(1.0, int8 / all), limits.int8_unsigned / 1e9);
  }

  Result<void> print_profile(llm::Llm& llm, const std::string& what,
                             const MachineLimits& limits) const {
    llm.model().set_profiling(true);
    TRY(measure(llm, what));
    const std::vector<models::OperationTime> times = llm.model().take_profile();
    llm.model().set_profiling(false);
    write_out(output_.json ? profile_json(what, times, limits) : profile_text(times, limits));
    return {};
  }

  size_t rounds_ = 5;
  bool profile_ = false;
  size_t context_ = 0;
  std::vector<std::string> streams_ = {"1", "4", "16", "64"};
  bool mixed_ = false;
  std::vector<std::string> peer_;
  EngineSettings engine_;
  OutputSettings output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace deepinfer::apps
