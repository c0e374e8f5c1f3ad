// The program finds out about its surroundings, on a terminal of the test's own.
#include "client/context/invocation.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

// Puts `fd` in the place of a standard descriptor while it lives.
class Redirected {
 public:
  Redirected(int fd, int standard) : standard_(standard), before_(dup(standard)) {
    dup2(fd, standard);
  }
  ~Redirected() {
    dup2(before_, standard_);
    close(before_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  const int standard_, before_;
};

class InvocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    master_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) {
      GTEST_SKIP() << "there are no pseudo-terminals here";
    }
    terminal_ = open(ptsname(master_), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(terminal_, 0);
    file_ = open("/dev/null", O_RDWR | O_CLOEXEC);
    ASSERT_GE(file_, 0);
    setenv("TERM", "xterm", 1);
  }
  void TearDown() override {
    for (const int fd : {master_, terminal_, file_}) {
      if (fd >= 0) close(fd);
    }
  }
  // Returns whether a user can be asked.
  bool Asks(int input, int errors) const {
    const Redirected in(input, STDIN_FILENO), err(errors, STDERR_FILENO);
    return ProcessEnvironment().ask != nullptr;
  }
  bool IsTerminal(int output) const {
    std::fflush(stdout);
    const Redirected out(output, STDOUT_FILENO);
    return ProcessEnvironment().is_terminal;
  }
  // Returns "COLUMNSxROWS" of a terminal of that size.
  std::string Size(unsigned short columns, unsigned short rows) const {
    winsize size = {};
    size.ws_col = columns;
    size.ws_row = rows;
    EXPECT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
    std::fflush(stdout);
    const Redirected out(terminal_, STDOUT_FILENO);
    const Environment environment = ProcessEnvironment();
    return std::to_string(environment.columns()) + "x" + std::to_string(environment.rows());
  }

  int master_ = -1, terminal_ = -1, file_ = -1;
};

// Otherwise a line of a script's input would be taken for the answer, or nobody saw the question.
TEST_F(InvocationTest, AsksOnlyWhereTheUserSeesTheQuestionAndTypesTheAnswer) {
  EXPECT_TRUE(Asks(terminal_, terminal_));
  EXPECT_FALSE(Asks(file_, terminal_));
  EXPECT_FALSE(Asks(terminal_, file_));
  EXPECT_FALSE(Asks(file_, file_));
}

TEST_F(InvocationTest, TheAnswerIsALine) {
  std::string answer;
  ASSERT_EQ(write(master_, "yes\nno\n", 7), 7);
  {
    const Redirected in(terminal_, STDIN_FILENO), err(terminal_, STDERR_FILENO);
    const Environment environment = ProcessEnvironment();
    if (environment.ask) answer = environment.ask("Delete it? ");
  }
  EXPECT_EQ(answer, "yes");
  std::string seen;
  char byte = 0;
  pollfd ready = {master_, POLLIN, 0};
  while (seen.find("Delete it? ") == std::string::npos && poll(&ready, 1, 10'000) == 1 &&
         read(master_, &byte, 1) == 1) {
    seen += byte;
  }
  EXPECT_THAT(seen, HasSubstr("Delete it? "));
}

TEST_F(InvocationTest, APageIsRedrawnOnATerminalThatCanDoSo) {
  EXPECT_TRUE(IsTerminal(terminal_));
  EXPECT_FALSE(IsTerminal(file_));
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(IsTerminal(terminal_));
  unsetenv("TERM");
  EXPECT_FALSE(IsTerminal(terminal_));
}

TEST_F(InvocationTest, ATerminalThatDoesNotKnowItsSizeHasTheUsualOne) {
  EXPECT_EQ(Size(132, 43), "132x43");
  EXPECT_EQ(Size(132, 0), "80x24");
  EXPECT_EQ(Size(0, 43), "80x24");
  EXPECT_EQ(Size(0, 0), "80x24");
}

TEST_F(InvocationTest, OtherCharactersThanAsciiAreShownInUtf8Only) {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) GTEST_SKIP() << "there is no C.UTF-8";
  setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_EQ(ProcessEnvironment().charset, Charset::kUtf8);
  setenv("LC_ALL", "C", 1);
  EXPECT_EQ(ProcessEnvironment().charset, Charset::kAscii);
}

}  // namespace
}  // namespace megatrain::client
