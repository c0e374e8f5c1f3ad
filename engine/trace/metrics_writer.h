// Writes the file of step metrics: one JSON object on each line, in step order.
#ifndef MEGATRAIN_ENGINE_TRACE_METRICS_WRITER_H_
#define MEGATRAIN_ENGINE_TRACE_METRICS_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// Thread safety: one thread at a time. Errors are Unavailable for a full disk and InvalidArgument
// otherwise; messages name the file.
class MetricsWriter {
 public:
  // Creates the file, or opens an existing one to be continued. Returns InvalidArgument for an
  // existing file that is not empty and does not begin with a step's record, whole or torn, so that
  // data named by mistake is not lost.
  static absl::StatusOr<std::unique_ptr<MetricsWriter>> Open(const std::string& path);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // Cuts the file off at the first record of a later step than `step`, or at the first line that is
  // no whole record, such as one that a killed process left. Does nothing if the path is not a
  // regular file.
  absl::Status TruncateTo(int64_t step);

  // Appends a line and passes it to the operating system; it is not synced to the disk. After an
  // error a part of the line may be in the file, and a later Write would continue that line. Call
  // TruncateTo first, or write no more.
  absl::Status Write(const StepRecord& record);

 private:
  MetricsWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_METRICS_WRITER_H_
