#include "llm/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace deepinfer::llm {
namespace {

constexpr size_t kMaxOutput = 1u << 20;
constexpr int kPollMs = 200;

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  ~Pipe() {
    close_write();
    if (read_end >= 0) close(read_end);
  }
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return true;
  }
  void close_write() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

// Later entries of the same name lose, as getenv takes the first.
std::vector<std::string> merged_environment(const std::vector<std::string>& first) {
  std::vector<std::string> all = first;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    bool replaced = false;
    for (const std::string& own : first)
      replaced |= text.starts_with(own.substr(0, own.find('=') + 1));
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

// Reads what is there; false at the end of the stream.
bool drain(int fd, std::string& into) {
  char block[4096];
  const ssize_t got = read(fd, block, sizeof block);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  const size_t room = kMaxOutput - into.size();
  into.append(block, std::min(room, static_cast<size_t>(got)));
  return true;
}

void collect(const ChildCommand& command, pid_t child, Pipe& out, Pipe& err, ChildResult& result) {
  pollfd waits[2] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  while (waits[0].fd >= 0 || waits[1].fd >= 0) {
    const int ready = poll(waits, 2, kPollMs);
    if (ready < 0 && errno != EINTR) break;
    if (ready > 0) {
      if (waits[0].revents != 0 && !drain(waits[0].fd, result.output)) waits[0].fd = -1;
      if (waits[1].revents != 0 && !drain(waits[1].fd, result.errors)) waits[1].fd = -1;
    }
    if (!result.stopped && command.still_wanted && !command.still_wanted()) {
      result.stopped = true;
      kill(child, SIGTERM);
    }
  }
}

}  // namespace

Result<ChildResult> run_child(const ChildCommand& command) {
  check(!command.argv.empty(), "a command has a program");
  const std::string& program = command.argv.front();
  Pipe out, err;
  if (!out.open() || !err.open()) return Error::io(program, std::strerror(errno));

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, STDERR_FILENO);
  const std::vector<std::string> environment = merged_environment(command.environment);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, program.c_str(), &actions, nullptr,
                                  pointers(command.argv).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT) return Error::not_found(program, "is not installed");
  if (failed != 0) return Error::io(program, std::strerror(failed));

  out.close_write();
  err.close_write();
  ChildResult result;
  collect(command, child, out, err, result);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace deepinfer::llm
