#include "apps/line_editor.h"

#include <histedit.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "apps/interrupt.h"
#include "apps/terminal.h"

namespace deepinfer::apps {
namespace {

constexpr int kHistoryLines = 500;

}  // namespace

struct LineEditor::Editing {
  explicit Editing(std::string text) : prompt(std::move(text)) {
    // Without a UTF-8 locale libedit would edit bytes instead of characters.
    std::setlocale(LC_CTYPE, "C.UTF-8");
    editor = el_init("deepinfer", stdin, stdout, stderr);
    lines = history_init();
    HistEvent event;
    history(lines, &event, H_SETSIZE, kHistoryLines);
    history(lines, &event, H_SETUNIQUE, 1);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, &Editing::prompt_text);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, history, lines);
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~Editing() {
    history_end(lines);
    el_end(editor);
  }
  Editing(const Editing&) = delete;
  Editing& operator=(const Editing&) = delete;

  static char* prompt_text(EditLine* editor) {
    Editing* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt.data();
  }

  std::string prompt;
  EditLine* editor = nullptr;
  History* lines = nullptr;
};

LineEditor::LineEditor(std::string prompt) {
  if (stdin_is_terminal() && stdout_is_terminal())
    editing_ = std::make_unique<Editing>(std::move(prompt));
}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read() {
  if (!editing_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  InterruptScope interrupt;
  int length = 0;
  const char* text = el_gets(editing_->editor, &length);
  if (interrupt.interrupted()) {
    el_reset(editing_->editor);
    std::fputs("\n", stdout);
    const LineInfo* info = el_line(editing_->editor);
    const bool empty = info == nullptr || info->lastchar == info->buffer;
    return empty ? std::nullopt : std::optional<std::string>("");
  }
  if (text == nullptr || length <= 0) return std::nullopt;
  std::string line(text, static_cast<size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (!line.empty()) {
    HistEvent event;
    history(editing_->lines, &event, H_ENTER, line.c_str());
  }
  return line;
}

}  // namespace deepinfer::apps
