// What a run of gpu_bench and of tests/gpu.sh found, kept in DIRECTORY/results.json and, as tables
// for RESULTS.md, in DIRECTORY/results.md: both are written anew, each at once, with every result,
// so that nothing is lost when the machine is.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_BENCH_RESULTS_H_
#define MEGATRAIN_TESTS_BENCH_GPU_BENCH_RESULTS_H_

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// Thread safety: one thread, and one process at a time for a directory.
class BenchResults {
 public:
  // Goes on with what the directory has; it is made if it is not there. Without one, results are
  // printed alone.
  static absl::StatusOr<BenchResults> Open(const std::string& directory);

  // What follows is of this item, and is to end within so many seconds.
  void Begin(const std::string& item, double seconds_max);
  const std::string& item() const { return item_; }
  bool out_of_time() const { return Clock::now() >= deadline_; }

  // Prints and writes a number; one of the same item and name is replaced. `beside` is for people.
  absl::Status Add(const std::string& name, double value, const std::string& unit,
                   const std::string& beside = "");
  // The same of what gives no number, as "does not fit this machine".
  absl::Status Note(const std::string& name, const std::string& text);
  // What the machine is, as the header of the tables: a line of "key: value" each.
  absl::Status Describe(const std::string& key, const std::string& text);
  // What became of a step of tests/gpu.sh.
  absl::Status AddStep(const std::string& phase, const std::string& step,
                       const std::string& outcome, double seconds, const std::string& detail);

  // NotFound if it is not there.
  absl::StatusOr<double> Value(const std::string& item, const std::string& name) const;
  std::string Table() const;  // as in results.md

 private:
  using Clock = std::chrono::steady_clock;
  BenchResults() = default;
  absl::Status Put(const char* list, nlohmann::json entry, const char* key, const char* name);
  absl::Status Write() const;

  std::string directory_, item_;
  Clock::time_point deadline_ = Clock::time_point::max();
  nlohmann::json all_ = {{"machine", nlohmann::json::array()},
                         {"results", nlohmann::json::array()},
                         {"steps", nlohmann::json::array()}};
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_BENCH_RESULTS_H_
