#include "engine/row_reader.h"

#include <algorithm>

namespace deepinfer::engine {

RowReader::RowReader(kernels::Isa isa, speculation::Acceptance acceptance, ThreadPool* pool)
    : isa_(isa),
      acceptance_(acceptance),
      pool_(pool),
      workspaces_(pool == nullptr ? 1 : pool->thread_count()) {}

void RowReader::read_one(RowTask& task, sampling::Workspace& workspace) const {
  const Sequence& sequence = *task.sequence;
  const Request& request = sequence.request();
  if (task.scores) {
    Result<sampling::Sampled> scored =
        sampling::score(isa_, task.logits, sequence.ids[task.position + 1],
                        request.sampling.top_logprobs, workspace);
    if (!scored.ok()) {
      task.error = scored.error();
    } else {
      task.token = std::move(scored).value();
    }
    return;
  }
  // Index of the token among the outputs.
  const size_t output = task.position + 1 - sequence.prompt_size();
  speculation::VerifyRow row;
  row.sample.isa = isa_;
  row.sample.logits = task.logits;
  row.sample.position = task.position;
  row.sample.seen = std::span(sequence.ids).first(task.position + 1);
  if (output < request.min_tokens) row.sample.banned = sequence.record->stops;
  if (output < request.forced_ids.size()) row.sample.forced = request.forced_ids[output];
  row.sample.output_index = output - task.drafts_before;
  row.sample.row_offset = static_cast<uint32_t>(task.drafts_before);
  row.draft = task.draft;
  Result<speculation::Verdict> verdict =
      speculation::verify(acceptance_, row, sequence.sampling, workspace);
  if (!verdict.ok()) {
    task.error = verdict.error();
  } else {
    task.accepted = verdict.value().accepted;
    task.token = std::move(verdict.value().token);
  }
}

void RowReader::read(std::span<RowTask> tasks) {
  if (pool_ == nullptr || tasks.size() < 2) {
    for (RowTask& task : tasks) read_one(task, workspaces_[0]);
    return;
  }
  pool_->run(tasks.size(),
             [&](size_t task, size_t worker) { read_one(tasks[task], workspaces_[worker]); });
}

bool stops_now(const Sequence& sequence) {
  const Request& request = sequence.request();
  const size_t output = sequence.output_size();
  if (output == 0 || output <= request.min_tokens) return false;
  if (std::ranges::find(sequence.record->stops, sequence.ids.back()) !=
      sequence.record->stops.end()) {
    return true;
  }
  const std::span<const int32_t> generated = std::span(sequence.ids).last(output);
  return std::ranges::any_of(request.stop_sequences, [&](const std::vector<int32_t>& stop) {
    return stop.size() <= output && std::ranges::equal(generated.last(stop.size()), stop);
  });
}

}  // namespace deepinfer::engine
