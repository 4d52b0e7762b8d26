// deepinfer pack: a checkpoint to its packed form, which opens as a mapping.

#include <fmt/format.h>

#include "apps/command.h"
#include "apps/interrupt.h"
#include "apps/open_model.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/progress.h"
#include "models/packed_matrices.h"
#include "weights/packed/pack_writer.h"

namespace deepinfer::apps {
namespace {

class Pack final : public Command {
 public:
  std::string_view name() const override { return "pack"; }
  std::string_view summary() const override {
    return "write a model's packed form: opens as a mapping, streams without repacking";
  }
  std::string_view example() const override {
    return "  deepinfer pack smollm2 ./smollm2-packed\n"
           "  deepinfer pack /models/DeepSeek-V4.1-Flash /fast/v41-packed\n"
           "  deepinfer pack --verify ./smollm2-packed";
  }
  std::vector<std::string_view> positionals() const override { return {"MODEL", "OUT"}; }
  void declare(OptionTable& options) override {
    output_.declare(options);
    options.add("threads", &threads_, "compute threads (0: all usable cores)",
                {.least = 0, .most = static_cast<double>(ThreadPool::kMaxThreads)});
    options.add("isa", &isa_, "whose kernels will read it",
                {.choices = {"auto", "avx2", "avx512", "emulated512", "ref"}});
    options.add("verify", &verify_, "compare every checksum of MODEL, which is packed already");
  }
  Result<int> run(const std::vector<std::string>& arguments) override;

 private:
  Result<int> write(const std::string& model, const std::string& out, ThreadPool& pool);
  Result<int> verify(const std::string& directory, ThreadPool& pool);

  OutputSettings output_;
  size_t threads_ = 0;
  std::string isa_ = "auto";
  bool verify_ = false;
};

Result<int> Pack::verify(const std::string& directory, ThreadPool& pool) {
  Progress bar("verifying", 0, Progress::Unit::bytes, !output_.json && decorates(2));
  uint64_t bytes = 0;
  TRY(weights::verify_packed(directory, pool, [&](uint64_t done, uint64_t) {
    bytes = done;
    bar.update(done);
  }));
  if (output_.json) {
    std::string line;
    JsonWriter json(line);
    json.begin_object();
    json.member("verified", true);
    json.member("bytes", bytes);
    json.end_object();
    if (!write_out(line + "\n")) return kFailed;
  } else {
    fmt::print("{}: {} bytes, every checksum agrees\n", directory, bytes);
  }
  return kDone;
}

Result<int> Pack::write(const std::string& model, const std::string& out, ThreadPool& pool) {
  const std::string path = TRY(resolve_model_path(model, output_.json));
  const weights::Checkpoint checkpoint = TRY(weights::Checkpoint::open(path));
  const kernels::Target target = {.isa = TRY(kernels::choose_isa(isa_)),
                                  .numerics = kernels::Numerics::fast};
  const std::vector<ScaledView> matrices = TRY(models::packed_matrices(checkpoint, target));
  Progress bar("packing", checkpoint.weight_bytes(), Progress::Unit::bytes,
               !output_.json && decorates(2));
  const InterruptScope interrupts;
  const weights::PackSummary summary =
      TRY(weights::write_packed(checkpoint, matrices, out, pool,
                                {.target = target,
                                 .progress = [&](uint64_t done, uint64_t) { bar.update(done); },
                                 .cancel = &interrupts.flag()}));
  const uint64_t peak = memory_use().peak_resident_bytes;
  if (output_.json) {
    std::string line;
    JsonWriter json(line);
    json.begin_object();
    json.member("path", out);
    json.member("tensors", summary.tensors);
    json.member("packed_tensors", summary.packed_tensors);
    json.member("resumed_tensors", summary.resumed_tensors);
    json.member("original_bytes", summary.original_bytes);
    json.member("packed_bytes", summary.packed_bytes);
    json.member("isa", kernels::isa_name(target.isa));
    json.member("peak_resident_bytes", peak);
    json.end_object();
    if (!write_out(line + "\n")) return kFailed;
  } else {
    const MemoryUse now = memory_use();
    fmt::print(
        "{}: {} tensors, {} of them packed for {}, {:.1f} MB from {:.1f} MB; peak memory {:.0f} MB "
        "with pages of the original, {:.0f} MB without at the end\n",
        out, summary.tensors, summary.packed_tensors, kernels::isa_name(target.isa),
        static_cast<double>(summary.packed_bytes) / 1e6,
        static_cast<double>(summary.original_bytes) / 1e6, static_cast<double>(peak) / 1e6,
        static_cast<double>(now.anonymous_bytes) / 1e6);
  }
  return kDone;
}

Result<int> Pack::run(const std::vector<std::string>& arguments) {
  const std::unique_ptr<ThreadPool> pool = TRY(ThreadPool::create({.threads = threads_}));
  if (verify_) {
    if (arguments.size() != 1) return Error::invalid("pack --verify", "wants one directory");
    return verify(arguments[0], *pool);
  }
  if (arguments.size() != 2) {
    return Error::invalid("pack", fmt::format("wants MODEL and OUT, {} given", arguments.size()));
  }
  return write(arguments[0], arguments[1], *pool);
}

}  // namespace

std::unique_ptr<Command> make_pack_command() { return std::make_unique<Pack>(); }

}  // namespace deepinfer::apps
