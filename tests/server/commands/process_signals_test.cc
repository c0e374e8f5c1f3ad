#include "server/commands/process_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
}  // namespace megatrain
