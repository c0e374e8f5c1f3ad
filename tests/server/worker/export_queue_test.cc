#include "server/worker/export_queue.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/server/worker/engine_job_fixture.h"

namespace megatrain {
namespace {

using ExportQueueTest = EngineJobRunnerTest;

TEST_F(ExportQueueTest, ExportsBesideARunningJob) {
  const JobSpec spec = Spec("exported"), other_spec = Spec("beside_export");
  ObservedJob job("a"), other("b");
  ASSERT_EQ(Run(job, spec).kind, RunEnd::Kind::kFinished);
  const std::string directory = FreshDirectory("export_out") + "/model";
  ASSERT_TRUE(Start(other, other_spec).ok());
  Mutex mutex;
  CondVar changed;
  std::vector<absl::Status> done;
  const auto note = [&](const absl::Status& status) {
    MutexLock lock(&mutex);
    done.push_back(status);
    changed.NotifyAll();
  };
  const auto files = *FilesOfProcess()(-1, "");
  ExportQueue exports;
  exports.Add(spec.checkpoint.directory + "/step-00000004", directory, files, note);
  exports.Add("/nowhere/step-00000004", directory + "2", files, note);
  EXPECT_EQ(other.End().kind, RunEnd::Kind::kFinished);
  MutexLock lock(&mutex);
  while (done.size() < 2) changed.Wait(&mutex);
  EXPECT_TRUE(done[0].ok()) << done[0];
  EXPECT_EQ(done[1].code(), absl::StatusCode::kNotFound) << done[1];
  EXPECT_TRUE(std::filesystem::exists(directory + "/model.safetensors"));
}

TEST_F(ExportQueueTest, NothingIsExportedAfterStop) {
  ExportQueue exports;
  exports.Stop();
  absl::Status told;
  exports.Add("/nowhere/step-00000004", "/nowhere/model", *FilesOfProcess()(-1, ""),
              [&](const absl::Status& status) { told = status; });
  EXPECT_EQ(told.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace megatrain
