// What the calls of users need of the scheduler at once, beyond changes of state that it sees by
// itself.
#ifndef MEGATRAIN_SERVER_MANAGER_JOB_DRIVER_H_
#define MEGATRAIN_SERVER_MANAGER_JOB_DRIVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/base/file.h"

namespace megatrain {

// Thread safety: all methods may be called from any thread; none waits on the engine.
class JobDriver {
 public:
  virtual ~JobDriver() = default;

  // Asks the running job for a checkpoint. NotFound if it does not run any more.
  virtual absl::Status Checkpoint(const std::string& id) = 0;
  // As JobRunner::Export.
  virtual void Export(const std::string& checkpoint, const std::string& directory,
                      std::shared_ptr<FileSystem> files,
                      std::function<void(const absl::Status& status)> done) = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_MANAGER_JOB_DRIVER_H_
