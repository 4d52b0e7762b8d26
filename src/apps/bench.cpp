// deepinfer bench: measures one thing, beside this machine's limit and, if asked, a peer.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/bench_report.h"
#include "apps/bench_samples.h"
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
// About one expert of V4-Flash, and enough of them that a disk shows its speed.
constexpr size_t kDiskPiece = size_t{4} << 20;
constexpr size_t kDiskBytes = size_t{256} << 20;

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

// The instruction sequence of most products: on fp32 activations, or on int8 activations with
// weights whose codes are signed (Q8_0) or unsigned (4 bits).
enum class Products { fp32, int8_signed, int8_unsigned };

std::string_view products_name(Products products) {
  switch (products) {
    case Products::fp32:
      return "fp32 fma";
    case Products::int8_signed:
      return "int8 signed products";
    case Products::int8_unsigned:
      return "int8 unsigned products";
  }
  return "";
}

Products products_of(const std::vector<kernels::Choice>& choices) {
  size_t int8 = 0, eight_bits = 0, all = 0;
  for (const kernels::Choice& choice : choices) {
    if (!choice.operation.starts_with("matmul")) continue;
    ++all;
    int8 += choice.chosen.find("int8") != std::string::npos;
    eight_bits += choice.operation.find("Q8_0") != std::string::npos;
  }
  if (2 * int8 <= all) return Products::fp32;
  return 2 * eight_bits > all ? Products::int8_signed : Products::int8_unsigned;
}

struct Work {
  double operations_per_token = 0;
  Products products = Products::fp32;
};

class BenchCommand final : public Command {
 public:
  std::string_view name() const override { return "bench"; }
  std::string_view summary() const override {
    return "measure limits, start, prefill, decode or streaming";
  }
  std::string_view example() const override {
    return "  deepinfer bench limits\n"
           "  deepinfer bench decode smollm2 --profile\n"
           "  deepinfer bench decode model --context 65536\n"
           "  deepinfer bench stream model --stream-memory 4GB\n"
           "  deepinfer bench prefill model.gguf --peer other='./run_other.sh model.gguf'";
  }
  std::vector<std::string_view> positionals() const override {
    return {"limits|start|prefill|decode|stream", "MODEL"};
  }

  void declare(OptionTable& options) override {
    options.add("rounds", &rounds_, "samples to take", {.least = 1, .most = 1000});
    options.add("profile", &profile_, "show where the time goes");
    options.add("context", &context_,
                "decode: after this many tokens of arbitrary content that nobody computed");
    options.add("peer", &peer_,
                "NAME=CMD: run this shell command in every round; the last number it prints is its "
                "tokens/s; may be repeated");
    engine_.declare(options);
    output_.declare(options);
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    const std::string what = arguments.empty() ? "" : arguments[0];
    constexpr std::string_view kKnown[] = {"limits", "start", "prefill", "decode", "stream"};
    if (std::ranges::count(kKnown, what) == 0) {
      return Error::invalid(
          "bench", what.empty() ? "nothing to measure was named" : "\"" + what + "\" is not known",
          "limits, start, prefill, decode or stream");
    }
    if (what == "limits") return bench_limits();
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    if (what == "start") return bench_start(model_of(rest));
    if (what == "stream") return bench_stream(model_of(rest));
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
    const double peak = what == "prefill" ? TRY(peak_of(*llm, isa, work)) : 0;
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
    set_limit(result, *llm, spread_of(gigabytes).median, work, peak);
    for (const Peer& peer : peers) result.peers.push_back({peer.name, spread_of(peer.values)});
    print(result);
    if (profile_) TRY(print_profile(*llm, what));
    return kDone;
  }

  Result<double> measure(llm::Llm& llm, const std::string& what) const {
    if (what == "prefill") return sample_prefill(llm);
    if (context_ != 0) return sample_decode_at(llm.model(), context_, kDecodeTokens);
    return sample_decode(llm);
  }

  // Opening from a cold page cache is the disk's business; here the files may be cached, and the
  // first sample may not be.
  Result<int> bench_start(const std::string& model) {
    const std::string path = TRY(resolve_model_path(model, output_.json));
    const llm::LlmOptions options = TRY(engine_.llm_options());
    std::vector<double> seconds;
    StartSample last;
    const LoadSampler load;
    for (size_t round = 0; round < rounds_; ++round) {
      last = TRY(sample_start(path, options));
      seconds.push_back(last.seconds);
    }
    Measured result;
    result.name = "start";
    result.model = model;
    result.unit = "s";
    result.spread = spread_of(seconds);
    result.limit = static_cast<double>(last.file_bytes) / 10e9;
    result.limit_name = fmt::format(
        "s: one second for 10 GB; {:.1f} MB of weights, {:.1f} MB "
        "resident, {:.1f} MB stated",
        static_cast<double>(last.file_bytes) / 1e6, static_cast<double>(last.resident_bytes) / 1e6,
        static_cast<double>(last.stated_bytes) / 1e6);
    result.isa = kernels::isa_name(options.model.target.isa);
    result.threads = options.pool.threads;
    const MachineLoad seen = load.sample();
    result.load = seen.others + seen.stolen;
    print(result);
    return kDone;
  }

  // The limit is the slower of two floors, each measured beside every sample: the weights of a
  // token read from memory, and what the misses read from the disk.
  Result<int> bench_stream(const std::string& model) {
    const std::unique_ptr<llm::Llm> llm = TRY(open_model(model, engine_, output_.json));
    InterruptScope interrupt;
    const kernels::Isa isa = TRY(kernels::choose_isa(engine_.isa));
    const kernels::BandwidthProbe probe = TRY(kernels::BandwidthProbe::create(llm->pool()));
    TRY(sample_stream(*llm));
    std::vector<double> speeds, limits;
    StreamSample last;
    double disk = 0, memory = 0, others = 0;
    for (size_t round = 0; round < rounds_; ++round) {
      if (interrupt.interrupted()) return kInterrupted;
      memory = probe.measure(llm->pool(), isa);
      disk = TRY(sample_disk(llm->checkpoint(), kDiskPiece, kDiskBytes, round + 1));
      const LoadSampler load;
      last = TRY(sample_stream(*llm));
      const MachineLoad now = load.sample();
      others += (now.others + now.stolen) / static_cast<double>(rounds_);
      speeds.push_back(last.tokens_per_second);
      const double floor =
          std::max(static_cast<double>(llm->model().weight_bytes_per_step()) / memory,
                   last.bytes_per_token / disk);
      limits.push_back(1 / floor);
    }
    Measured result;
    result.name = "stream";
    result.model = model;
    result.unit = "tokens/s";
    result.spread = spread_of(speeds);
    result.limit = spread_of(limits).median;
    result.limit_name = fmt::format(
        "tokens/s by the slower floor; {:.1f} % hits, {:.1f} MB a token from a disk of "
        "{:.2f} GB/s, memory {:.1f} GB/s, {:.0f} % of the time waited for the disk",
        100 * last.hit_rate, last.bytes_per_token / 1e6, disk / 1e9, memory / 1e9,
        100 * last.wait_share);
    result.isa = kernels::isa_name(isa);
    result.threads = llm->pool().thread_count();
    result.load = others;
    print(result);
    if (profile_) TRY(print_profile(*llm, "stream"));
    return kDone;
  }

  // The first run touches memory and is not counted; it tells how much work a token is.
  Result<Work> warm_up(llm::Llm& llm, const std::string& what) const {
    llm.model().set_profiling(true);
    TRY(measure(llm, what));
    const std::vector<models::OperationTime> times = llm.model().take_profile();
    llm.model().set_profiling(false);
    Work work;
    const double tokens = static_cast<double>(
        what == "decode" ? kDecodeTokens
                         : std::min<size_t>(kPrefillTokens, llm.model().config().context - 1));
    for (const models::OperationTime& time : times)
      work.operations_per_token += time.operations / tokens;
    work.products = products_of(llm.model().choices());
    return work;
  }

  // GOP/s of the instruction sequence that most products use.
  static Result<double> peak_of(llm::Llm& llm, kernels::Isa isa, const Work& work) {
    const kernels::Limits limits = TRY(kernels::measure_limits(llm.pool(), isa, kPeakSeconds));
    double peak = limits.f32.all_threads;
    if (work.products == Products::int8_signed) peak = limits.int8_signed.all_threads;
    if (work.products == Products::int8_unsigned) peak = limits.int8_unsigned.all_threads;
    return peak / 1e9;
  }

  static void set_limit(Measured& result, llm::Llm& llm, double gb_per_s, const Work& work,
                        double peak) {
    if (result.name == "decode") {
      result.limit = gb_per_s * 1e9 / static_cast<double>(llm.model().weight_bytes_per_step());
      result.limit_name = fmt::format("tokens/s by memory reads at {:.1f} GB/s", gb_per_s);
    } else if (work.operations_per_token > 0) {
      result.limit = peak * 1e9 / work.operations_per_token;
      result.limit_name =
          fmt::format("tokens/s by {} at {:.0f} GOP/s", products_name(work.products), peak);
    }
  }

  Result<void> print_profile(llm::Llm& llm, const std::string& what) const {
    llm.model().set_profiling(true);
    TRY(measure(llm, what));
    const std::vector<models::OperationTime> times = llm.model().take_profile();
    llm.model().set_profiling(false);
    write_out(output_.json ? profile_json(what, times) : profile_text(times));
    return {};
  }

  size_t rounds_ = 5;
  bool profile_ = false;
  size_t context_ = 0;
  std::vector<std::string> peer_;
  EngineSettings engine_;
  OutputSettings output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace deepinfer::apps
