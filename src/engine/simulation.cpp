#include "engine/simulation.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace deepinfer::engine {
namespace {

// Steps after the last arrival within which everything must have ended.
constexpr size_t kMostStepsAfter = 30'000;
constexpr int64_t kIdleNs = 3'000'000;
constexpr char kMark[] = "simulation: ";

class Simulation {
 public:
  explicit Simulation(const Scenario& scenario)
      : scenario_(scenario), model_(scenario.family, scenario.context, clock_) {}

  SimulationResult run(const std::function<void(size_t)>& at_step) {
    auto created = Engine::create(model_, scenario_.options, clock_);
    if (!created.ok()) {
      failure_ = "create: " + created.error().text();
      return {.failure = failure_, .step = 0, .seen = {}};
    }
    engine_ = std::move(created).value();
    ledger_ = std::make_unique<Ledger>(engine_->limits().context, clock_);
    for (; step_ < scenario_.steps && ok(); ++step_) {
      if (at_step) at_step(step_);
      happenings();
      step();
    }
    const size_t most = step_ + kMostStepsAfter;
    for (; engine_->busy() && step_ < most && ok(); ++step_) step();
    if (ok()) end();
    return {.failure = failure(), .step = step_, .seen = ledger_->seen()};
  }

 private:
  bool ok() const { return failure_.empty() && ledger_->failure().empty(); }
  std::string failure() const { return failure_.empty() ? ledger_->failure() : failure_; }

  void happenings() {
    for (; arrival_ < scenario_.arrivals.size() && scenario_.arrivals[arrival_].step <= step_;
         ++arrival_) {
      arrive(scenario_.arrivals[arrival_]);
    }
    for (; cancellation_ < scenario_.cancellations.size() &&
           scenario_.cancellations[cancellation_].step <= step_;
         ++cancellation_) {
      const uint64_t id = scenario_.cancellations[cancellation_].request;
      const bool known = ledger_->lives(id);
      ledger_->cancelled(id, step_);
      // One whose end waits to be delivered is known no more.
      if (engine_->cancel(id).ok() && !known) failure_ = "cancelled one that does not live";
    }
    for (; fault_ < scenario_.faults.size() && scenario_.faults[fault_].step <= step_; ++fault_) {
      model_.fail_next(scenario_.faults[fault_].sequences);
    }
  }

  void arrive(const Arrival& arrival) {
    Request request = arrival.request;
    if (arrival.follows) {
      std::vector<int32_t> text = ledger_->text_of(*arrival.follows);
      text.resize(std::min(text.size(), arrival.follow_tokens));
      request.prompt.insert(request.prompt.begin(), text.begin(), text.end());
    }
    const size_t context = engine_->limits().context;
    if (!arrival.invalid && request.images.empty() && request.prompt.size() > context) {
      request.prompt.erase(request.prompt.begin(),
                           request.prompt.end() - static_cast<std::ptrdiff_t>(context));
      request.resume_points.clear();
    }
    const bool invalid = arrival.invalid || request.prompt.size() > context;
    const Result<void> added = engine_->add(request);
    if (added.ok() && !invalid) return ledger_->accepted(request, step_);
    if (added.ok()) {
      failure_ = "request " + std::to_string(request.id) + " was accepted and is invalid";
    } else if (added.error().kind == ErrorKind::exhausted) {
      if (ledger_->live() < scenario_.options.max_waiting / 4) {
        failure_ = "refused while few live: " + added.error().text();
      }
    } else if (!invalid) {
      failure_ = "refused: " + added.error().text();
    }
  }

  void step() {
    if (!engine_->busy()) clock_.advance_ns(kIdleNs);
    const auto sink = [&](Event event) {
      if (model_.failures() > 0) ledger_->injected_failure();
      ledger_->take(event, step_);
    };
    // An error is what the last request ended with; its event says so.
    if (engine_->busy()) static_cast<void>(engine_->step(sink));
    engine_->check_invariants();
    ledger_->step_ended(step_);
    const Limits& limits = engine_->limits();
    const auto within = [&](size_t value, size_t limit, const char* what) {
      if (value > limit) {
        failure_ = std::to_string(value) + " " + what + ", the limit is " + std::to_string(limit);
      }
    };
    within(engine_->pages_in_use(), limits.pages, "pages in use");
    within(model_.most_rows(), limits.rows, "rows in a step");
    if (engine_->prefix_cache() != nullptr) {
      within(engine_->prefix_cache()->pages(), limits.pages, "pages in the prefix cache");
      within(engine_->prefix_cache()->snapshot_bytes(), scenario_.options.snapshot_bytes,
             "bytes of snapshots");
    }
    if ((ledger_->live() > 0) != engine_->busy()) failure_ = "busy, and nobody lives; or not";
  }

  void end() {
    if (engine_->busy()) failure_ = "work is left after " + std::to_string(step_) + " steps";
    ledger_->finished();
    static_cast<void>(engine_->drain([&](const Event&) { failure_ = "an event after the end"; }));
    engine_->check_invariants();
    if (engine_->pages_in_use() > 0) {
      failure_ = std::to_string(engine_->pages_in_use()) + " pages in use after the end";
    }
  }

  const Scenario& scenario_;
  ManualClock clock_{1'000'000};
  SimulatedModel model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Ledger> ledger_;
  size_t step_ = 0;
  size_t arrival_ = 0, cancellation_ = 0, fault_ = 0;
  std::string failure_;
};

SimulationResult run_here(const Scenario& scenario, const std::function<void(size_t)>& at_step) {
  return Simulation(scenario).run(at_step);
}

// What a child tells besides its text: memory that both processes see.
struct Told {
  size_t step;
  Ledger::Seen seen;
};

[[noreturn]] void run_child(const Scenario& scenario, Told& told, int errors) {
  dup2(errors, STDERR_FILENO);
  const SimulationResult result = run_here(scenario, [&](size_t step) { told.step = step; });
  told = {result.step, result.seen};
  if (result.ok()) _exit(0);
  const std::string line = kMark + result.failure + "\n";
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(written > 0 ? 1 : 2);
}

std::string read_all(int descriptor) {
  std::string all;
  char piece[4096];
  ssize_t count = 0;
  while ((count = read(descriptor, piece, sizeof(piece))) > 0) {
    all.append(piece, static_cast<size_t>(count));
  }
  close(descriptor);
  return all;
}

// Keeps what still fails without the pieces that were left out.
class Shrinker {
 public:
  Shrinker(SmallScenario& best, const std::function<SimulationResult(const Scenario&)>& run,
           size_t most_runs)
      : best_(best), run_(run), most_runs_(most_runs) {}

  bool attempt(Scenario smaller) {
    if (best_.runs >= most_runs_) return false;
    ++best_.runs;
    SimulationResult result = run_(smaller);
    if (result.ok()) return false;
    smaller.steps = std::min(smaller.steps, result.step + 1);
    best_.scenario = std::move(smaller);
    best_.result = std::move(result);
    return true;
  }

  template <class Piece>
  void leave_out(std::vector<Piece> Scenario::* pieces) {
    for (size_t size = std::max<size_t>((best_.scenario.*pieces).size() / 2, 1);; size /= 2) {
      for (size_t first = 0; first < (best_.scenario.*pieces).size();) {
        Scenario smaller = best_.scenario;
        std::vector<Piece>& all = smaller.*pieces;
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
        all.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(size, all.size() - first)));
        if (!attempt(std::move(smaller))) first += size;
      }
      if (size == 1) return;
    }
  }

  // The same change for all requests that it applies to.
  void simplify(const std::function<void(Request&)>& change) {
    Scenario smaller = best_.scenario;
    for (Arrival& arrival : smaller.arrivals) change(arrival.request);
    attempt(std::move(smaller));
  }

 private:
  SmallScenario& best_;
  const std::function<SimulationResult(const Scenario&)>& run_;
  size_t most_runs_;
};

}  // namespace

SimulationResult simulate(const Scenario& scenario) { return run_here(scenario, {}); }

SimulationResult simulate_apart(const Scenario& scenario) {
  int errors[2];
  check(pipe(errors) == 0, "no pipe");
  void* shared =
      mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(shared != MAP_FAILED, "no shared memory");
  Told& told = *new (shared) Told{};
  const pid_t child = fork();
  check(child >= 0, "no process");
  if (child == 0) {
    close(errors[0]);
    run_child(scenario, told, errors[1]);
  }
  close(errors[1]);
  const std::string text = read_all(errors[0]);
  int status = 0;
  waitpid(child, &status, 0);
  SimulationResult result{.failure = "", .step = told.step, .seen = told.seen};
  munmap(shared, sizeof(Told));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return result;
  const size_t mark = text.rfind(kMark);
  result.failure =
      mark == std::string::npos ? "crashed: " + text : text.substr(mark + sizeof(kMark) - 1);
  while (!result.failure.empty() && result.failure.back() == '\n') result.failure.pop_back();
  return result;
}

SmallScenario shrink(Scenario scenario, SimulationResult result,
                     const std::function<SimulationResult(const Scenario&)>& run,
                     size_t most_runs) {
  SmallScenario best{std::move(scenario), std::move(result), 0};
  best.scenario.steps = std::min(best.scenario.steps, best.result.step + 1);
  Shrinker shrinker(best, run, most_runs);
  shrinker.leave_out(&Scenario::arrivals);
  shrinker.leave_out(&Scenario::cancellations);
  shrinker.leave_out(&Scenario::faults);
  shrinker.simplify([](Request& request) { request.choices = 1; });
  shrinker.simplify([](Request& request) { request.drafting = Drafting::none; });
  shrinker.simplify([](Request& request) { request.want_prompt_logprobs = false; });
  shrinker.simplify([](Request& request) { request.sampling = {}; });
  shrinker.simplify([](Request& request) {
    request.priority = 0;
    request.user = 0;
    request.ttft_target_ms = 0;
  });
  shrinker.simplify([](Request& request) { request.resume_points.clear(); });
  return best;
}

std::string SmallScenario::report() const {
  return "step " + std::to_string(result.step) + ": " + result.failure + "\nafter " +
         std::to_string(runs) + " runs this is left:\n" + scenario.text();
}

}  // namespace deepinfer::engine
