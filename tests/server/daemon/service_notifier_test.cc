#include "server/daemon/service_notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/mutex.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The manager's end of the socket. Takes messages in all the time: a sender waits if they pile up.
class NotifySocket {
 public:
  NotifySocket() {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = Address();
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    thread_ = std::thread([this] { Take(); });
  }
  ~NotifySocket() {
    shutdown(fd_, SHUT_RD);
    thread_.join();
    close(fd_);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
  }

  // As a service does.
  void Send(const std::string& message) {
    const sockaddr_un address = Address();
    EXPECT_EQ(sendto(fd_, message.data(), message.size(), 0,
                     reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              static_cast<ssize_t>(message.size()));
  }
  // The next message.
  std::string Receive() {
    MutexLock lock(&mutex_);
    while (messages_.empty()) changed_.Wait(&mutex_);
    std::string message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  // The next one that holds `text`.
  std::string ReceiveUntil(const std::string& text) {
    while (true) {
      std::string message = Receive();
      if (message.find(text) != std::string::npos) return message;
    }
  }

 private:
  sockaddr_un Address() const {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    (directory_ / "socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }
  void Take() {
    char buffer[4096];
    ssize_t got = 0;
    while ((got = recv(fd_, buffer, sizeof(buffer), 0)) > 0) {
      MutexLock lock(&mutex_);
      messages_.emplace_back(buffer, got);
      changed_.NotifyAll();
    }
  }

  const TestDirectory directory_{TestDirectory::Place::kShort};
  int fd_ = -1;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> messages_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

ServiceNotifier::Options Fast() { return {.interval_seconds = 0.01, .extension_seconds = 7}; }

RunRequest TheRun(const std::string& id) {
  RunRequest run;
  run.job_id = id;
  return run;
}

TEST(ServiceNotifierTest, WithoutAManagerNothingIsSent) {
  NotifySocket socket;  // of another program's manager: nobody named it to this one
  unsetenv("NOTIFY_SOCKET");
  {
    ServiceNotifier notifier(Fast());
    notifier.Starting("reserving");
    notifier.Ready();
    notifier.Tell(TheRun("a1"), StepRecord());
    notifier.Stopping();
  }
  socket.Send("the first message");
  EXPECT_EQ(socket.Receive(), "the first message");
}

TEST(ServiceNotifierTest, FromStartToEnd) {
  NotifySocket socket;
  auto notifier = std::make_unique<ServiceNotifier>(Fast());
  notifier->Starting("reserving 1 of 2 GiB");
  std::string message = socket.ReceiveUntil("STATUS=reserving 1 of 2 GiB\n");
  EXPECT_THAT(message, HasSubstr("EXTEND_TIMEOUT_USEC=7000000\n"));
  EXPECT_THAT(message, Not(HasSubstr("READY")));

  notifier->Ready();
  message = socket.ReceiveUntil("READY=1\n");
  EXPECT_THAT(message, HasSubstr("STATUS=no job runs\n"));
  EXPECT_THAT(message, Not(HasSubstr("EXTEND")));

  notifier->Stopping();
  message = socket.ReceiveUntil("STOPPING=1\n");
  EXPECT_THAT(message, HasSubstr("EXTEND_TIMEOUT_USEC=7000000\n"));
  EXPECT_THAT(socket.Receive(), HasSubstr("EXTEND_TIMEOUT_USEC=7000000\n"));
  // What was set last is told even if the end follows at once.
  notifier.reset();
}

TEST(ServiceNotifierTest, AReloadIsToldFromBeginToEnd) {
  NotifySocket socket;
  ServiceNotifier notifier({.interval_seconds = 1000, .extension_seconds = 7});
  notifier.Ready();
  socket.ReceiveUntil("READY=1\n");
  notifier.Reloading();
  std::string message = socket.Receive();
  EXPECT_THAT(message, ::testing::MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+\n"));
  notifier.Ready();
  EXPECT_THAT(socket.Receive(), HasSubstr("READY=1\n"));
  // One that is over before its begin is told.
  notifier.Reloading();
  notifier.Ready();
  EXPECT_THAT(socket.Receive(), HasSubstr("RELOADING=1\n"));
  EXPECT_THAT(socket.Receive(), HasSubstr("READY=1\n"));
}

TEST(ServiceNotifierTest, ThePhaseIsToldEvenIfTheEndFollowsAtOnce) {
  NotifySocket socket;
  {
    ServiceNotifier notifier({.interval_seconds = 1000, .extension_seconds = 7});
    notifier.Ready();
  }
  EXPECT_THAT(socket.ReceiveUntil("READY=1"), HasSubstr("READY=1"));
}

TEST(ServiceNotifierTest, TheStatusSaysWhatRunsByItsIdAlone) {
  NotifySocket socket;
  ServiceNotifier notifier(Fast());
  notifier.Ready();
  RunRequest run = TheRun("a1");
  run.spec.name = "secret";
  notifier.Tell(run, TrainingActivity{TrainingPhase::kPreparing, "tokenising", 0.25});
  EXPECT_THAT(socket.ReceiveUntil("a1"), HasSubstr("STATUS=job a1: tokenising (25%)\n"));
  notifier.Tell(run, StepsBegin{1, 200});
  EXPECT_THAT(socket.ReceiveUntil("of 200"), HasSubstr("STATUS=job a1: step 1 of 200\n"));
  StepRecord record;
  record.step = 17;
  record.loss = 2.5;
  record.tokens_per_second = 1234;
  notifier.Tell(run, record);
  EXPECT_THAT(socket.ReceiveUntil("step 17"),
              HasSubstr("STATUS=job a1: step 17 of 200, loss 2.5000, 1234 tokens/s\n"));
  notifier.Tell(run, TrainingPause());
  EXPECT_THAT(socket.ReceiveUntil("paused"), HasSubstr("STATUS=job a1: paused\n"));
  // Another job's end says nothing of this one.
  notifier.Tell(TheRun("b2"), RunEnd());
  notifier.Tell(run, TrainingActivity{TrainingPhase::kPreparing, "two\nlines", -1});
  EXPECT_THAT(socket.ReceiveUntil("two"), HasSubstr("STATUS=job a1: two lines\n"));
  notifier.Tell(run, RunEnd());
  EXPECT_THAT(socket.ReceiveUntil("no job"), HasSubstr("STATUS=no job runs\n"));
}

TEST(ServiceNotifierTest, StoppingAsksForTheTimeThatSavingTakes) {
  NotifySocket socket;
  ServiceNotifier notifier(Fast());
  notifier.Ready();
  notifier.Tell(TheRun("a1"), StepsBegin{1, 200});
  notifier.Tell(TheRun("a1"), CheckpointSaved{100, "", 40});
  notifier.Stopping();
  std::string message = socket.ReceiveUntil("STOPPING=1\n");
  EXPECT_THAT(message, HasSubstr("STATUS=stopping; job a1: step 1 of 200; saving for "));
  EXPECT_THAT(message, HasSubstr(" s, its last checkpoint took 40 s\n"));
  EXPECT_THAT(message, HasSubstr("EXTEND_TIMEOUT_USEC=80000000\n"));
  notifier.Tell(TheRun("a1"), RunEnd());
  EXPECT_THAT(socket.ReceiveUntil("no job runs"), HasSubstr("EXTEND_TIMEOUT_USEC=7000000\n"));
}

// How long another job's save took says nothing of this one's.
TEST(ServiceNotifierTest, AFirstSaveIsGivenTimeAgainAndAgain) {
  NotifySocket socket;
  ServiceNotifier notifier(Fast());
  notifier.Ready();
  notifier.Tell(TheRun("b2"), CheckpointSaved{100, "", 40});
  notifier.Tell(TheRun("b2"), RunEnd{});
  notifier.Tell(TheRun("a1"), StepsBegin{1, 200});
  notifier.Stopping();
  const std::string message = socket.ReceiveUntil("STOPPING=1\n");
  EXPECT_THAT(message, HasSubstr("; saving for "));
  EXPECT_THAT(message, Not(HasSubstr("its last checkpoint")));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(socket.Receive(), HasSubstr("EXTEND_TIMEOUT_USEC=7000000\n"));
  }
}

TEST(ServiceNotifierTest, JobsSideBySideAreAllTold) {
  NotifySocket socket;
  ServiceNotifier notifier(Fast());
  notifier.Ready();
  notifier.Tell(TheRun("a1"), StepsBegin{1, 200});
  notifier.Tell(TheRun("b2"), StepsBegin{5, 30});
  socket.ReceiveUntil("STATUS=job a1: step 1 of 200; job b2: step 5 of 30\n");
  notifier.Tell(TheRun("a1"), TrainingPause{});
  socket.ReceiveUntil("STATUS=job b2: step 5 of 30\n");
  notifier.Tell(TheRun("b2"), CheckpointSaved{100, "", 40});
  notifier.Tell(TheRun("a1"), CheckpointSaved{100, "", 10});
  notifier.Stopping();
  EXPECT_THAT(socket.ReceiveUntil("STOPPING=1\n"), HasSubstr("EXTEND_TIMEOUT_USEC=80000000\n"))
      << "as long as the slowest takes, twice";
  notifier.Tell(TheRun("b2"), RunEnd{});
  socket.ReceiveUntil("STATUS=stopping; job a1: paused; saving for ");
}

TEST(ServiceNotifierTest, TheWatchdogIsFedUntilARunHangs) {
  NotifySocket socket;
  setenv("WATCHDOG_USEC", "60000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  // The interval follows from the watchdog's time.
  ServiceNotifier notifier({.interval_seconds = 1000, .extension_seconds = 7});
  notifier.Ready();
  socket.ReceiveUntil("READY=1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(socket.Receive(), "WATCHDOG=1\n");
  notifier.Hangs();
  notifier.Tell(TheRun("a1"), TrainingActivity{TrainingPhase::kPreparing, "first", -1});
  socket.ReceiveUntil("first");
  notifier.Tell(TheRun("a1"), TrainingActivity{TrainingPhase::kPreparing, "second", -1});
  // Messages come on, the watchdog's do not.
  EXPECT_EQ(socket.ReceiveUntil("second"), "STATUS=job a1: second\n");
  notifier.Stopping();
  EXPECT_THAT(socket.ReceiveUntil("STOPPING"), Not(HasSubstr("EXTEND")));
}

TEST(ServiceNotifierTest, AnotherProcessWatchdogIsNotOurs) {
  NotifySocket socket;
  setenv("WATCHDOG_USEC", "60000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  ServiceNotifier notifier(Fast());
  notifier.Ready();
  EXPECT_THAT(socket.ReceiveUntil("READY=1"), Not(HasSubstr("WATCHDOG")));
}

TEST(ServiceNotifierTest, OfARunThatHasBegunTheStatusSaysTheStep) {
  NotifySocket socket;
  ServiceNotifier notifier(Fast());
  notifier.Ready();
  notifier.Tell(TheRun("a1"), StepsBegin{7, 200});
  notifier.Tell(TheRun("a1"), TrainingActivity{TrainingPhase::kSaving, "saving step 7", -1});
  notifier.Tell(TheRun("a1"), TrainingActivity{TrainingPhase::kRunning, "", -1});
  notifier.Tell(TheRun("b2"), StepsBegin{5, 30});
  EXPECT_THAT(socket.ReceiveUntil("b2"),
              HasSubstr("STATUS=job a1: step 7 of 200; job b2: step 5 of 30\n"));
}

}  // namespace
}  // namespace megatrain
