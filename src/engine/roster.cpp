#include "engine/roster.h"

#include <algorithm>
#include <string>
#include <utility>

namespace deepinfer::engine {
namespace {

bool earlier(const std::unique_ptr<Sequence>& left, const std::unique_ptr<Sequence>& right) {
  return left->arrival < right->arrival;
}

std::unique_ptr<RequestRecord> make_record(Request request, const std::vector<uint32_t>& eos) {
  auto record = std::make_unique<RequestRecord>();
  for (const PromptImage& image : request.images) {
    record->spans.push_back({.start = image.start, .count = image.embeddings.size()});
    record->contents.push_back(
        {.start = image.start, .count = image.embeddings.size(), .content = image.content});
  }
  record->stops = request.stop_ids;
  if (!request.ignore_eos) {
    for (uint32_t id : eos) record->stops.push_back(static_cast<int32_t>(id));
  }
  record->request = std::move(request);
  return record;
}

}  // namespace

RequestRecord& Roster::accept(Request request, const std::vector<uint32_t>& eos, size_t context,
                              int64_t now_ns) {
  const uint64_t id = request.id;
  auto made = make_record(std::move(request), eos);
  RequestRecord& record = *made;
  const bool fresh = records_.emplace(id, std::move(made)).second;
  check(fresh, "a request id in use");
  for (uint32_t choice = 0; choice < record.request.choices; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->record = &record;
    sequence->choice = choice;
    sequence->arrival = next_arrival_++;
    sequence->added_ns = now_ns;
    sequence->sampling = record.request.sampling;
    sequence->sampling.seed += choice;
    sequence->ids = record.request.prompt;
    sequence->output_limit =
        std::min(record.request.max_tokens, context - record.request.prompt.size());
    sequence->follows = choice > 0;
    record.choices.push_back(sequence.get());
    waiting_.push_back(std::move(sequence));
  }
  record.live = record.choices.size();
  if (record.request.timeout_ms > 0) ++timed_;
  return record;
}

std::unique_ptr<Sequence> Roster::take(List& list, Sequence& sequence) {
  const auto place = std::lower_bound(list.begin(), list.end(), sequence.arrival,
                                      [](const std::unique_ptr<Sequence>& one, uint64_t arrival) {
                                        return one->arrival < arrival;
                                      });
  check(place != list.end() && place->get() == &sequence, "a sequence in no list");
  std::unique_ptr<Sequence> taken = std::move(*place);
  list.erase(place);
  return taken;
}

void Roster::put(List& list, std::unique_ptr<Sequence> sequence) {
  const auto place = std::upper_bound(list.begin(), list.end(), sequence, earlier);
  list.insert(place, std::move(sequence));
}

void Roster::start(Sequence& sequence) {
  check(sequence.stage == Stage::waiting && sequence.cache.has_value(), "start of a sequence");
  put(running_, take(waiting_, sequence));
  sequence.stage = Stage::prefilling;
}

void Roster::decode(Sequence& sequence) {
  check(sequence.stage == Stage::prefilling, "decoding of a sequence");
  sequence.stage = Stage::decoding;
}

void Roster::join(Sequence& sequence) {
  check(sequence.stage == Stage::waiting && sequence.cache.has_value(), "join of a sequence");
  put(running_, take(waiting_, sequence));
  sequence.follows = false;
  sequence.stage = Stage::decoding;
}

void Roster::preempt(Sequence& sequence) {
  check(sequence.runs(), "preemption of a sequence");
  put(waiting_, take(running_, sequence));
  sequence.stage = Stage::waiting;
  sequence.cache.reset();
  sequence.points.clear();
  sequence.hint = {};
  sequence.shared_tokens = 0;
  ++sequence.preemptions;
}

void Roster::end(Sequence& sequence) {
  check(sequence.stage != Stage::ended, "a sequence ended twice");
  List& list = sequence.runs() ? running_ : waiting_;
  ended_.push_back(take(list, sequence));
  sequence.stage = Stage::ended;
  sequence.cache.reset();
  sequence.resume.reset();
  RequestRecord& record = *sequence.record;
  record.choices[sequence.choice] = nullptr;
  // Without choice 0 the others compute the prompt themselves.
  if (sequence.choice == 0) {
    for (Sequence* other : record.choices) {
      if (other != nullptr) other->follows = false;
    }
  }
  if (--record.live > 0) return;
  if (record.request.timeout_ms > 0) --timed_;
  const auto place = records_.find(record.request.id);
  ended_records_.push_back(std::move(place->second));
  records_.erase(place);
}

void Roster::sweep() {
  ended_.clear();
  ended_records_.clear();
}

RequestRecord* Roster::find(uint64_t request) const {
  const auto found = records_.find(request);
  return found == records_.end() ? nullptr : found->second.get();
}

void Roster::check_invariants() const {
  check(std::is_sorted(running_.begin(), running_.end(), earlier), "running out of order");
  check(std::is_sorted(waiting_.begin(), waiting_.end(), earlier), "waiting out of order");
  size_t live = 0;
  for (const auto& [id, record] : records_) {
    check(record->request.id == id && record->live > 0, "a record without choices");
    size_t choices = 0;
    for (const Sequence* sequence : record->choices) {
      if (sequence == nullptr) continue;
      ++choices;
      check(sequence->record == record.get(), "a choice of another record");
    }
    check(choices == record->live, "choices of a record");
    live += choices;
  }
  check(live == running_.size() + waiting_.size(), "sequences and records");
  for (const auto& sequence : running_) {
    check(sequence->runs() && sequence->cache.has_value(), "running without a cache");
    check(!sequence->follows, "a follower runs");
  }
  for (const auto& sequence : waiting_) {
    check(sequence->stage == Stage::waiting && !sequence->cache.has_value(), "waiting with pages");
  }
}

}  // namespace deepinfer::engine
