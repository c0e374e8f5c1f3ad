// One save in the background, on the io lane while training goes on. A failed save ends the save,
// not the training: the status waits here to be asked for.
#ifndef MEGATRAIN_ENGINE_RUN_CHECKPOINT_JOB_H_
#define MEGATRAIN_ENGINE_RUN_CHECKPOINT_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/model/tile.h"

namespace megatrain {

class CheckpointJob {
 public:
  CheckpointJob(std::unique_ptr<CheckpointWriter> writer, Retention retention)
      : writer_(std::move(writer)), retention_(std::move(retention)) {}

  // Called from the io lane.
  void SaveTile(int index, const Tile& tile) {
    if (!status_.ok()) return;
    status_ = writer_->WriteTile(index, tile);
    if (!status_.ok()) Close();  // removes what was written: the disk may be full
  }
  void Finish() {
    if (!status_.ok()) return;
    absl::StatusOr<std::string> directory = writer_->Finish(retention_);
    status_ = directory.status();
    if (directory.ok()) directory_ = *std::move(directory);
    Close();
  }

  // After the save's ticket has been waited for.
  const absl::Status& status() const { return status_; }
  const std::string& directory() const { return directory_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void Close() {
    notes_ = writer_->notes();
    writer_.reset();
  }

  std::unique_ptr<CheckpointWriter> writer_;
  const Retention retention_;
  absl::Status status_;
  std::string directory_;
  std::vector<std::string> notes_;  // lines for the log
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_CHECKPOINT_JOB_H_
