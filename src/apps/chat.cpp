// deepinfer chat: a conversation in the terminal, or from a pipe.

#include <fmt/format.h>

#include <optional>

#include "apps/command.h"
#include "apps/interrupt.h"
#include "apps/line_editor.h"
#include "apps/open_model.h"
#include "apps/settings.h"
#include "apps/speed_report.h"
#include "apps/terminal.h"
#include "apps/thinking_style.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "llm/chat_session.h"

namespace deepinfer::apps {
namespace {

constexpr std::string_view kHelp =
    "/help          this list\n"
    "/retry         the last question once more, with the next seed\n"
    "/clear         forget the conversation\n"
    "/save FILE     write the conversation as JSON lines\n"
    "/load FILE     go on with a saved conversation\n"
    "/exit          leave (also Ctrl-D)\n";

// JSON lines {"role": ..., "content": ...}.
std::string saved_text(const recipe::Conversation& conversation) {
  std::string text;
  for (const recipe::Message& message : conversation.messages) {
    JsonWriter json(text);
    json.begin_object();
    json.member("role", recipe::role_name(message.role));
    json.member("content", message.content.text);
    json.end_object();
    text += '\n';
  }
  return text;
}

Result<recipe::Conversation> load_conversation(const std::string& path) {
  const std::string text = TRY(read_file(path, 64u << 20));
  recipe::Conversation conversation;
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    const JsonDocument document =
        TRY(JsonDocument::parse(line, fmt::format("{} line {}", path, number)));
    const std::string role = TRY(document.root().get<std::string>("role"));
    const auto known = recipe::role_from_name(role);
    if (!known) return document.root().error("\"" + role + "\" is not a role");
    conversation.messages.push_back({*known, TRY(document.root().get<std::string>("content"))});
  }
  if (!conversation.messages.empty()) TRY(recipe::check_conversation(conversation));
  return conversation;
}

class ChatCommand final : public Command {
 public:
  std::string_view name() const override { return "chat"; }
  std::string_view summary() const override { return "a conversation in the terminal"; }
  std::string_view example() const override {
    return "  deepinfer chat smollm2\n  echo 'Name a colour.' | deepinfer chat smollm2";
  }
  std::vector<std::string_view> positionals() const override { return {"MODEL"}; }

  void declare(OptionTable& options) override {
    sampling_.declare(options);
    engine_.declare(options);
    options.add("log-level", &log_level_, "what is logged on stderr",
                {.choices = {"debug", "info", "warning", "error", "off"}});
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    TRY(sampling_.take_deepinfer_variables());
    const llm::Prompt settings = TRY(sampling_.prompt());
    if (settings.choices > 1 || settings.best_of > 1)
      return Error::invalid("chat", "a conversation has one answer, --n and --best-of give more");
    const std::string model = model_of(arguments);
    const std::unique_ptr<llm::Llm> llm = TRY(open_model(model, engine_, false));
    TRY(llm->tokenizer());
    TRY(llm->layout());
    llm::ChatSession session(*llm, settings);
    LineEditor editor("> ");
    if (editor.interactive()) {
      write_out(
          fmt::format("{}: {}, {} threads. /help lists the commands, Ctrl-C stops an answer.\n",
                      model, bytes_text(static_cast<double>(llm->model().resident_bytes())),
                      llm->pool().thread_count()));
    }
    int code = kDone;
    while (const std::optional<std::string> line = editor.read()) {
      if (line->find_first_not_of(" \t") == std::string::npos) continue;
      if (line->front() == '/') {
        if (*line == "/exit" || *line == "/quit") break;
        obey(*line, session, *llm);
        continue;
      }
      code = speak(session, *llm, line);
      if (code == kInterrupted && !editor.interactive()) return code;
    }
    return editor.interactive() ? kDone : code;
  }

 private:
  void obey(const std::string& line, llm::ChatSession& session, llm::Llm& llm) {
    const size_t blank = line.find(' ');
    const std::string word = line.substr(0, blank);
    const std::string rest = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (word == "/help") {
      write_out(kHelp);
    } else if (word == "/clear") {
      session.replace({});
    } else if (word == "/retry") {
      speak(session, llm, std::nullopt);
    } else if (word == "/save" && !rest.empty()) {
      const Result<void> saved = write_file_atomic(rest, saved_text(session.conversation()));
      if (!saved.ok()) print_error(saved.error());
    } else if (word == "/load" && !rest.empty()) {
      Result<recipe::Conversation> loaded = load_conversation(rest);
      if (loaded.ok()) {
        session.replace(std::move(loaded).value());
      } else {
        print_error(loaded.error());
      }
    } else {
      print_error(Error::invalid(line, "is not a command here", "/help"));
    }
  }

  // One question, or the last one again; prints the answer as it comes.
  int speak(llm::ChatSession& session, llm::Llm& llm, const std::optional<std::string>& question) {
    InterruptScope interrupt;
    ThinkingStyle thinking(Style(1).on(),
                           llm.layout().ok() && llm.layout().value().options.opens_thinking);
    const auto on_text = [&](std::string_view text) { write_out(thinking.push(text)); };
    const Result<llm::Answer> answer = question ? session.ask(*question, on_text, &interrupt.flag())
                                                : session.retry(on_text, &interrupt.flag());
    write_out(thinking.flush());
    if (!answer.ok()) {
      print_error(answer.error());
      return exit_code_of(answer.error().kind);
    }
    write_out(answer.value().text.ends_with('\n') ? "" : "\n");
    const Style style(2);
    if (style.on()) {
      const std::string speed = speed_text(llm.speed(), llm.model().weight_bytes_per_step(), 0);
      fmt::print(stderr, "{}\n", style.dim(speed));
    }
    return interrupt.interrupted() ? kInterrupted : kDone;
  }

  SamplingSettings sampling_;
  EngineSettings engine_;
  std::string log_level_ = "warning";
};

}  // namespace

std::unique_ptr<Command> make_chat_command() { return std::make_unique<ChatCommand>(); }

}  // namespace deepinfer::apps
