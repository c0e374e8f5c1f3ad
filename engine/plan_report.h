// PlanReport tells the memory that a job needs on host, device and disk, the choices that were made
// for it, and how long a step will take.
#ifndef MEGATRAIN_ENGINE_PLAN_REPORT_H_
#define MEGATRAIN_ENGINE_PLAN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/trace/step_record.h"

namespace megatrain {

// The estimated duration of a step, from the machine's rates, before anything has run.
struct PredictedStep {
  double step_seconds = 0;       // 0 if there is no prediction
  double tokens_per_second = 0;  // for sequences without padding
  // The lanes' work in one step. h2d and d2h include the copies of device updates. io and
  // device_update are 0.
  LaneSeconds lane_busy_seconds;
  // The busiest of the lanes "h2d", "compute", "d2h", "update" and "collective". Device updates and
  // io are not compared.
  std::string bound_by;
};

// The decisions of a plan. The results of training do not depend on them.
struct PlanChoice {
  int micro_batches_per_sweep = 0;  // that a layer computes before the next layer is loaded
  bool stash_on_host = false;       // hidden states wait there for backward; else on the device
  int weight_buffers = 0;  // tiles of weights (engine/model/tile.h) on the device at a time
  // The parts of AdamW's work that run on the device, from 0 to 1. The first number is for all
  // tiles but the embedding's, which is always updated on the host. The second is for the first
  // layer and may differ if gradients are clipped.
  double device_update_share = 0, first_layer_device_update_share = 0;
  // A pair is a micro-batch of a sweep in a dense layer, or in the attention half of a layer with
  // experts. These numbers of pairs keep their activations for the backward pass: all activations,
  // or all but the cheap ones. The other pairs are recomputed.
  int activations_kept_whole = 0, activations_kept_partly = 0;
  // Each of several devices loads "shards" of tiles and gathers the rest, or "whole" tiles. Empty
  // for one device.
  std::string loads;
  PredictedStep predicted;
};

struct PlanReport {
  struct Item {
    std::string name;  // "tiles", "gradient slabs"
    int64_t bytes = 0;
  };
  // A device of the host that the job may have.
  struct Place {
    int number = 0;        // on the host
    std::string name;      // "cuda:1"
    int64_t bytes = 0;     // of its own memory that the job may plan with
    bool fits = false;     // the job fits there, beside as many like it as the job needs
    bool planned = false;  // this report is of it: the device that the job gets on an idle host
  };
  bool fits = false;
  std::string misfit;   // the kinds of memory that do not suffice, in bytes; empty if it fits
  std::string table;    // the whole report, for people
  std::string profile;  // the name of the MachineProfile; empty if none was given
  std::string model_family;
  int64_t parameters = 0;
  std::vector<Item> host, device;  // bytes by kind
  int64_t pool_bytes = 0;          // bytes of the host pool
  int64_t host_bytes = 0;          // pool and process, and the device's bytes if it shares the host
  std::optional<int64_t> host_limit_bytes;  // nullopt if no limit is known
  int64_t device_bytes = 0;
  int64_t device_limit_bytes = 0;
  int64_t device_reserve_bytes = 0;  // left free beside the limit, for what is loaded later
  int64_t checkpoint_bytes = 0;      // of one checkpoint on disk
  int devices = 1;                   // that share a step, on all nodes; device_bytes are of one
  int nodes = 1;                     // machines that have these devices; host bytes are of one
  // The devices on which the job may run, in the order in which it is given them. Empty if devices
  // have no memory of their own, or are not known.
  std::vector<Place> places;
  int64_t micro_batches = 0;  // of a step, on each device at most
  int gradient_slabs = 0;     // host buffers, each for the gradient of one tile
  PlanChoice choice;          // has a prediction if the job fits and the rates are known
  // The choice has the shortest predicted step. Otherwise it is the rule's plan (device_fit.h),
  // which was kept because no other was worthwhile or the rates are unknown.
  bool chosen_by_time = false;
  // `runner_up` is the best of the other plans. It is nullopt if no other plan was compared. If the
  // rule's plan was chosen, the runner-up's step may be shorter, but not by a worthwhile part.
  // `by_rule` is the rule's plan. It is nullopt if that plan was chosen or does not fit; it may be
  // the runner-up too. Without a prediction both are nullopt.
  std::optional<PlanChoice> runner_up, by_rule;
};

// Returns one JSON object, indented, with a line end. Keys are the names of the fields, those of
// `choice` beside the report's, with these exceptions: "stash" is "host" or "device",
// "layers_kept_whole" and "layers_kept_partly" are the activations kept, "chosen_by" is "time" or
// "rule", "predicted_step" is `predicted`, and a place has "device" (its name) and "free_bytes".
// `host` and `device` are objects {name: bytes}. An unknown `host_limit_bytes` is null. `table`,
// `model_family` and Place::number are not in it. These are left out where they say nothing:
// `profile` if empty, `misfit` if the job fits, `device_reserve_bytes` if 0, `nodes` if 1, `places`
// and `loads` if empty, and predictions that were not made, with "chosen_by".
std::string PlanJson(const PlanReport& report);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PLAN_REPORT_H_
