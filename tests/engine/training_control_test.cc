#include "engine/training_control.h"

#include <gtest/gtest.h>

#include <thread>

namespace megatrain {
namespace {

TEST(TrainingControlTest, StopTellsWhetherItWasAskedForBefore) {
  TrainingControl control;
  EXPECT_FALSE(control.Any());
  EXPECT_FALSE(control.Stop());
  EXPECT_TRUE(control.Stop());
  EXPECT_TRUE(control.stop_requested());
  EXPECT_TRUE(control.Any());
}

TEST(TrainingControlTest, WhatIsTakenIsTakenOnce) {
  TrainingControl control;
  control.Checkpoint();
  control.Release();
  EXPECT_TRUE(control.checkpoint_requested());
  EXPECT_TRUE(control.TakeCheckpoint());
  EXPECT_FALSE(control.TakeCheckpoint());
  EXPECT_TRUE(control.TakeRelease());
  EXPECT_FALSE(control.release_requested());
  EXPECT_FALSE(control.Any());
}

TEST(TrainingControlTest, AWithdrawnPauseIsStillNoticed) {
  TrainingControl control;
  control.Pause();
  control.Resume();
  EXPECT_FALSE(control.pause_requested());
  EXPECT_TRUE(control.Any());
  EXPECT_TRUE(control.TakePauseNotice());
  EXPECT_FALSE(control.Any());
}

TEST(TrainingControlTest, WaitingEndsWithEachRequest) {
  for (void (*ask)(TrainingControl&) :
       {+[](TrainingControl& c) { c.Resume(); }, +[](TrainingControl& c) { c.Cancel(); },
        +[](TrainingControl& c) { c.Release(); },
        +[](TrainingControl& c) {
          c.Stop();
          c.Wake();
        },
        +[](TrainingControl& c) {
          c.Checkpoint();
          c.Wake();
        }}) {
    TrainingControl control;
    control.Pause();
    std::thread asker([&] { ask(control); });
    control.WaitWhilePaused(/*wake_for_checkpoint=*/true);
    asker.join();
  }
  TrainingControl control;
  control.WaitWhilePaused(true);  // nothing to wait for
  control.Pause();
  control.Checkpoint();
  std::thread resumer([&] { control.Resume(); });
  control.WaitWhilePaused(/*wake_for_checkpoint=*/false);
  EXPECT_FALSE(control.pause_requested());
  resumer.join();
}

TEST(TrainingControlTest, RequestsAreTold) {
  TrainingControl control;
  int told = 0;
  control.TellRequests([&] {
    ++told;
    EXPECT_TRUE(control.Any()) << "it is seen by whom it wakes";
  });
  control.Pause();
  control.Release();
  control.Cancel();
  control.Stop();
  control.Checkpoint();
  EXPECT_EQ(told, 3) << "a signal handler tells nobody";
  control.Wake();
  EXPECT_EQ(told, 4);
  control.TellRequests(nullptr);
  control.Resume();
  EXPECT_EQ(told, 4);
}

}  // namespace
}  // namespace megatrain
