// Token ids in, token ids out: the engine alone, without any text.
//
//   batch MODEL

#include <cstdio>

#include "base/clock.h"
#include "engine/engine.h"
#include "models/model.h"
#include "weights/checkpoint.h"

using namespace deepinfer;

Result<void> run(const std::string& path) {
  const weights::Checkpoint checkpoint = TRY(weights::Checkpoint::open(path));
  const std::unique_ptr<ThreadPool> pool = TRY(ThreadPool::create({}));
  models::ModelOptions model_options;
  model_options.target.isa = TRY(kernels::choose_isa("auto"));
  const auto model = TRY(models::open_model(checkpoint, model_options, *pool));

  engine::Engine::Options options;
  options.prefix_cache = true;
  options.mode = engine::LoopMode::overlapped;
  options.isa = model_options.target.isa;
  options.pool = pool.get();
  const auto engine = TRY(engine::Engine::create(*model, options, system_clock()));
  std::printf("%s\n", engine->limits().text().c_str());

  // Three prompts that are computed together; the last one draws, with a seed of its own.
  for (uint64_t id = 0; id < 3; ++id) {
    engine::Request request;
    request.id = id;
    request.prompt = {static_cast<int32_t>(10 + id), 20, 30};
    request.max_tokens = 8;
    request.sampling.temperature = id == 2 ? 1.0f : 0.0f;
    request.sampling.seed = id;
    TRY(engine->add(std::move(request)));
  }
  while (engine->busy()) {
    TRY(engine->step([](const engine::Event& event) {
      if (event.has_token)
        std::printf("request %llu: id %d, log-probability %.3f\n",
                    static_cast<unsigned long long>(event.request), event.token.id,
                    static_cast<double>(event.token.logprob));
    }));
  }
  return {};
}

int main(int argc, char** argv) {
  const Result<void> done = run(argc > 1 ? argv[1] : "");
  if (!done.ok()) std::fprintf(stderr, "error: %s\n", done.error().text().c_str());
  return done.ok() ? 0 : 1;
}
