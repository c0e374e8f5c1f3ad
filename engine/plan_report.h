// PlanReport: what a job needs on host, device and disk, what was chosen for it, and how long a
// step will take.
#ifndef MEGATRAIN_ENGINE_PLAN_REPORT_H_
#define MEGATRAIN_ENGINE_PLAN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/trace/step_record.h"

namespace megatrain {

// How long a step will take: an estimate from measured rates, before anything has run.
struct PredictedStep {
  double step_seconds = 0;  // 0: nothing is known
  double tokens_per_second = 0;
  LaneSeconds lane_busy_seconds;
  std::string bound_by;  // the busiest lane: "h2d", "compute", "d2h", "update"
};

// The decisions of a plan. No result depends on them.
struct PlanChoice {
  int micro_batches_per_sweep = 0;
  bool stash_on_host = false;
  int weight_buffers = 0;
  // Of AdamW, the share that the device does; of the first layer's, which may differ.
  double device_update_share = 0, first_layer_device_update_share = 0;
  // Layers whose activations are kept for backward, all of them or a part; the rest is recomputed.
  int layers_kept_whole = 0, layers_kept_partly = 0;
  PredictedStep predicted;
};

struct PlanReport {
  struct Item {
    std::string name;  // "tiles", "gradient slabs"
    int64_t bytes = 0;
  };
  bool fits = false;
  std::string misfit;   // what does not fit, in bytes; empty if the job fits
  std::string table;    // the whole report, for people
  std::string profile;  // the machine's, if it is planned for one that is not here
  std::string model_family;
  int64_t parameters = 0;
  std::vector<Item> host, device;  // by kind
  int64_t pool_bytes = 0;          // of the host pool
  int64_t host_bytes = 0;  // the pool's, the process', and the device's where it shares the host
  std::optional<int64_t> host_limit_bytes;  // nothing: no limit is known
  int64_t device_bytes = 0;
  int64_t device_limit_bytes = 0;
  int64_t device_reserve_bytes = 0;  // left free beside the limit, for what is loaded later
  int64_t checkpoint_bytes = 0;      // of one checkpoint on disk
  int64_t micro_batches = 0;         // of a step
  int gradient_slabs = 0;
  PlanChoice choice;  // `predicted` in it: of a job that fits, if the rates are known
  // The best of the plans that were not chosen, and what the rule for machines of unknown rates
  // would have chosen if that is another. Nothing: the job leaves no other choice, or there is no
  // prediction.
  std::optional<PlanChoice> runner_up, by_rule;
};

// One JSON object, indented, with a line end. `table` and `model_family` are not in it.
std::string PlanJson(const PlanReport& report);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_REPORT_H_
