#include "engine/run/start/resume_point.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/checkpoint/manifest.h"
#include "engine/comm/exchange.h"
#include "engine/comm/launch_environment.h"
#include "engine/job/spec_values.h"
#include "engine/run/start/processes.h"

namespace megatrain {
namespace {

void NoteDamage(RunContext& run, const DamagedCheckpoint& damaged, ResumePoint& point) {
  run.Say(absl::StrCat("damaged checkpoint: ", damaged.what));
  point.retention.damaged.push_back(damaged.step);
}

absl::Status FindNewest(RunContext& run, ResumePoint& point) {
  const std::string& directory = run.spec().checkpoint.directory;
  const size_t known = point.damaged.size();
  MT_ASSIGN_OR_RETURN(point.checkpoint, FindNewestToLoad(directory, &point.damaged, run.files()));
  for (size_t i = known; i < point.damaged.size(); ++i) NoteDamage(run, point.damaged[i], point);
  if (!point.checkpoint.has_value() && !point.damaged.empty()) {
    return absl::DataLossError(
        absl::StrCat("every checkpoint in ", directory, " is damaged (", point.damaged.front().what,
                     "); remove them, or use another checkpoint.directory, to begin anew"));
  }
  return absl::OkStatus();
}

// Returns the save that `path` is a part of, "" if it is damaged or no part.
absl::StatusOr<std::string> SaveOf(const std::string& path, FileSystem* files) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(path, files);
  // One of another version is no part of a save of this one.
  if (IsDamagedCheckpoint(manifest.status()) || absl::IsFailedPrecondition(manifest.status())) {
    return "";
  }
  MT_RETURN_IF_ERROR(manifest.status());
  return manifest->part.has_value() ? manifest->part->save : "";
}

// Returns the saves of the checkpoints in `directory`, each followed by a blank.
absl::StatusOr<std::string> NamedSaves(const std::string& directory, FileSystem* files) {
  std::string saves;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> present, ListCheckpoints(directory, files));
  for (const std::string& path : present) {
    MT_ASSIGN_OR_RETURN(const std::string save, SaveOf(path, files));
    absl::StrAppend(&saves, save, " ");
  }
  return saves;
}

// Gives its name to the part of a save that has its name on another machine. A name there proves
// that all parts were verified. Adds a line for the log for each.
absl::Status NameWhatOthersHaveNamed(RunContext& run, const DirectoryRanks& ranks,
                                     std::vector<std::string>& lines) {
  const std::string& directory = run.spec().checkpoint.directory;
  absl::StatusOr<std::string> named = std::string();
  if (ranks.leads()) named = NamedSaves(directory, run.files());
  std::string by_others;
  MT_RETURN_IF_ERROR(ExchangeBytes(run.process_communicator(), named.value_or(""),
                                   [&](int rank, absl::string_view saves) {
                                     if (!ranks.Shares(rank)) absl::StrAppend(&by_others, saves);
                                   }));
  MT_RETURN_IF_ERROR(named.status());
  if (!ranks.leads()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, run.files()->ListDirectory(directory));
  for (const std::string& name : names) {
    absl::string_view step = name;
    if (!absl::ConsumeSuffix(&step, kUnfinishedSuffix) || !ParseStepDirectoryName(step)) continue;
    const std::string path = JoinPath(directory, name);
    const std::string final_path = JoinPath(directory, std::string(step));
    MT_ASSIGN_OR_RETURN(const std::string save, SaveOf(path, run.files()));
    if (save.empty() || !absl::StrContains(by_others, save) ||
        run.files()->FileExists(final_path)) {
      continue;
    }
    const absl::Status whole = VerifyAllButTileContents(path, run.files());
    if (IsDamagedCheckpoint(whole)) continue;
    MT_RETURN_IF_ERROR(whole);
    MT_RETURN_IF_ERROR(run.files()->Rename(path, final_path));
    MT_RETURN_IF_ERROR(run.files()->SyncDirectory(directory));
    lines.push_back(absl::StrCat("gave ", final_path, " its name, as another machine has"));
  }
  return absl::OkStatus();
}

// Tells in the first process' log what those that lead on other machines have to say.
absl::Status SayOfOtherMachines(RunContext& run, const DirectoryRanks& ranks,
                                const std::vector<std::string>& lines) {
  const std::string own = ranks.leads() ? absl::StrJoin(lines, "\n") : "";
  return ExchangeBytes(run.process_communicator(), own, [&](int rank, absl::string_view told) {
    if (rank == run.process_communicator()->rank()) return;
    for (const absl::string_view line : absl::StrSplit(told, '\n', absl::SkipEmpty())) {
      run.Say(absl::StrCat("rank ", rank, ": ", line));
    }
  });
}

// The newest checkpoint that a rank has found, as it tells the others.
struct Found {
  std::string host;
  int64_t step = -1;      // -1: none
  std::string save = {};  // CheckpointPart::save; "" if it has all of the tiles
};

absl::StatusOr<Found> FoundBy(RunContext& run, const ResumePoint& point) {
  Found found = {HostName()};
  if (!point.checkpoint.has_value()) return found;
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(*point.checkpoint, run.files()));
  found.step = manifest.state.step;
  if (JoinPath(run.spec().checkpoint.directory, StepDirectoryName(found.step)) !=
      *point.checkpoint) {
    return absl::DataLossError(absl::StrCat(*point.checkpoint, " has the manifest of step ",
                                            found.step, "; move it elsewhere"));
  }
  if (manifest.part.has_value()) found.save = manifest.part->save;
  return found;
}

// Does as FindNewest, for machines with directories of their own.
absl::Status FindNewestOfAll(RunContext& run, ResumePoint& point) {
  while (true) {
    absl::Status status = FindNewest(run, point);
    Found own;
    if (status.ok()) {
      absl::StatusOr<Found> found = FoundBy(run, point);
      status = found.status();
      if (found.ok()) own = *std::move(found);
    }
    MT_RETURN_IF_ERROR(Agree(run.process_communicator(), status));
    std::vector<Found> all;
    MT_RETURN_IF_ERROR(ExchangeBytes(
        run.process_communicator(), absl::StrCat(own.step, " ", own.save, " ", own.host),
        [&](int, absl::string_view text) {
          const std::vector<std::string> words = absl::StrSplit(text, absl::MaxSplits(' ', 2));
          Found& other = all.emplace_back(Found{words[2], -1, words[1]});
          (void)absl::SimpleAtoi(words[0], &other.step);
        }));
    const auto older = [](const Found& a, const Found& b) { return a.step < b.step; };
    const auto [oldest, newest] = std::minmax_element(all.begin(), all.end(), older);
    const bool same_save = absl::c_all_of(all, [&](const Found& f) { return f.save == own.save; });
    if (oldest->step == newest->step && same_save) return absl::OkStatus();
    if (oldest->step < 0) {
      return FoundByAll(absl::FailedPreconditionError(absl::StrCat(
          "checkpoint.directory: rank ", oldest - all.begin(), " on ", oldest->host,
          " has no checkpoint in ", run.spec().checkpoint.directory, ", and rank ",
          newest - all.begin(), " on ", newest->host, " has one of step ", newest->step,
          "; bring the missing part back, or remove those of all machines to begin anew")));
    }
    if (own.step > oldest->step || oldest->step == newest->step) {
      const std::string what = absl::StrCat(
          *point.checkpoint, " has no counterpart on another machine, whose newest is of step ",
          oldest->step);
      point.damaged.push_back({own.step, what});
      point.retention.damaged.push_back(own.step);
      run.Say(absl::StrCat("passed over: ", what));
    }
  }
}

absl::Status CheckThereIsNone(RunContext& run) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> present,
                      ListCheckpoints(run.spec().checkpoint.directory, run.files()));
  if (present.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--resume never: ", present.front(),
                   " is there already; use another checkpoint.directory, remove it, or "
                   "resume from it (--resume auto)"));
}

// Keeps the best checkpoint, if the job wants that and it is there.
absl::Status KeepBest(RunContext& run, const DirectoryRanks& ranks, ResumePoint& point) {
  point.retention.best = 0;  // a damaged checkpoint that was chosen before may have named another
  // The best may not have been saved, for example on a full disk.
  if (!run.spec().training.keep_best || point.evaluations.kept_step == 0) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                      ListSteps(run.spec().checkpoint.directory, run.files()));
  bool there = absl::c_linear_search(steps, point.evaluations.kept_step);
  if (there) {  // another run's step of this number is not meant
    const absl::StatusOr<CheckpointState> kept = ReadCheckpointState(
        JoinPath(run.spec().checkpoint.directory, StepDirectoryName(point.evaluations.kept_step)),
        run.files());
    // One that cannot be read now may be whole.
    if (!kept.ok() && !IsDamagedCheckpoint(kept.status())) return kept.status();
    there = kept.ok() && RunName(*kept) == point.run_name;
  }
  if (ranks.parts > 1) {  // on all machines, or not at all
    MT_ASSIGN_OR_RETURN(const std::vector<double> all,
                        run.process_communicator()->GatherValues({there ? 1. : 0.}));
    there = absl::c_all_of(all, [](double one) { return one > 0; });
  }
  if (there) {
    point.retention.best = point.evaluations.kept_step;
    return absl::OkStatus();
  }
  run.Say(absl::StrCat("training.keep_best: the checkpoint of step ", point.evaluations.kept_step,
                       ", kept as the best (eval_loss ", point.evaluations.kept_loss,
                       "), is gone; the best is kept from here on"));
  point.evaluations = {};
  return absl::OkStatus();
}

absl::Status FindCheckpoint(RunContext& run, const DirectoryRanks& ranks, ResumePoint& point) {
  switch (run.options().resume) {
    case ResumeMode::kPath:
      point.checkpoint = run.options().resume_path;
      return VerifyAllButTileContents(*point.checkpoint, run.files());
    case ResumeMode::kNever:
      return CheckThereIsNone(run);
    case ResumeMode::kAuto:
      return ranks.parts > 1 ? FindNewestOfAll(run, point) : FindNewest(run, point);
  }
  return absl::OkStatus();
}

// Checkpoints newer than the one to go on from are not lost without a word.
absl::Status CheckNewer(RunContext& run, ResumePoint& point) {
  const std::string& directory = run.spec().checkpoint.directory;
  std::vector<std::string> notes;
  MT_ASSIGN_OR_RETURN(const std::vector<int64_t> newer,
                      ListNewer(directory, point.step, point.retention, &notes, run.files()));
  for (const std::string& note : notes) run.Say(note);
  if (newer.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const int64_t step : newer) {
    const std::string name = StepDirectoryName(step);
    const std::string path = JoinPath(directory, name);
    if (run.options().discard_newer) {
      MT_RETURN_IF_ERROR(CheckHoldsOnlyCheckpointFiles(path, run.files()));
      MT_RETURN_IF_ERROR(run.files()->CheckWritable(path));  // it could not be removed
    }
    const auto state = ReadCheckpointState(path, run.files());
    const bool same_run = state.ok() && RunName(*state) == point.run_name;
    names.push_back(same_run ? name : absl::StrCat(name, " (of another run)"));
  }
  const std::string list = absl::StrJoin(names, ", ");
  if (!run.options().discard_newer) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " holds checkpoints newer than ", *point.checkpoint, " of step ", point.step,
        ": ", list,
        "; go on from the newest (--resume auto), or name another checkpoint.directory, or add "
        "--discard-newer, which removes them when this run has saved its first checkpoint"));
  }
  run.Say(absl::StrCat("to be discarded when this run has saved its first checkpoint: ", list));
  point.retention.discard = newer;
  return absl::OkStatus();
}

// Chooses among the checkpoints that are not known to be damaged.
absl::Status Choose(RunContext& run, const DirectoryRanks& ranks, const CheckpointState& wanted,
                    ResumePoint& point) {
  MT_RETURN_IF_ERROR(FindCheckpoint(run, ranks, point));
  if (!point.checkpoint.has_value()) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(CheckpointState saved, ReadCheckpointState(*point.checkpoint, run.files()));
  point.run_name = RunName(saved);
  point.reference = saved.reference;
  // A key that the checkpoint's version did not have had its default.
  for (const auto& [key, value] : SpecValues(JobSpec())) saved.spec.try_emplace(key, value);
  saved.spec = WithoutPaths(std::move(saved.spec));
  CheckpointState compared = wanted;
  compared.spec = WithoutPaths(std::move(compared.spec));
  point.allowed_changes = saved.allowed_changes;
  const size_t known = point.allowed_changes.size();
  MT_RETURN_IF_ERROR(
      CheckResumable(saved, compared, run.options().allow_change, &point.allowed_changes));
  for (size_t i = known; i < point.allowed_changes.size(); ++i) {
    const AllowedChange& change = point.allowed_changes[i];
    run.Say(absl::StrCat("--allow-change: ", change.key, " was ", change.before, " and is ",
                         change.now, " after step ", change.step));
  }
  point.step = saved.step;
  if (saved.data_position / run.spec().training.global_batch > saved.step) {
    return absl::DataLossError(absl::StrCat(
        point.checkpoint.value_or(""), ": \"data_position\" is ", saved.data_position,
        ", which is more sequences than ", saved.step, " steps visit; the checkpoint is damaged"));
  }
  point.data_position = saved.data_position;
  point.steps_total = saved.steps_total;
  point.input_tokens = saved.input_tokens;
  point.evaluations = saved.evaluations;
  MT_RETURN_IF_ERROR(KeepBest(run, ranks, point));
  MT_RETURN_IF_ERROR(CheckNewer(run, point));
  if (!saved.arithmetic.empty() && saved.arithmetic != wanted.arithmetic) {
    run.Say(absl::StrCat("the checkpoint was made on ", saved.arithmetic, "; this run computes on ",
                         wanted.arithmetic, ": bits may differ from an undisturbed run"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ClearLeftovers(RunContext& run, const DirectoryRanks& ranks) {
  std::vector<std::string> lines;
  if (ranks.parts > 1) {
    MT_RETURN_IF_ERROR(
        Agree(run.process_communicator(), NameWhatOthersHaveNamed(run, ranks, lines)));
  }
  absl::Status status;
  if (ranks.leads()) {
    const absl::StatusOr<std::vector<std::string>> leftovers =
        RemoveLeftovers(run.spec().checkpoint.directory, run.files());
    status = leftovers.status();
    if (leftovers.ok()) lines.insert(lines.end(), leftovers->begin(), leftovers->end());
  }
  // The others of a machine look when that is done.
  MT_RETURN_IF_ERROR(Agree(run.process_communicator(), status));
  for (const std::string& line : lines) run.Say(line);
  return ranks.parts > 1 ? SayOfOtherMachines(run, ranks, lines) : absl::OkStatus();
}

absl::StatusOr<ResumePoint> FindResumePoint(RunContext& run, const DirectoryRanks& ranks,
                                            const CheckpointState& wanted) {
  run.Report(TrainingPhase::kPreparing, "verifying the checkpoint to resume from");
  ResumePoint point;
  point.retention.keep = run.spec().checkpoint.keep;
  point.run_name = NewRunName();
  MT_RETURN_IF_ERROR(Choose(run, ranks, wanted, point));
  if (ranks.parts > 1) {
    std::vector<std::string> lines;
    for (const DamagedCheckpoint& damaged : point.damaged) lines.push_back(damaged.what);
    MT_RETURN_IF_ERROR(SayOfOtherMachines(run, ranks, lines));
  }
  return point;
}

absl::Status CheckSameStart(RunContext& run, const DirectoryRanks& ranks,
                            const ResumePoint& point) {
  std::string same = "none";
  bool of_save = false;
  if (point.checkpoint.has_value() && run.processes() != nullptr) {
    MT_ASSIGN_OR_RETURN(const Manifest read, ReadManifest(*point.checkpoint, run.files()));
    if (read.part.has_value()) {
      const CheckpointPart& part = *read.part;
      if (part.number != ranks.part || part.parts != ranks.parts) {
        return absl::FailedPreconditionError(absl::StrCat(
            *point.checkpoint, " is part ", part.number + 1, " of ", part.parts,
            ", and this machine is number ", ranks.part + 1, " of ", ranks.parts,
            "; start the processes on the machines in the order of the save, or join all parts "
            "with `megatraind gather`"));
      }
      of_save = true;
      same = part.save;
    } else {
      MT_ASSIGN_OR_RETURN(same, HashFile(run.files(), JoinPath(*point.checkpoint, kManifestFile),
                                         /*bytes=*/nullptr));
    }
  }
  return CheckSameInAll(
      run, "the checkpoint to resume from",
      {{"step", absl::StrCat(point.step)},
       {"the best evaluation up to it in step", absl::StrCat(point.evaluations.best_step)},
       {of_save ? "a part of the save" : "a manifest of the hash", same}},
      "all processes must read one and the same: name it on a file system that is mounted at the "
      "same path on all machines");
}

absl::Status FallBack(RunContext& run, const DirectoryRanks& ranks, const CheckpointState& wanted,
                      const absl::Status& damage, ResumePoint& point) {
  if (run.options().resume != ResumeMode::kAuto || !IsDamagedCheckpoint(damage)) return damage;
  point.damaged.push_back({point.step, std::string(damage.message())});
  NoteDamage(run, point.damaged.back(), point);
  return Choose(run, ranks, wanted, point);
}

}  // namespace megatrain
