// A trainer on the device under test (device_under_test.h), with the weights of a model.
#ifndef MEGATRAIN_TESTS_ENGINE_NUMERICS_TRAINER_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_NUMERICS_TRAINER_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/job/job_spec.h"
#include "engine/memory/host_pool.h"
#include "engine/optim/adamw_updater.h"
#include "engine/plan/memory_plan.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

class TrainerFixture : public ::testing::Test {
 protected:
  // Skips the test where there is no device.
  void SetUp() override;
  void TearDown() override { Stop(); }

  // Plans the training of layout_ with 1 GiB of host memory. Fails the test if it does not fit.
  void Plan(const JobSpec& spec, MemoryPlan* plan);
  // Makes trainer_ as planned in place of the one before, and loads the weights in `directory`.
  // layout_ must be the plan's.
  void Start(const JobSpec& spec, const MemoryPlan& plan, const std::string& directory);
  void Stop();

  ModelLayout layout_;
  ThreadPool pool_{2};
  AdamWUpdater updater_{&pool_};
  std::unique_ptr<Device> device_;
  std::unique_ptr<HostPool> host_pool_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_NUMERICS_TRAINER_FIXTURE_H_
