// The file of step metrics: one JSON object a line, in step order, each line whole on disk before
// the next step begins.
#ifndef MEGATRAIN_ENGINE_TRACE_METRICS_WRITER_H_
#define MEGATRAIN_ENGINE_TRACE_METRICS_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/trace/step_record.h"

namespace megatrain {

// Thread safety: one thread at a time.
class MetricsWriter {
 public:
  // Makes the file, or opens an existing one to be continued. A file that is neither empty nor
  // begins with a step's record is refused, lest data named by mistake be lost.
  static absl::StatusOr<std::unique_ptr<MetricsWriter>> Open(const std::string& path);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // Keeps the records up to `step` and cuts off what follows: later steps, and a last line that a
  // killed process left torn.
  absl::Status TruncateTo(int64_t step);

  // Appends a line and hands it to the operating system.
  absl::Status Write(const StepRecord& record);

 private:
  MetricsWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_METRICS_WRITER_H_
