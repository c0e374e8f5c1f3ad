#include "engine/trace/step_record.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/json.h"

namespace megatrain {
namespace {

double Number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::numeric_limits<double>::quiet_NaN();
  return found->get<double>();
}

// The numbers of an object; none if there is no such object.
std::map<std::string, double> NumbersIn(const nlohmann::json& json, const char* key) {
  std::map<std::string, double> numbers;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return numbers;
  for (const auto& [name, number] : found->items()) numbers[name] = Number(*found, name.c_str());
  return numbers;
}

int64_t Whole(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

template <class T>
nlohmann::ordered_json ToJson(const ByLane<T>& lanes) {
  nlohmann::ordered_json json;
  for (const NamedLane<T>& lane : kNamedLanes<T>) json[lane.name] = lanes.*lane.value;
  return json;
}

LaneSeconds SecondsIn(const nlohmann::json& json, const char* key) {
  LaneSeconds seconds;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return seconds;
  for (const auto& lane : kNamedLanes<double>) {
    // Earlier versions did not have these.
    const bool may_lack =
        lane.value == &LaneSeconds::device_update || lane.value == &LaneSeconds::collective;
    if (may_lack && !found->contains(lane.name)) continue;
    seconds.*lane.value = Number(*found, lane.name);
  }
  return seconds;
}

std::optional<RankSpread> SpreadIn(const nlohmann::json& json) {
  RankSpread spread;
  spread.ranks = Whole(json, "ranks");
  if (spread.ranks < 2) return std::nullopt;
  if (const auto found = json.find("lane_slowest_ranks");
      found != json.end() && found->is_object()) {
    for (const auto& lane : kNamedLanes<int64_t>) {
      spread.slowest.*lane.value = Whole(*found, lane.name);
    }
  }
  spread.mean = SecondsIn(json, "lane_mean_seconds");
  return spread;
}

nlohmann::ordered_json ToJson(const Rewards& rewards) {
  return {{"chosen", rewards.chosen},
          {"rejected", rewards.rejected},
          {"margins", rewards.margins},
          {"accuracies", rewards.accuracies}};
}

std::optional<Rewards> RewardsIn(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return std::nullopt;
  return Rewards{Number(*found, "chosen"), Number(*found, "rejected"), Number(*found, "margins"),
                 Number(*found, "accuracies")};
}

nlohmann::ordered_json ToJson(const RouterReport& router) {
  nlohmann::ordered_json json = {{"load", router.load},
                                 {"busiest", router.busiest},
                                 {"entropy", router.entropy},
                                 {"dropped", 0}};
  if (router.auxiliary_loss.has_value()) json["auxiliary_loss"] = *router.auxiliary_loss;
  return json;
}

std::optional<RouterReport> RouterIn(const nlohmann::json& json) {
  const auto found = json.find("router");
  if (found == json.end() || !found->is_object()) return std::nullopt;
  RouterReport router;
  if (const auto load = found->find("load"); load != found->end() && load->is_array()) {
    for (const nlohmann::json& part : *load) {
      router.load.push_back(part.is_number() ? part.get<double>()
                                             : std::numeric_limits<double>::quiet_NaN());
    }
  }
  router.busiest = Number(*found, "busiest");
  router.entropy = Number(*found, "entropy");
  if (found->contains("auxiliary_loss")) router.auxiliary_loss = Number(*found, "auxiliary_loss");
  return router;
}

}  // namespace

LaneSeconds LongestOf(absl::Span<const LaneSeconds> busy) {
  LaneSeconds longest = busy.front();
  for (const LaneSeconds& rank : busy) {
    for (const auto& lane : kNamedLanes<double>) {
      longest.*lane.value = std::max(longest.*lane.value, rank.*lane.value);
    }
  }
  return longest;
}

std::optional<RankSpread> SpreadOf(absl::Span<const LaneSeconds> busy) {
  if (busy.size() < 2) return std::nullopt;
  RankSpread spread;
  spread.ranks = static_cast<int64_t>(busy.size());
  for (size_t i = 0; i < std::size(kNamedLanes<double>); ++i) {
    const auto seconds = kNamedLanes<double>[i].value;
    double sum = 0;
    int64_t slowest = 0;
    for (int64_t rank = 0; rank < spread.ranks; ++rank) {
      sum += busy[rank].*seconds;
      if (busy[rank].*seconds > busy[slowest].*seconds) slowest = rank;
    }
    spread.slowest.*kNamedLanes<int64_t>[i].value = slowest;
    spread.mean.*seconds = sum / static_cast<double>(spread.ranks);
  }
  return spread;
}

std::string StepRecordJson(const StepRecord& record) {
  // nlohmann writes the shortest text that reads back as the same double, and null for NaN and
  // infinities.
  nlohmann::ordered_json json;
  json["step"] = record.step;
  json["loss"] = record.loss;
  json["gradient_norm"] = record.gradient_norm;
  json["learning_rate"] = record.learning_rate;
  json["tokens"] = record.tokens;
  json["input_tokens"] = record.input_tokens;
  json["total_tokens"] = record.total_tokens;
  json["step_seconds"] = record.step_seconds;
  json["tokens_per_second"] = record.tokens_per_second;
  json["model_flops_per_second"] = record.model_flops_per_second;
  json["h2d_bytes"] = record.h2d_bytes;
  json["d2h_bytes"] = record.d2h_bytes;
  json["lane_busy_seconds"] = ToJson(record.lane_busy_seconds);
  if (record.spread.has_value()) {
    json["slowest_rank"] = record.spread->slowest.compute;
    json["ranks"] = record.spread->ranks;
    json["lane_slowest_ranks"] = ToJson(record.spread->slowest);
    json["lane_mean_seconds"] = ToJson(record.spread->mean);
  }
  json["matmul_seconds"] = record.matmul_seconds;
  json["forward_seconds"] = record.forward_seconds;
  if (!record.compute_seconds.empty()) json["compute_seconds"] = record.compute_seconds;
  json["host_bytes"] = record.host_bytes;
  json["device_bytes"] = record.device_bytes;
  if (record.eval_loss.has_value()) json["eval_loss"] = *record.eval_loss;
  if (!record.eval_losses.empty()) json["eval_losses"] = record.eval_losses;
  if (record.rewards.has_value()) json["rewards"] = ToJson(*record.rewards);
  if (record.eval_rewards.has_value()) json["eval_rewards"] = ToJson(*record.eval_rewards);
  if (record.router.has_value()) json["router"] = ToJson(*record.router);
  json["time"] = record.time;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<StepRecord> ParseStepRecord(std::string_view text) {
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text, "step metrics");
  if (!parsed.ok()) return absl::DataLossError(parsed.status().message());
  const nlohmann::json& json = *parsed;
  if (!json.is_object() || !json.contains("loss") || !json.contains("step") ||
      !json["step"].is_number_integer()) {
    return absl::DataLossError("step metrics: expects an object with step and loss");
  }
  StepRecord record;
  record.step = Whole(json, "step");
  record.loss = Number(json, "loss");
  record.gradient_norm = Number(json, "gradient_norm");
  record.learning_rate = Number(json, "learning_rate");
  record.tokens = Whole(json, "tokens");
  record.input_tokens = Whole(json, "input_tokens");
  record.total_tokens = Whole(json, "total_tokens");
  record.step_seconds = Number(json, "step_seconds");
  record.tokens_per_second = Number(json, "tokens_per_second");
  record.model_flops_per_second = Number(json, "model_flops_per_second");
  record.h2d_bytes = Whole(json, "h2d_bytes");
  record.d2h_bytes = Whole(json, "d2h_bytes");
  record.lane_busy_seconds = SecondsIn(json, "lane_busy_seconds");
  record.spread = SpreadIn(json);
  record.matmul_seconds = Number(json, "matmul_seconds");
  if (json.contains("forward_seconds")) record.forward_seconds = Number(json, "forward_seconds");
  record.host_bytes = Whole(json, "host_bytes");
  record.device_bytes = Whole(json, "device_bytes");
  if (json.contains("eval_loss")) record.eval_loss = Number(json, "eval_loss");
  record.eval_losses = NumbersIn(json, "eval_losses");
  record.compute_seconds = NumbersIn(json, "compute_seconds");
  record.rewards = RewardsIn(json, "rewards");
  record.eval_rewards = RewardsIn(json, "eval_rewards");
  record.router = RouterIn(json);
  if (const auto time = json.find("time"); time != json.end() && time->is_string()) {
    record.time = time->get<std::string>();
  }
  return record;
}

std::string Rfc3339Now() {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

}  // namespace megatrain
