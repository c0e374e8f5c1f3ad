#include "engine/plan_report.h"

#include <nlohmann/json.hpp>

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const std::vector<PlanReport::Item>& items) {
  Json object = Json::object();
  for (const PlanReport::Item& item : items) object[item.name] = item.bytes;
  return object;
}

Json ToJson(const PredictedStep& predicted) {
  const LaneSeconds& busy = predicted.lane_busy_seconds;
  return {{"step_seconds", predicted.step_seconds},
          {"tokens_per_second", predicted.tokens_per_second},
          {"bound_by", predicted.bound_by},
          {"lane_busy_seconds",
           {{"h2d", busy.h2d},
            {"compute", busy.compute},
            {"d2h", busy.d2h},
            {"update", busy.update},
            {"collective", busy.collective}}}};
}

void AddChoice(const PlanChoice& choice, Json* json) {
  (*json)["micro_batches_per_sweep"] = choice.micro_batches_per_sweep;
  (*json)["stash"] = choice.stash_on_host ? "host" : "device";
  (*json)["weight_buffers"] = choice.weight_buffers;
  (*json)["device_update_share"] = choice.device_update_share;
  (*json)["first_layer_device_update_share"] = choice.first_layer_device_update_share;
  (*json)["layers_kept_whole"] = choice.activations_kept_whole;
  (*json)["layers_kept_partly"] = choice.activations_kept_partly;
  if (!choice.loads.empty()) (*json)["loads"] = choice.loads;
}

Json ToJson(const PlanChoice& other) {
  Json json;
  AddChoice(other, &json);
  json["predicted_step"] = ToJson(other.predicted);
  return json;
}

}  // namespace

std::string PlanJson(const PlanReport& report) {
  Json json;
  if (!report.profile.empty()) json["profile"] = report.profile;
  json["fits"] = report.fits;
  if (!report.fits) json["misfit"] = report.misfit;
  json["parameters"] = report.parameters;
  json["host"] = ToJson(report.host);
  json["host_bytes"] = report.host_bytes;
  json["host_limit_bytes"] =
      report.host_limit_bytes.has_value() ? Json(*report.host_limit_bytes) : Json(nullptr);
  json["pool_bytes"] = report.pool_bytes;
  json["device"] = ToJson(report.device);
  json["device_bytes"] = report.device_bytes;
  json["device_limit_bytes"] = report.device_limit_bytes;
  if (report.device_reserve_bytes > 0) json["device_reserve_bytes"] = report.device_reserve_bytes;
  json["checkpoint_bytes"] = report.checkpoint_bytes;
  json["devices"] = report.devices;
  if (report.nodes > 1) json["nodes"] = report.nodes;
  for (const PlanReport::Place& place : report.places) {
    json["places"].push_back({{"device", place.name},
                              {"free_bytes", place.bytes},
                              {"fits", place.fits},
                              {"planned", place.planned}});
  }
  json["micro_batches"] = report.micro_batches;
  AddChoice(report.choice, &json);
  json["gradient_slabs"] = report.gradient_slabs;
  if (report.choice.predicted.step_seconds > 0) {
    json["predicted_step"] = ToJson(report.choice.predicted);
    json["chosen_by"] = report.chosen_by_time ? "time" : "rule";
    if (report.runner_up.has_value()) json["runner_up"] = ToJson(*report.runner_up);
    if (report.by_rule.has_value()) json["by_rule"] = ToJson(*report.by_rule);
  }
  return json.dump(2) + "\n";
}

}  // namespace megatrain
