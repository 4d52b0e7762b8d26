#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/json.h"

namespace deepinfer {
namespace {

// 2026-01-31 12:03:04.512 UTC
constexpr int64_t kMoment = 1'769'860'984'512'000'000;

class LogTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe(pipe_), 0); }
  void TearDown() override {
    configure_log({});
    ::close(pipe_[0]);
    if (pipe_[1] >= 0) ::close(pipe_[1]);
  }
  std::string written() {
    ::close(pipe_[1]);
    pipe_[1] = -1;
    std::string out;
    char buffer[4096];
    for (ssize_t got; (got = ::read(pipe_[0], buffer, sizeof(buffer))) > 0;) {
      out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }

  int pipe_[2] = {-1, -1};
  ManualClock clock_{0, kMoment};
};

TEST_F(LogTest, WritesTextLinesFromItsLevelOn) {
  configure_log({.level = LogLevel::warning, .descriptor = pipe_[1], .clock = &clock_});
  log_debug("no {}", 1);
  log_info("no {}", 2);
  log_warning("{}: {:.1f} GB", "model", 1.25);
  log_error("last");
  EXPECT_EQ(written(), "12:03:04.512 warning model: 1.2 GB\n12:03:04.512 error last\n");
}

TEST_F(LogTest, OffIsSilent) {
  configure_log({.level = LogLevel::off, .descriptor = pipe_[1], .clock = &clock_});
  log_error("no");
  EXPECT_EQ(written(), "");
}

TEST_F(LogTest, JsonLinesParse) {
  const std::string line = log_line(LogFormat::json, LogLevel::info, kMoment, "a \"b\"\n\xff");
  EXPECT_EQ(line.back(), '\n');
  const JsonDocument json = JsonDocument::parse(line, "line").value();
  EXPECT_EQ(json.root().get<std::string>("time").value(), "2026-01-31T12:03:04.512Z");
  EXPECT_EQ(json.root().get<std::string>("level").value(), "info");
  EXPECT_EQ(json.root().get<std::string>("message").value(), "a \"b\"\n\xef\xbf\xbd");
}

TEST_F(LogTest, LoggedInputCannotForgeLines) {
  EXPECT_EQ(log_line(LogFormat::text, LogLevel::info, kMoment, "a\nb\x1b[31m\r"),
            "12:03:04.512 info a\\nb\\x1b[31m\\x0d\n");
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  configure_log({.descriptor = pipe_[1], .clock = &clock_});
  std::vector<std::thread> threads;
  for (char letter : {'a', 'b', 'c'}) {
    threads.emplace_back([letter] {
      for (int i = 0; i < 50; ++i) log_info("{}", std::string(100, letter));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string all = written();
  size_t lines = 0;
  for (size_t at = 0; at < all.size(); ++lines) {
    const size_t end = all.find('\n', at);
    const std::string line = all.substr(at, end - at);
    const std::string body = line.substr(line.size() - 100);
    ASSERT_EQ(body, std::string(100, body[0]));
    at = end + 1;
  }
  EXPECT_EQ(lines, 150u);
}

TEST_F(LogTest, AFullDeviceIsNoFault) {
  const int full = ::open("/dev/full", O_WRONLY);
  configure_log({.descriptor = full});
  log_error("lost");
  ::close(full);
  configure_log({.descriptor = -1});
  log_error("lost");
}

TEST(LogLevel, NamesComeBack) {
  for (LogLevel level :
       {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error, LogLevel::off}) {
    EXPECT_EQ(log_level_from_name(log_level_name(level)), level);
  }
  EXPECT_EQ(log_level_from_name("loud"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
