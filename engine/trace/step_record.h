// The report of one training step, which becomes a line of the metrics file.
#ifndef MEGATRAIN_ENGINE_TRACE_STEP_RECORD_H_
#define MEGATRAIN_ENGINE_TRACE_STEP_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace megatrain {

// A value for each lane. A lane is a queue of a step's work of one kind: copies to the device (h2d)
// and from it (d2h), computing, the optimizer on the host (update), and the disk (io).
// `device_update` is the optimizer on the device with the copies of its state, two lanes together.
// `collective` is the exchange with other devices.
template <class T>
struct ByLane {
  T h2d{}, compute{}, d2h{}, update{}, io{}, device_update{}, collective{};
};

using LaneSeconds = ByLane<double>;  // in which the lane was busy
using LaneRanks = ByLane<int64_t>;   // numbers of ranks

// A member of ByLane and its name.
template <class T>
struct NamedLane {
  const char* name;  // in JSON, in the API and in labels of metrics
  T ByLane<T>::*value;
};
// All lanes, in the order in which reports list them.
template <class T>
inline constexpr NamedLane<T> kNamedLanes[] = {{"h2d", &ByLane<T>::h2d},
                                               {"compute", &ByLane<T>::compute},
                                               {"d2h", &ByLane<T>::d2h},
                                               {"update", &ByLane<T>::update},
                                               {"io", &ByLane<T>::io},
                                               {"device_update", &ByLane<T>::device_update},
                                               {"collective", &ByLane<T>::collective}};

// RankSpread tells how evenly the ranks (devices) of a job were busy in a step.
struct RankSpread {
  int64_t ranks = 0;  // two at least
  LaneRanks slowest;  // for each lane the rank that was busy longest; of equal ones the first
  LaneSeconds mean;   // for each lane the mean over all ranks
};

// Returns the longest time of each lane. REQUIRES: `busy` is not empty.
LaneSeconds LongestOf(absl::Span<const LaneSeconds> busy);
// Returns how the lanes of ranks 0, 1, ... spread, or nullopt for a rank alone.
std::optional<RankSpread> SpreadOf(absl::Span<const LaneSeconds> busy);

// Means over pairs of answers, as DPOTrainer of TRL logs them (rewards/chosen and so on). The
// reward of an answer is beta * (log p - log p_reference), where p and p_reference are the
// probabilities that the model and the reference give it. The log-probability is the sum over the
// answer's tokens with every loss, ipo included.
struct Rewards {
  double chosen = 0, rejected = 0;
  double margins = 0;     // chosen minus rejected
  double accuracies = 0;  // the part of the pairs whose chosen answer has the higher reward
};

// The spread of a step's tokens over experts, before the update. Padding does not count. No token
// is ever dropped.
struct RouterReport {
  std::vector<double> load;  // by expert, the part of all choices in all layers; the sum is 1
  // The largest number of choices that an expert of one layer got, divided by an even share; 1 if
  // the spread is even.
  double busiest = 0;
  double entropy = 0;  // mean of RouteArgs::entropy, in nats
  // The auxiliary loss without its coefficient; missing if the job has none. If the spread is even,
  // it is the number of experts that a token chooses.
  std::optional<double> auxiliary_loss;
};

// A step's numbers.
struct StepRecord {
  int64_t step = 0;          // from 1
  double loss = 0;           // mean over unmasked predictions or pairs, before the update
  double gradient_norm = 0;  // L2, before clipping
  double learning_rate = 0;
  int64_t tokens = 0;            // predictions that count in the loss
  int64_t input_tokens = 0;      // tokens without padding
  int64_t total_tokens = 0;      // input tokens since step 1
  double step_seconds = 0;       // from the end of the step before or, if later, this step's start
  double tokens_per_second = 0;  // of input tokens
  double model_flops_per_second = 0;     // 6 * ActiveParameterCount * tokens_per_second
  int64_t h2d_bytes = 0, d2h_bytes = 0;  // of this step, all devices together
  LaneSeconds lane_busy_seconds;         // of several ranks the longest of each lane
  std::optional<RankSpread> spread;      // of several ranks: devices of one process, or processes
  // The part of compute that is matrix products; 0 where it is not measured (GPUs).
  double matmul_seconds = 0;
  // The part of compute that is the pass through the layers before the loss. With exact clipping,
  // the previous step's updates can overlap with this part only.
  double forward_seconds = 0;
  // Seconds of compute of the process's first device, by kind of operation: {"layer forward", 1.5}.
  std::map<std::string, double> compute_seconds;
  int64_t host_bytes = 0, device_bytes = 0;   // planned: of the pool, and of each device
  std::optional<double> eval_loss;            // over all evaluation data
  std::map<std::string, double> eval_losses;  // of the named sets of data.eval
  std::optional<Rewards> rewards;             // of a step over pairs of answers
  std::optional<Rewards> eval_rewards;        // beside eval_loss
  std::optional<RouterReport> router;         // of a model with experts
  std::string time;                           // RFC 3339
};

// Returns the record as one JSON object without a line end. Keys are the fields' names, but those
// of `spread` are ranks, lane_slowest_ranks, lane_mean_seconds, and slowest_rank for the compute
// lane. `router` also has the key dropped, which is 0. Members that have no value or are empty are
// left out: eval_loss, eval_losses, compute_seconds, rewards, eval_rewards, router and its
// auxiliary_loss, and the members of `spread`. A number that is not finite becomes null, so that
// the line is valid JSON.
std::string StepRecordJson(const StepRecord& record);

// Reads what StepRecordJson wrote, in this version or an earlier one. Members that StepRecordJson
// may leave out stay without a value if they are missing. Another real number that is null or
// missing becomes NaN, and a missing whole number 0. forward_seconds and the lanes' device_update
// and collective become 0 if they are missing, and compute_seconds empty. Without lane_busy_seconds
// all lanes are 0. There is no spread if `ranks` is missing or below 2. Returns DataLoss if `json`
// is not an object with a whole `step` and a `loss`.
absl::StatusOr<StepRecord> ParseStepRecord(std::string_view json);

// Returns the current time in UTC to the millisecond: "2024-05-01T12:00:00.123Z".
std::string Rfc3339Now();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_STEP_RECORD_H_
