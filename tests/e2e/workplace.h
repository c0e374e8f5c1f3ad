// Where tests and benchmarks of the daemon work: a directory of its own with a model, data, and
// jobs made from them.
#ifndef MEGATRAIN_TESTS_E2E_WORKPLACE_H_
#define MEGATRAIN_TESTS_E2E_WORKPLACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/job_service.pb.h"
#include "tests/e2e/daemon_process.h"

namespace megatrain {

// A job's shape; the rest is the same for all.
struct JobShape {
  int64_t steps = 200;
  int64_t sequence_length = 64;
  int64_t global_batch = 4;
  int64_t micro_batch = 2;
  int64_t seed = 1;
  int64_t checkpoint_every_steps = 0;  // 0: at the end alone
  int threads = 0;                     // 0: the daemon's
  int devices = 1;                     // of the cpu
  double link_gigabytes_per_second = 0;
};

class Workplace {
 public:
  // Makes the model by `binary init --preset PRESET`.
  static absl::StatusOr<std::unique_ptr<Workplace>> Make(const std::string& binary,
                                                         const std::string& preset);
  // Removes the directory with all that is in it.
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  // Trains the job by `binary run`, which nothing disturbs; the model is then in `output`.
  absl::Status RunUndisturbed(const JobShape& shape, const std::string& output) const;
  // `output` empty: the model is not exported.
  v1::CreateJobRequest Request(const JobShape& shape, const std::string& output) const;

  // An empty directory for one daemon.
  absl::StatusOr<DaemonProcess::Options> NewDaemon(const std::string& name) const;

  const std::string& directory() const { return directory_; }
  // Seconds to read the model's files once.
  double ReadModelSeconds() const;

 private:
  Workplace(std::string binary, std::string directory);
  std::string Yaml(const JobShape& shape) const;

  const std::string binary_;
  const std::string directory_;
};

// The names and bytes of all files of a directory.
std::string DirectoryContents(const std::string& directory);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_E2E_WORKPLACE_H_
