#include "engine/inspect/inspect_checkpoint.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint.h"

namespace megatrain {

absl::StatusOr<ModelReport> InspectCheckpoint(const std::string& checkpoint) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint));
  ModelReport report;
  if (manifest.part.has_value()) {
    report.text = absl::StrCat("part        ", manifest.part->number + 1, " of ",
                               manifest.part->parts, "; `megatraind gather` joins them\n");
  } else {
    MT_ASSIGN_OR_RETURN(report, InspectModel(checkpoint));
  }
  const CheckpointState& state = manifest.state;
  report.text =
      absl::StrCat("step        ", state.step, " of ", state.steps_total, "\n",              //
                   "sequences   ", FormatCount(state.data_position), " seen\n",              //
                   "precision   ", PrecisionName(state.weight_dtype), "\n",                  //
                   "threads     ", state.threads, "\n",                                      //
                   "made on     ", state.arithmetic.empty() ? "-" : state.arithmetic, "\n",  //
                   "on disk     ", FormatBytes(manifest.total_bytes()), "\n", report.text);
  const Evaluations& evaluations = state.evaluations;
  if (evaluations.kept_step > 0) {
    report.text = absl::StrCat("best        step ", evaluations.kept_step, ", eval_loss ",
                               evaluations.kept_loss, "\n", report.text);
  }
  report.json["kind"] = "checkpoint";
  nlohmann::ordered_json& entry = report.json["checkpoint"];
  entry["step"] = state.step;
  entry["steps_total"] = state.steps_total;
  entry["data_position"] = state.data_position;
  entry["seed"] = state.seed;
  entry["weight_dtype"] = DTypeName(state.weight_dtype);
  entry["threads"] = state.threads;
  entry["arithmetic"] = state.arithmetic;
  if (evaluations.kept_step > 0) {
    entry["best"] = {{"step", evaluations.kept_step}, {"eval_loss", evaluations.kept_loss}};
  }
  entry["bytes"] = manifest.total_bytes();
  if (manifest.part.has_value()) {
    entry["part"] = {{"number", manifest.part->number + 1}, {"of", manifest.part->parts}};
  }
  entry["spec"] = state.spec;
  return report;
}

}  // namespace megatrain
