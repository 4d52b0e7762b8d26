// deepinfer selftest: every path to the logits must agree.

#include <fmt/format.h>

#include <algorithm>

#include "apps/command.h"
#include "apps/interrupt.h"
#include "apps/open_model.h"
#include "apps/selftest_engine.h"
#include "apps/selftest_paths.h"
#include "apps/selftest_storage.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/json_writer.h"

namespace deepinfer::apps {
namespace {

using kernels::Isa;
using kernels::Numerics;

constexpr size_t kPromptIds = 260;   // more than two pages, and every chunk size below
constexpr size_t kReferenceIds = 5;  // the scalar bodies are slow
constexpr size_t kChunks[] = {1, 2, 3, 4, 127, 128, 129, 130, 255, 256, 257};
constexpr size_t kChunksElsewhere[] = {1, 3, 129};
constexpr size_t kElsewhereIds = 136;  // of the sets that are not the best: one page and some

// Largest difference of one logit between instruction sets, in parts of the largest logit: sums in
// fp32 differ in their last bits (exact). In fast mode such a bit can move an activation to the
// next int8 step, which is 1/127 of its block's largest.
constexpr double kExactTolerance = 1e-4;
constexpr double kFastTolerance = 0.1;
// fast and faithful against exact: rounded activations in every layer.
constexpr double kNumericsTolerance = 0.1;
// Where the model chooses experts or cache entries: positions that must keep a tolerance, and the
// one between numerics. In models of a few entries and experts most positions have a choice that
// flips once cache rows and index keys are rounded (V4: to 8 and 4 bits).
constexpr double kChoosingShare = 0.5;
constexpr double kChoosingTolerance = 0.3;

bool chooses(weights::Family family) {
  return family != weights::Family::llama && family != weights::Family::qwen2 &&
         family != weights::Family::qwen3;
}
// Whether `faithful` rounds what `exact` does not.
bool rounds_faithfully(weights::Family family) {
  return family == weights::Family::deepseek_v4 || family == weights::Family::deepseek_v41;
}

constexpr std::string_view kText =
    "The harbour lay quiet under a thin mist. Two boats had come in before dawn, and their crews "
    "were still unloading: 14 crates of mackerel, 9 of squid, a single tuna of 212 kg. \"Sold,\" "
    "said the auctioneer, before anyone else had raised a hand. In the office above the quay a "
    "clerk typed numbers into a table; for (int i = 0; i < n; ++i) total += weight[i] * price[i]; "
    "was all the program ever did. By noon the sun had burned the mist away, the gulls had "
    "gone, and the harbour smelled of salt, diesel and coffee. ";

class SelftestCommand final : public Command {
 public:
  std::string_view name() const override { return "selftest"; }
  std::string_view summary() const override { return "check that every path agrees"; }
  std::string_view example() const override { return "  deepinfer selftest smollm2"; }
  std::vector<std::string_view> positionals() const override { return {"MODEL"}; }
  void declare(OptionTable& options) override {
    options.add("isa", &isa_, "only this instruction set; auto: all that this machine has",
                {.choices = {"auto", "avx2", "avx512", "emulated512", "ref"}});
    output_.declare(options);
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    const std::string path = TRY(resolve_model_path(model_of(arguments), output_.json));
    const weights::Checkpoint checkpoint = TRY(weights::Checkpoint::open(path));
    family_ = TRY(weights::read_family(checkpoint));
    PathRunner runner(checkpoint, TRY(prompt_ids(checkpoint)));
    std::vector<Isa> isas;
    for (std::string_view name : {"avx512", "emulated512", "avx2", "ref"}) {
      const Result<Isa> isa = kernels::choose_isa(name);
      if (isa.ok() && (isa_ == "auto" || isa_ == name)) isas.push_back(isa.value());
    }
    if (isas.empty()) TRY(kernels::choose_isa(isa_));
    for (Numerics numerics : {Numerics::fast, Numerics::exact})
      TRY(compare_isas(runner, isas, numerics));
    TRY(compare_numerics(runner, isas.front()));
    TRY(compare_engine(runner, isas.front()));
    TRY(compare_storage(runner, checkpoint, isas.front()));
    print_summary();
    return agree_ == paths_ ? kDone : kFailed;
  }

 private:
  // The text's ids where there is a tokenizer, ids spread over the vocabulary where there is none.
  static Result<std::vector<int32_t>> prompt_ids(const weights::Checkpoint& checkpoint) {
    const weights::ModelConfig config = TRY(weights::read_model_config(checkpoint));
    std::vector<int32_t> ids;
    const Result<text::Tokenizer> tokenizer = llm::open_tokenizer(checkpoint);
    if (tokenizer.ok()) {
      while (ids.size() < kPromptIds)
        TRY(tokenizer.value().append(kText, text::SpecialTokens::plain, ids));
    }
    for (uint64_t i = ids.size(); i < kPromptIds; ++i)
      ids.push_back(static_cast<int32_t>((i * 2'654'435'761u + 17) % config.vocab));
    ids.resize(std::min<size_t>(kPromptIds, config.context));
    return ids;
  }

  static double largest(const Logits& logits) {
    double most = 0;
    for (float value : logits.values) most = std::max(most, std::abs(static_cast<double>(value)));
    return most;
  }

  Tolerance within(double part, const Logits& logits) const {
    return {part * largest(logits), chooses(family_) ? kChoosingShare : 1.0};
  }

  double numerics_part() const {
    return chooses(family_) ? kChoosingTolerance : kNumericsTolerance;
  }

  void report(const Comparison& seen) {
    ++paths_;
    agree_ += seen.equal;
    if (output_.json) {
      std::string line;
      JsonWriter json(line);
      json.begin_object();
      json.member("path", seen.path);
      json.member("against", seen.against);
      json.member("equal", seen.equal);
      json.member("max_difference", seen.max_difference);
      if (seen.tolerance.difference > 0) {
        json.member("tolerance", seen.tolerance.difference);
        json.member("share", seen.tolerance.share);
      }
      json.end_object();
      write_out(line + "\n");
      return;
    }
    const std::string how =
        seen.tolerance.difference > 0 ? fmt::format("{} difference {:.3g}, tolerance {:.3g}",
                                                    seen.tolerance.share < 1.0 ? "median" : "max",
                                                    seen.max_difference, seen.tolerance.difference)
        : seen.equal                  ? "equal bits"
                     : fmt::format("bits differ, max difference {:.3g}", seen.max_difference);
    write_out(fmt::format("{} {:<36} against {:<28} {}\n", seen.equal ? "ok  " : "FAIL", seen.path,
                          seen.against, how));
  }

  Result<void> compare_isas(PathRunner& runner, const std::vector<Isa>& isas, Numerics numerics) {
    Logits first;
    Logits wide;  // of avx512, which emulated512 must repeat
    std::string first_name;
    for (Isa isa : isas) {
      const Variant variant{{isa, numerics}, 1};
      const size_t most = isa == Isa::ref       ? kReferenceIds
                          : isa == isas.front() ? kPromptIds
                                                : kElsewhereIds;
      const size_t count = std::min(most, runner.ids().size());
      const Logits base = TRY(runner.run(variant, count, count));
      const std::string name = variant_name(variant);
      if (isa == Isa::emulated512 && wide.vocab != 0)
        report(compare_logits("isa " + name, base, first_name, wide, {}));
      if (first.vocab == 0) {
        first = base;
        first_name = name;
      } else if (isa != Isa::emulated512 || wide.vocab == 0) {
        const double part = numerics == Numerics::exact ? kExactTolerance : kFastTolerance;
        report(compare_logits("isa " + name, base, first_name, first, within(part, first)));
      }
      if (isa == Isa::avx512) wide = base;
      TRY(compare_within(runner, variant, base, isa == isas.front()));
    }
    return {};
  }

  // Chunks, batches and threads of one instruction set and mode: bits.
  Result<void> compare_within(PathRunner& runner, Variant variant, const Logits& base, bool all) {
    const std::string name = variant_name(variant);
    const size_t count = base.positions();
    const auto check_one = [&](const std::string& what, Result<Logits> seen) -> Result<void> {
      const Logits logits = TRY(std::move(seen));
      report(compare_logits(name + " " + what, logits, "whole, 1 thread", base, {}));
      return {};
    };
    const std::span<const size_t> chunks =
        all ? std::span<const size_t>(kChunks) : std::span<const size_t>(kChunksElsewhere);
    for (size_t chunk : chunks) {
      // Steps of a few rows cost most; what matters is that they cross a page.
      const size_t some = chunk < 100 ? std::min(count, kElsewhereIds) : count;
      if (chunk < some)
        TRY(check_one(fmt::format("chunk {}", chunk), runner.run(variant, some, chunk)));
    }
    TRY(check_one("batch first of 3",
                  runner.run_among_others(variant, count, PathRunner::Place::first)));
    TRY(check_one("batch last of 3",
                  runner.run_among_others(variant, count, PathRunner::Place::last)));
    for (size_t threads : {2, 3}) {
      if (threads == 3 && !all) continue;
      variant.threads = threads;
      TRY(check_one(fmt::format("threads {}", threads), runner.run(variant, count, count)));
      TRY(check_one(fmt::format("threads {} chunk 3", threads),
                    runner.run(variant, std::min<size_t>(count, 40), 3)));
    }
    return {};
  }

  Result<void> compare_numerics(PathRunner& runner, Isa isa) {
    const size_t count =
        isa == Isa::ref ? std::min(kReferenceIds, runner.ids().size()) : runner.ids().size();
    const Logits exact = TRY(runner.run({{isa, Numerics::exact}, 1}, count, count));
    const Logits fast = TRY(runner.run({{isa, Numerics::fast}, 1}, count, count));
    report(compare_logits("numerics fast", fast, "numerics exact", exact,
                          within(numerics_part(), exact)));
    const Logits faithful = TRY(runner.run({{isa, Numerics::faithful}, 1}, count, count));
    report(
        compare_logits("numerics faithful", faithful, "numerics exact", exact,
                       rounds_faithfully(family_) ? within(numerics_part(), exact) : Tolerance{}));
    return {};
  }

  // The engine's ways to the same tokens, with all cores: bits.
  Result<void> compare_engine(PathRunner& runner, Isa isa) {
    if (isa == Isa::ref) return {};  // the scalar bodies are slow
    models::Model* model =
        TRY(runner.open({{isa, Numerics::fast}, std::min<size_t>(usable_cpu_count(), 4)}));
    EnginePaths paths(*model, runner.pool(), isa, runner.ids(),
                      [this](const Comparison& seen) { report(seen); });
    return paths.run_all();
  }

  // Experts from disk at several budgets, and the packed form: the bits of what was loaded.
  Result<void> compare_storage(PathRunner& runner, const weights::Checkpoint& checkpoint, Isa isa) {
    const size_t most = isa == Isa::ref ? kReferenceIds : kElsewhereIds;
    const size_t count = std::min(most, runner.ids().size());
    Variant variant{{isa, Numerics::fast}, 1};
    const Logits base = TRY(runner.run(variant, count, count));
    const std::vector<uint64_t> budgets = TRY(stream_budgets(checkpoint));
    const auto compare = [&](PathRunner& from, const std::string& name) -> Result<void> {
      for (const uint64_t budget : budgets) {
        variant.stream_bytes = budget;
        report(compare_logits(fmt::format("{} {} MB chunk 33", name, budget / 1'000'000),
                              TRY(from.run(variant, count, 33)), "resident", base, {}));
      }
      variant.stream_bytes = 0;
      return {};
    };
    TRY(compare(runner, "stream"));
    if (is_packed(checkpoint)) return {};
    if (checkpoint.weight_bytes() > PackedCopy::kMostBytes) {
      if (!output_.json) write_out("pack: left out, a copy of these weights takes too much disk\n");
      return {};
    }
    const PackedCopy packed = TRY(PackedCopy::create(checkpoint, isa));
    PathRunner from(packed.checkpoint(), runner.ids());
    report(compare_logits("pack", TRY(from.run(variant, count, count)), "original", base, {}));
    return compare(from, "pack stream");
  }

  void print_summary() const {
    if (!output_.json) {
      write_out(agree_ == paths_
                    ? fmt::format("all {} paths agree\n", paths_)
                    : fmt::format("{} of {} paths disagree\n", paths_ - agree_, paths_));
      return;
    }
    std::string line;
    JsonWriter json(line);
    json.begin_object();
    json.member("paths", paths_);
    json.member("agree", agree_);
    json.end_object();
    write_out(line + "\n");
  }

  weights::Family family_ = weights::Family::llama;
  std::string isa_ = "auto";
  OutputSettings output_;
  size_t paths_ = 0;
  size_t agree_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_selftest_command() { return std::make_unique<SelftestCommand>(); }

}  // namespace deepinfer::apps
