#include "server/commands/process_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

// Each case in a process of its own: handlers stay installed.
template <typename Body>
int ExitCodeOfChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(TrainingSignalsTest, TheFirstAsksAndTheSecondEnds) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(ExitCodeOfChild([signal] {
                static TrainingControl control;
                InstallTrainingSignals(&control);
                raise(signal);
                return control.stop_requested() && !control.checkpoint_requested() ? 0 : 1;
              }),
              0);
    EXPECT_EQ(ExitCodeOfChild([signal] {
                static TrainingControl control;
                InstallTrainingSignals(&control);
                raise(signal);
                raise(SIGTERM);
                return 0;
              }),
              7);
  }
}

// Of several processes of a job one answers for all.
TEST(TrainingSignalsTest, TheFirstIsAnsweredWhereThatIsWanted) {
  for (const bool says : {true, false}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(ExitCodeOfChild([&] {
                static TrainingControl control;
                dup2(ends[1], STDERR_FILENO);
                InstallTrainingSignals(&control, says);
                raise(SIGTERM);
                return control.stop_requested() ? 0 : 1;
              }),
              0);
    close(ends[1]);
    std::string said(1000, '\0');
    const ssize_t bytes = read(ends[0], said.data(), said.size());
    close(ends[0]);
    ASSERT_GE(bytes, 0);
    said.resize(static_cast<size_t>(bytes));
    EXPECT_EQ(said, says ? "\nstopping after this step; once more ends at once\n" : "");
  }
}

TEST(TrainingSignalsTest, UserSignalAsksForACheckpoint) {
  EXPECT_EQ(ExitCodeOfChild([] {
              static TrainingControl control;
              InstallTrainingSignals(&control);
              raise(SIGUSR1);
              raise(SIGUSR1);
              raise(SIGPIPE);
              return control.checkpoint_requested() && !control.stop_requested() ? 0 : 1;
            }),
            0);
}

TEST(TrainingSignalsTest, AnIgnoredHangupStaysIgnored) {
  EXPECT_EQ(ExitCodeOfChild([] {
              static TrainingControl control;
              signal(SIGHUP, SIG_IGN);
              InstallTrainingSignals(&control);
              raise(SIGHUP);
              return control.stop_requested() ? 1 : 0;
            }),
            0);
}

// A service manager stops a daemon that is about to end by itself, because a device was lost.
TEST(DaemonSignalsTest, ASignalBehindTheDaemonsOwnRequestIsTheFirst) {
  EXPECT_EQ(ExitCodeOfChild([] {
              InstallDaemonSignals();
              RequestStop();
              raise(SIGTERM);
              return StopRequested() && WaitForSignal() == DaemonSignal::kStop ? 0 : 1;
            }),
            0);
  EXPECT_EQ(ExitCodeOfChild([] {
              InstallDaemonSignals();
              raise(SIGTERM);
              raise(SIGINT);
              return 0;
            }),
            7);
}

TEST(DaemonSignalsTest, AHangupAsksForAReload) {
  EXPECT_EQ(ExitCodeOfChild([] {
              signal(SIGHUP, SIG_DFL);  // a test may be run by nohup
              InstallDaemonSignals();
              raise(SIGHUP);
              if (StopRequested() || WaitForSignal() != DaemonSignal::kReload) return 1;
              raise(SIGTERM);
              return WaitForSignal() == DaemonSignal::kStop ? 0 : 2;
            }),
            0);
}

TEST(DaemonSignalsTest, HangupsThatComeTogetherAreOneReload) {
  EXPECT_EQ(ExitCodeOfChild([] {
              signal(SIGHUP, SIG_DFL);
              InstallDaemonSignals();
              raise(SIGHUP);
              raise(SIGHUP);
              if (WaitForSignal() != DaemonSignal::kReload) return 1;
              // The next one is the stop, whenever that comes.
              std::thread stopper([] {
                usleep(20'000);
                RequestStop();
              });
              const DaemonSignal next = WaitForSignal();
              stopper.join();
              if (next != DaemonSignal::kStop) return 2;
              return WaitForSignal() == DaemonSignal::kStop ? 0 : 3;
            }),
            0);
}

TEST(DaemonSignalsTest, AClosedPipeDoesNotEndTheDaemon) {
  EXPECT_EQ(ExitCodeOfChild([] {
              InstallDaemonSignals();
              raise(SIGPIPE);
              return StopRequested() ? 1 : 0;
            }),
            0);
}

}  // namespace
}  // namespace megatrain
