// The daemon's gRPC server over a real store, table and records in directories of the test, without
// an engine: the test plays its part.
#ifndef MEGATRAIN_TESTS_SERVER_API_SERVICE_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_API_SERVICE_FIXTURE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/mutex.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/node_service.grpc.pb.h"
#include "server/api/serve_api.h"
#include "server/identity/authenticator.h"
#include "server/manager/job_ledger.h"
#include "server/manager/job_manager.h"
#include "server/transport/grpc_server.h"
#include "server/worker/job_records.h"

namespace megatrain {

// Callers name themselves in the metadata "test-user": "anna" and "bob" are users, "root" is an
// administrator, everyone else is not known.
class TestAuthenticator : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const override;

  // Calls that it was asked of.
  mutable std::atomic<int> asked{0};
  // Who calls without a name.
  std::string nameless;
};

// The engine, for calls that need it at once. What it answers is told it beforehand.
class TestEngine {
 public:
  void AnswerCheckpointsWith(const absl::Status& status) {
    MutexLock lock(&mutex_);
    checkpoint_status_ = status;
  }
  void AnswerExportsWith(const absl::Status& status) {
    MutexLock lock(&mutex_);
    export_status_ = status;
  }
  // Exports end with EndExport.
  void HoldExports() {
    MutexLock lock(&mutex_);
    holds_exports_ = true;
  }
  void EndExport() {
    MutexLock lock(&mutex_);
    export_done_(export_status_);
  }

  absl::Status Checkpoint() {
    MutexLock lock(&mutex_);
    ++checkpoints_;
    return checkpoint_status_;
  }
  void Export(const std::string& checkpoint, const std::string& directory,
              std::function<void(const absl::Status& status)> done) {
    MutexLock lock(&mutex_);
    exported_ = checkpoint + " to " + directory;
    if (holds_exports_) {
      export_done_ = std::move(done);
    } else {
      done(export_status_);
    }
  }

  int Checkpoints() {
    MutexLock lock(&mutex_);
    return checkpoints_;
  }
  // "CHECKPOINT to DIRECTORY", of the last one.
  std::string Exported() {
    MutexLock lock(&mutex_);
    return exported_;
  }

 private:
  Mutex mutex_;
  int checkpoints_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status checkpoint_status_ ABSL_GUARDED_BY(mutex_);
  bool holds_exports_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status export_status_ ABSL_GUARDED_BY(mutex_);
  std::string exported_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const absl::Status& status)> export_done_ ABSL_GUARDED_BY(mutex_);
};

// A short path, as sockets need; removed with all it holds.
class ShortDirectory {
 public:
  ShortDirectory();
  ~ShortDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // The daemon's end and new beginning on the same state; `plan` and engine stay.
  void StopDaemon();
  void StartDaemon();

  // A job file whose model and data are there.
  std::string Yaml(const std::string& name = "demo") const;
  v1::CreateJobRequest CreateRequest(const std::string& name = "demo") const;
  // The id of a new job of `user`.
  std::string Create(const std::string& user = "anna", const std::string& name = "demo");
  void Move(const std::string& id, JobState to, JobReason reason = JobReason::kNone);
  // As if step `step` had just been made.
  void AddStep(const std::string& id, int64_t step);
  void AddLine(const std::string& id, const std::string& text);
  std::shared_ptr<JobRecords> Records(const std::string& id);

  std::shared_ptr<grpc::Channel> Channel() const;

  ShortDirectory directory_;
  TestAuthenticator authenticator_;
  TestEngine engine_;
  std::function<absl::StatusOr<PlanReport>(const JobSpec& spec)> plan_;
  GrpcServerOptions options_;
  v1::Node node_;

  std::unique_ptr<JobLedger> ledger_;
  std::unique_ptr<JobManager> manager_;
  std::unique_ptr<JobRecordsDirectory> records_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::NodeService::Stub> nodes_;
};

// Waits for what must come; a failure of the test if it does not within a minute.
void WaitUntil(const std::function<bool()>& condition);

// A client's context as `user`, with a deadline that no sound call meets.
std::unique_ptr<grpc::ClientContext> As(const std::string& user);

// The ErrorInfo of a failed call; a failure of the test if it has none.
google::rpc::ErrorInfo InfoOf(const grpc::Status& status);
// "NOT_FOUND JOB_NOT_FOUND", "OK".
std::string CodeAndReason(const grpc::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_API_SERVICE_FIXTURE_H_
