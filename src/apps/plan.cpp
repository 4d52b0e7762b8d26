// deepinfer plan: what a model takes and how fast it will run here, before it is loaded or fetched.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/command.h"
#include "apps/config_text.h"
#include "apps/disk_sampler.h"
#include "apps/open_model.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "kernels/limits.h"
#include "models/plan/memory_plan.h"

namespace deepinfer::apps {
namespace {

constexpr double kLimitSeconds = 0.03;
constexpr size_t kDiskBytes = size_t{128} << 20;
// A plain NVMe disk; only where there are no weights to read and nothing was stated.
constexpr double kAssumedDisk = 2e9;

// From here on the load of others is worth a word.
constexpr double kBusy = 0.1;

std::string text_of(uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

// A model, and its weights where they are there.
struct Subject {
  std::string path;
  models::PlannedModel model;
  std::optional<weights::Checkpoint> checkpoint;
};

bool has_weights(const std::string& directory) {
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(directory, failure)) {
    const std::string suffix = entry.path().extension().string();
    if (suffix == ".safetensors" || suffix == ".packed") return true;
  }
  return false;
}

// config.json, a directory that may have nothing else, or a model as every command takes it.
Result<Subject> open_subject(const std::string& name, bool quiet) {
  Subject subject;
  std::error_code failure;
  const bool directory = std::filesystem::is_directory(name, failure);
  const std::string config = directory ? name + "/config.json" : name;
  const bool config_alone = directory
                                ? std::filesystem::exists(config, failure) && !has_weights(name)
                                : name.ends_with(".json");
  if (config_alone) {
    subject.path = config;
    const std::string json = TRY(read_file(config));
    subject.model = TRY(models::planned_from_config(json, config));
    return subject;
  }
  subject.path = TRY(resolve_model_path(name, quiet));
  subject.checkpoint = TRY(weights::Checkpoint::open(subject.path));
  subject.model = TRY(models::planned_from_checkpoint(*subject.checkpoint));
  return subject;
}

uint64_t largest_file(const weights::Checkpoint& checkpoint) {
  uint64_t largest = 0;
  for (const std::string& file : checkpoint.files()) {
    std::error_code failure;
    const uint64_t size = std::filesystem::file_size(file, failure);
    if (!failure) largest = std::max(largest, size);
  }
  return largest;
}

// Where a rate comes from, for people.
struct Measured {
  models::PlanRates rates;
  std::string disk_source;
  double others = 0;  // share of the CPUs that others had meanwhile
};

std::string cache_line(const models::MemoryPlan& plan, const models::PlanRequest& request) {
  std::string text =
      fmt::format("  {:<12}{:.0f} bytes a token", "cache", plan.cache_bytes_per_token);
  if (plan.cache_bytes_per_sequence > 0) {
    text += fmt::format(" and {} a sequence", text_of(plan.cache_bytes_per_sequence));
  }
  return text + fmt::format(": {} for {} of {} tokens\n", text_of(plan.cache_bytes),
                            request.streams == 1 ? "one sequence"
                                                 : fmt::format("{} sequences", request.streams),
                            request.context);
}

std::string memory_text(const models::MemoryPlan& plan, const models::PlanRequest& request) {
  std::string text = fmt::format("memory: {} may be used, everything takes {}\n",
                                 text_of(request.memory), text_of(plan.needed_bytes));
  if (plan.resident) return text + "  all of it stays in memory\n";
  if (plan.expert_bytes == 0) {
    return text + "  does not fit, and there are no experts to leave on disk\n";
  }
  if (!plan.runs) {
    return text + fmt::format("  does not run: the least is {}\n", text_of(plan.floor_bytes));
  }
  text += fmt::format(
      "  {} stay in memory, {} of {} experts of {} too; the others are read when "
      "chosen (the least is {})\n",
      text_of(plan.needed_bytes - plan.streamable_bytes), plan.expert_slots, plan.expert_count,
      text_of(plan.expert_bytes), text_of(plan.floor_bytes));
  if (plan.stream_bytes > 0) {
    text += fmt::format("  run it with --stream-memory {}\n", plan.stream_bytes);
  }
  if (plan.tables_on_disk) text += "  Engram tables stay on disk and are read by the row\n";
  return text;
}

std::string step_text(std::string_view name, double rate, const models::StepTime& time,
                      const std::string& what) {
  return fmt::format(
      "{}: {:.3g} tokens/s {}, bound by {} (memory {:.3g} s, disk {:.3g} s, "
      "arithmetic {:.3g} s)\n",
      name, rate, what, models::bound_name(time.bound()), time.memory_seconds, time.disk_seconds,
      time.arithmetic_seconds);
}

std::string plain_text(const Subject& subject, const models::MemoryPlan& plan,
                       const models::PlanRequest& request, const Measured& measured) {
  std::string text = subject.path + "\n" + config_text(subject.model.config);
  text += fmt::format("  {:<12}{} tensors, {} ({} bytes)\n", "weights", plan.tensors,
                      text_of(plan.weight_bytes), plan.weight_bytes);
  text += parts_text(plan.parts) + cache_line(plan, request);
  text += fmt::format("  {:<12}about {}\n", "workspace", text_of(plan.workspace_bytes));
  text += memory_text(plan, request);
  const models::PlanRates& rates = measured.rates;
  text += fmt::format(
      "limits: memory {:.1f} GB/s, products {:.0f} GFLOP/s and {:.0f} GOP/s int8, "
      "measured; disk {:.2f} GB/s, {}\n",
      rates.memory_read / 1e9, rates.float_products / 1e9, rates.int8_products / 1e9,
      rates.disk_read / 1e9, measured.disk_source);
  if (measured.others > kBusy) {
    text +=
        fmt::format("  (others had {:.0f} % of the CPUs meanwhile: an idle machine does better)\n",
                    100 * measured.others);
  }
  if (!plan.runs && !plan.resident) return text;
  std::string reads = fmt::format("({} a token", text_of(plan.active_bytes));
  if (plan.experts_per_token > 0) {
    reads += fmt::format(", {} of it experts, {:.0f} % of them in memory",
                         text_of(plan.experts_per_token * plan.expert_bytes), 100 * plan.hit_rate);
  }
  text += step_text("decode", plan.decode_tokens_per_second, plan.decode, reads + ")");
  text += step_text("prefill", plan.prefill_tokens_per_second, plan.prefill,
                    fmt::format("in chunks of {}", std::min(request.max_rows, request.context)));
  return text + fmt::format(
                    "assumed: every expert equally likely; {:.0f} % of the memory rate, "
                    "{:.0f} % of the products' peak\n",
                    100 * models::kMemoryShare, 100 * models::kProductShare);
}

void write_step(JsonWriter& json, std::string_view key, double rate, const models::StepTime& time) {
  json.key(key);
  json.begin_object();
  json.member("tokens_per_second", rate);
  json.member("bound", models::bound_name(time.bound()));
  json.member("memory_seconds", time.memory_seconds);
  json.member("disk_seconds", time.disk_seconds);
  json.member("arithmetic_seconds", time.arithmetic_seconds);
  json.end_object();
}

void write_rates(JsonWriter& json, const Measured& measured) {
  json.key("limits");
  json.begin_object();
  json.member("memory_bytes_per_second", measured.rates.memory_read);
  json.member("disk_bytes_per_second", measured.rates.disk_read);
  json.member("disk_source", measured.disk_source);
  json.member("others_load", measured.others);
  json.member("float_operations_per_second", measured.rates.float_products);
  json.member("int8_operations_per_second", measured.rates.int8_products);
  json.end_object();
}

std::string json_text(const Subject& subject, const models::MemoryPlan& plan,
                      const models::PlanRequest& request, const Measured& measured) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.member("path", subject.path);
  json.key("config");
  write_config(json, subject.model.config);
  json.member("tensors", plan.tensors);
  json.member("weight_bytes", plan.weight_bytes);
  json.key("parts");
  write_parts(json, plan.parts);
  json.member("context", request.context);
  json.member("streams", request.streams);
  json.member("memory_bytes", request.memory);
  json.member("cache_bytes_per_token", plan.cache_bytes_per_token);
  json.member("cache_bytes_per_sequence", plan.cache_bytes_per_sequence);
  json.member("cache_bytes", plan.cache_bytes);
  json.member("workspace_bytes", plan.workspace_bytes);
  json.member("needed_bytes", plan.needed_bytes);
  json.member("floor_bytes", plan.floor_bytes);
  json.member("streamable_bytes", plan.streamable_bytes);
  json.member("resident", plan.resident);
  json.member("runs", plan.runs || plan.resident);
  json.member("tables_on_disk", plan.tables_on_disk);
  json.member("expert_bytes", plan.expert_bytes);
  json.member("experts", plan.expert_count);
  json.member("experts_per_token", plan.experts_per_token);
  json.member("expert_slots", plan.expert_slots);
  json.member("stream_memory_bytes", plan.stream_bytes);
  json.member("hit_rate", plan.hit_rate);
  json.member("active_bytes_per_token", plan.active_bytes);
  write_rates(json, measured);
  write_step(json, "decode", plan.decode_tokens_per_second, plan.decode);
  write_step(json, "prefill", plan.prefill_tokens_per_second, plan.prefill);
  json.end_object();
  return text + "\n";
}

class PlanCommand final : public Command {
 public:
  std::string_view name() const override { return "plan"; }
  std::string_view summary() const override {
    return "what a model takes and how fast it will run here";
  }
  std::string_view example() const override {
    return "  deepinfer plan DeepSeek-V4-Flash/config.json --memory 64GB\n"
           "  deepinfer plan /models/DeepSeek-V4.1-Flash --context 65536 --streams 4";
  }
  std::vector<std::string_view> positionals() const override { return {"MODEL"}; }
  void declare(OptionTable& options) override {
    output_.declare(options);
    options.add("context", &context_, "tokens of each sequence (0: 8192, or the model's limit)");
    options.add("streams", &streams_, "sequences at once", {.least = 1, .most = 65536});
    options.add("memory", &memory_, "bytes that may be used (0: what this process may)",
                {.bytes = true});
    options.add("disk", &disk_, "bytes per second of the disk (0: measured, or assumed)",
                {.bytes = true});
    options.add("max-rows", &max_rows_, "rows of a step", {.least = 1, .most = 65536});
    options.add("kv", &kv_, "cache rows", {.choices = {"official", "f32"}});
    options.add("threads", &threads_, "compute threads (0: all usable cores)",
                {.least = 0, .most = static_cast<double>(ThreadPool::kMaxThreads)});
    options.add("isa", &isa_, "instruction set",
                {.choices = {"auto", "avx2", "avx512", "emulated512", "ref"}});
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    const Subject subject = TRY(open_subject(model_of(arguments), output_.json));
    const uint64_t most = models::base_config(subject.model.config).context;
    if (context_ > most) {
      return Error::invalid("--context",
                            fmt::format("is {}, the model's limit is {}", context_, most));
    }
    const Measured measured = TRY(measure(subject));
    const models::PlanRequest request = {
        .context = models::planned_context(context_, most),
        .streams = streams_,
        .memory = memory_ > 0 ? memory_ : models::planned_memory(usable_memory_bytes()),
        .kv = kv_ == "f32" ? models::KvMode::f32 : models::KvMode::official,
        .max_rows = max_rows_,
        .rates = measured.rates};
    const cache::CacheLayout cache = TRY(models::planned_cache(subject.model.config, request.kv));
    const models::MemoryPlan plan = models::plan_memory(subject.model, cache, request);
    write_out(output_.json ? json_text(subject, plan, request, measured)
                           : plain_text(subject, plan, request, measured));
    return kDone;
  }

 private:
  Result<Measured> measure(const Subject& subject) const {
    const std::unique_ptr<ThreadPool> pool = TRY(ThreadPool::create({.threads = threads_}));
    const kernels::Isa isa = TRY(kernels::choose_isa(isa_));
    const LoadSampler load;
    const kernels::Limits limits = TRY(kernels::measure_limits(*pool, isa, kLimitSeconds));
    Measured measured;
    const MachineLoad seen = load.sample();
    measured.others = seen.others + seen.stolen;
    measured.rates.memory_read = limits.read_bytes.all_threads;
    measured.rates.float_products = limits.f32.all_threads;
    measured.rates.int8_products = std::max(limits.int8_signed.all_threads, limits.f32.all_threads);
    if (disk_ > 0) {
      measured.rates.disk_read = static_cast<double>(disk_);
      measured.disk_source = "stated";
    } else if (subject.checkpoint && largest_file(*subject.checkpoint) >= kDiskBytes) {
      DiskSampler disk = TRY(DiskSampler::create(*subject.checkpoint));
      measured.rates.disk_read = TRY(disk.sample());
      measured.disk_source = "measured on the weights";
    } else {
      measured.rates.disk_read = kAssumedDisk;
      measured.disk_source = "assumed (--disk states another)";
    }
    return measured;
  }

  OutputSettings output_;
  size_t context_ = 0;
  size_t streams_ = 1;
  size_t memory_ = 0;
  size_t disk_ = 0;
  size_t max_rows_ = 512;
  std::string kv_ = "official";
  size_t threads_ = 0;
  std::string isa_ = "auto";
};

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(); }

}  // namespace deepinfer::apps
