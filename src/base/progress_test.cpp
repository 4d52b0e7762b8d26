#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace deepinfer {
namespace {

TEST(ProgressLine, ShowsShareAmountsAndTimeLeft) {
  using Unit = Progress::Unit;
  EXPECT_EQ(progress_line("pack", 1'200'000'000, 2'400'000'000, Unit::bytes, 90.0),
            "pack  [############............]  50 %  1.2 GB of 2.4 GB  1:30 left");
  EXPECT_EQ(progress_line("ids", 0, 7, Unit::count, 0.0),
            "ids  [........................]   0 %  0 of 7");
  EXPECT_EQ(progress_line("ids", 9, 7, Unit::count, 5.0),
            "ids  [########################] 100 %  7 of 7");
  EXPECT_EQ(progress_line("read", 999, 0, Unit::bytes, 5.0), "read  999 B");
}

class ProgressTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe2(pipe_, O_NONBLOCK), 0); }
  void TearDown() override {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  std::string written() {
    char buffer[65536];
    const ssize_t got = ::read(pipe_[0], buffer, sizeof(buffer));
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
  }
  int pipe_[2];
  ManualClock clock_;
};

TEST_F(ProgressTest, DrawsAtMostTenTimesASecondAndWipesTheLine) {
  {
    Progress progress("work", 1000, Progress::Unit::count, true, clock_, pipe_[1]);
    progress.update(1);
    EXPECT_EQ(written(), "") << "short work shows no bar";
    size_t drawn = 0;
    for (int i = 0; i < 1000; ++i) {
      clock_.advance_ns(1'000'000);
      progress.advance(1);
      if (!written().empty()) ++drawn;
    }
    EXPECT_EQ(drawn, 10u);
  }
  EXPECT_EQ(written(), "\r\x1b[K");
}

TEST_F(ProgressTest, IsSilentWhenDisabledOrNoTerminal) {
  EXPECT_FALSE(decorates(pipe_[1]));
  for (bool enabled : {false, decorates(pipe_[1])}) {
    Progress progress("work", 10, Progress::Unit::count, enabled, clock_, pipe_[1]);
    clock_.advance_ns(1'000'000'000);
    progress.update(5);
  }
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressTest, NoColorWinsOverATerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || !::isatty(terminal)) return;  // a system without pseudo terminals
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(decorates(terminal));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(decorates(terminal));
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(decorates(terminal));
  ::close(terminal);
}

}  // namespace
}  // namespace deepinfer
