#include "server/worker/export_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/watched_file_system.h"
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

TEST_F(ExportQueueTest, StopAbandonsTheOneThatRunsAndThoseThatWait) {
  const JobSpec spec = Spec("abandoned");
  ObservedJob job("a");
  ASSERT_EQ(Run(job, spec).kind, RunEnd::Kind::kFinished);
  const std::string checkpoint = spec.checkpoint.directory + "/step-00000004";
  const std::string directory = FreshDirectory("abandoned_out") + "/model";
  std::promise<void> begun, released;
  std::atomic<int> reads{0};
  const auto files = std::make_shared<WatchedFileSystem>(PosixFileSystem(), [&]() -> absl::Status {
    if (reads++ > 0) return absl::OkStatus();
    begun.set_value();
    released.get_future().wait();
    return absl::OkStatus();
  });
  absl::Status first, second;
  ExportQueue exports;
  exports.Add(checkpoint, directory, files, [&](const absl::Status& status) { first = status; });
  exports.Add(checkpoint, directory, files, [&](const absl::Status& status) { second = status; });
  begun.get_future().wait();
  std::thread stopper([&] { exports.Stop(); });
  // Once Stop has begun, `done` is called before Add returns.
  for (bool stopping = false; !stopping;) {
    const auto told = std::make_shared<std::atomic<bool>>(false);
    exports.Add(checkpoint, directory, files, [told](const absl::Status&) { *told = true; });
    stopping = *told;
  }
  released.set_value();
  stopper.join();
  EXPECT_EQ(first.code(), absl::StatusCode::kCancelled) << first;
  EXPECT_THAT(std::string(first.message()), ::testing::HasSubstr("the server ends"));
  EXPECT_EQ(second, first);
  EXPECT_EQ(reads, 1);
  EXPECT_FALSE(std::filesystem::exists(directory));
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
