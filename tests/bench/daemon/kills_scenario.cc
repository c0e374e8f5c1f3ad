#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "tests/bench/daemon/kill_run.h"
#include "tests/bench/daemon/scenarios.h"
#include "tests/e2e/workplace.h"

namespace megatrain {

absl::Status MeasureKills(const BenchOptions& options, Report* report) {
  MT_ASSIGN_OR_RETURN(const auto place, Workplace::Make(options.binary, "llama-tiny"));
  KillRunOptions kills;
  kills.seed = options.seed;
  kills.kills = options.kills;
  kills.shape = {.steps = 300, .checkpoint_every_steps = 20, .threads = 1};
  MT_ASSIGN_OR_RETURN(const KillRunResult result, RunKills(*place, kills));
  report->Note(absl::StrCat("kill -9 at random moments, ", options.kills, " times"),
               absl::StrCat("nothing lost, the same bits in ", result.jobs, " models"));
  std::string states;
  for (const auto& [state, count] : result.killed) {
    absl::StrAppend(&states, states.empty() ? "" : ", ", state, " ", count);
  }
  report->Note("  jobs killed in", states);
  report->Note("  daemons killed before they were ready", absl::StrCat(result.kills_before_ready));
  report->Note("  events; records of steps",
               absl::StrCat(result.events, "; ", result.records, ", ",
                            result.records - result.jobs * kills.shape.steps,
                            " of them repeated steps and their marks"));
  return absl::OkStatus();
}

}  // namespace megatrain
