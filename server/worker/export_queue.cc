#include "server/worker/export_queue.h"

#include <cstdint>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"
#include "engine/inspect/export_checkpoint.h"

namespace megatrain {
namespace {

absl::Status Abandoned() {
  return absl::CancelledError("the export was abandoned: the server ends");
}

// Fails once `ending` is true.
absl::Status Export(const std::string& checkpoint, const std::string& directory, FileSystem* files,
                    const std::atomic<bool>& ending) {
  try {
    WatchedFileSystem watched(
        files, [&ending]() -> absl::Status { return ending ? Abandoned() : absl::OkStatus(); });
    return ExportCheckpoint(checkpoint, directory, &watched);
  } catch (const std::exception& error) {  // out of memory, a library's own
    return absl::InternalError(absl::StrCat("exporting ", checkpoint, ": ", error.what()));
  }
}

}  // namespace

// JobManager bounds how many a caller may add.
ExportQueue::ExportQueue() : queue_("exports", 1, SIZE_MAX, SIZE_MAX) {}

void ExportQueue::Stop() {
  ending_ = true;
  queue_.Stop();
}

void ExportQueue::Add(const std::string& checkpoint, const std::string& directory,
                      std::shared_ptr<FileSystem> files,
                      std::function<void(const absl::Status& status)> done) {
  const absl::Status added = queue_.Add(
      0, [this, checkpoint, directory, files = std::move(files), done](const absl::Status& status) {
        done(status.ok() ? Export(checkpoint, directory, files.get(), ending_) : Abandoned());
      });
  if (!added.ok()) done(Abandoned());
}

}  // namespace megatrain
