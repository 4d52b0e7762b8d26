// Speed of prompts and outputs, one core. Bytes are those of the prompt or of the output.

#include <benchmark/benchmark.h>

#include <string>

#include "recipe/chat_request.h"
#include "recipe/deepseek_prompt.h"
#include "recipe/output_parser.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kProse =
    "The quick brown fox jumps over the lazy dog; if (a < b) return \"\u4E2D\u6587\";\n";

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

// Turns of 2 kB with one call each: an agent's history.
Conversation agent_history(size_t bytes) {
  Conversation conversation;
  Tool tool;
  tool.name = "search";
  tool.parameters = Json::object();
  conversation.tools.push_back(tool);
  for (size_t i = 0; i * 4096 < bytes; ++i) {
    conversation.messages.push_back({Role::user, repeated(kProse, 1024)});
    Message answer;
    answer.role = Role::assistant;
    answer.content = repeated(kProse, 1024);
    answer.reasoning = repeated(kProse, 1024);
    Json arguments = Json::object();
    arguments.set("query", repeated(kProse, 256));
    arguments.set("limit", Json(10));
    const std::string id = "call_" + std::to_string(i);
    answer.tool_calls = {{{id, "search", arguments.text(JsonStyle::compact)}}};
    conversation.messages.push_back(std::move(answer));
    Message result;
    result.role = Role::tool;
    result.tool_call_id = id;
    result.content = repeated(kProse, 1024);
    conversation.messages.push_back(std::move(result));
  }
  return conversation;
}

void encode(benchmark::State& state, DeepSeekVersion version) {
  const Conversation conversation = agent_history(1 << 20);
  size_t bytes = 0;
  for (auto _ : state) {
    const PromptPieces prompt = render_deepseek(conversation, version);
    bytes += prompt.text().size();
    benchmark::DoNotOptimize(prompt.text().data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK_CAPTURE(encode, v4, DeepSeekVersion::v4);
BENCHMARK_CAPTURE(encode, v41, DeepSeekVersion::v41);

std::string model_output(size_t bytes) {
  std::string text = repeated(kProse, bytes / 3) + "</think>\n\n" + repeated(kProse, bytes / 3) +
                     "\n\n<\uFF5CDSML\uFF5C calls>\n";
  const std::string value = repeated(kProse, 512);
  while (text.size() < bytes) {
    text +=
        "<\uFF5CDSML\uFF5C invoke name=\"search\">\n<\uFF5CDSML\uFF5C parameter name=\"query\" "
        "string=\"true\">" +
        value + "</\uFF5CDSML\uFF5C parameter>\n</\uFF5CDSML\uFF5C invoke>\n";
  }
  return text + "</\uFF5CDSML\uFF5C calls>";
}

// range(0): bytes of a chunk; range(1): stop strings.
void parse(benchmark::State& state) {
  const std::string text = model_output(1 << 20);
  const size_t step = static_cast<size_t>(state.range(0));
  ParsingOptions options;
  options.stage = ThinkingStage::reasoning_start;
  for (int i = 0; i < state.range(1); ++i)
    options.stop_sequences.push_back(std::string(1, static_cast<char>('A' + i)) + "never");
  std::vector<OutputEvent> events;
  for (auto _ : state) {
    OutputParser parser(options);
    for (size_t at = 0; at < text.size(); at += step) {
      events.clear();
      parser.push(std::string_view(text).substr(at, step), Spelling::any, events);
      benchmark::DoNotOptimize(events.data());
    }
    parser.finish(events);
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}
BENCHMARK(parse)->Args({4, 0})->Args({4, 16})->Args({64, 0})->Args({65536, 0})->Args({65536, 16});

void convert_chat(benchmark::State& state) {
  std::string body = "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[";
  while (body.size() < (1 << 20)) {
    body += "{\"role\":\"user\",\"content\":\"";
    append_json_escaped(body, repeated(kProse, 1024));
    body += "\"},{\"role\":\"assistant\",\"content\":\"";
    append_json_escaped(body, repeated(kProse, 1024));
    body += "\"},";
  }
  body += "{\"role\":\"user\",\"content\":\"x\"}]}";
  const ConversionOptions options;
  for (auto _ : state) {
    const Accepted<ChatBody> read = read_chat_body(body);
    const Accepted<Request> request = accept_chat(read.value(), options);
    benchmark::DoNotOptimize(request.ok());
  }
  state.SetBytesProcessed(static_cast<int64_t>(body.size()) * state.iterations());
}
BENCHMARK(convert_chat);

}  // namespace
}  // namespace deepinfer::recipe
