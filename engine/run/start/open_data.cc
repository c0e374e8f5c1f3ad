#include "engine/run/start/open_data.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/comm/exchange.h"
#include "engine/run/start/processes.h"
#include "engine/tokenizer/open_tokenizer.h"
#include "engine/trace/transfer_rate.h"

namespace megatrain {
namespace {

bool NeedsTokenizer(const JobSpec& spec) {
  auto is_text = [](const DataFile& file) { return file.format != DataFormat::kTokens; };
  return !spec.training.sample_prompts.empty() ||
         std::any_of(spec.data.train.begin(), spec.data.train.end(), is_text) ||
         std::any_of(spec.data.eval.begin(), spec.data.eval.end(), is_text);
}

std::string DescribeData(const char* what, const DatasetReport& report, bool pairs) {
  std::string line = absl::StrCat(what, ": ", FormatCount(report.sequences), " sequences, ",
                                  FormatCount(report.tokens), " tokens");
  auto add = [&line](int64_t count, const char* text) {
    if (count > 0) absl::StrAppend(&line, "; ", FormatCount(count), text);
  };
  add(pairs ? report.truncated_examples : 0,
      " pairs had an answer longer than half a sequence, which was truncated");
  add(pairs ? 0 : report.truncated_examples, " examples longer than a sequence were truncated");
  add(report.examples_without_target, " examples had no token to learn and were left out");
  add(report.turns_without_loss,
      " turns of the assistant are without loss, because the chat template writes them otherwise "
      "when further messages follow");
  add(report.dropped_tokens, " tokens at the end fill no sequence and were dropped");
  add(report.bad_records.count, " records could not be read and were left out");
  return line;
}

void SayWhatTheDataIs(const Dataset& dataset, const RunContext& run) {
  const DatasetReport& report = dataset.train_report();
  run.Say(DescribeData("train", report, run.spec().training.objective == Objective::kDpo));
  for (const MixedSource& source : report.mix) {
    run.Say(absl::StrFormat("mix: %s: %.4g%%, %s sequences, %.4g passes an epoch", source.path,
                            100 * source.share, FormatCount(source.sequences), source.passes));
  }
  if (!report.mix.empty()) {
    run.Say(absl::StrCat("mix: an epoch is ", FormatCount(dataset.epoch_sequences()),
                         " sequences: until every source was gone through"));
  }
  for (const DatasetReport* side : {&report, &dataset.eval_report()}) {
    for (const std::string& line : DescribeBadRecords(*side)) run.Say(line);
  }
}

// Returns the day that the chat template saw when the run that is to be resumed began, or "". A run
// that is resumed later must see the same data.
std::string SavedTemplateDate(RunContext& run) {
  constexpr char kKey[] = "data.template_date";
  if (run.options().resume != ResumeMode::kPath) {
    return NewestSpecValue(run.spec().checkpoint.directory, kKey, run.files());
  }
  const auto state = ReadCheckpointState(run.options().resume_path, run.files());
  if (!state.ok()) return "";
  const auto found = state->spec.find(kKey);
  return found == state->spec.end() ? "" : found->second;
}

absl::Status EncodeSamplePrompts(const JobSpec& spec, RunContext& run, PreparedRun& prepared) {
  PromptEncoder encoder({.tokenizer = prepared.tokenizer.get(),
                         .model_directory = spec.model.path,
                         .chat_template = spec.data.chat_template,
                         .template_date = spec.data.template_date,
                         .add_bos = spec.data.add_bos,
                         .vocabulary = prepared.layout.model.vocabulary,
                         .max_tokens = spec.data.sequence_length,
                         .limit = "data.sequence_length",
                         .answer_tokens = spec.training.sample_tokens,
                         .files = run.files()});
  for (size_t i = 0; i < spec.training.sample_prompts.size(); ++i) {
    MT_ASSIGN_OR_RETURN(prepared.sample_prompts.emplace_back(),
                        encoder.Encode(spec.training.sample_prompts[i],
                                       absl::StrCat("training.sample_prompts[", i, "]")));
  }
  return absl::OkStatus();
}

// Does the part of OpenData that processes do one after the other. `day`: data.template_date.
absl::Status OpenHere(RunContext& run, const std::string& day, PreparedRun& prepared) {
  constexpr char kActivity[] = "reading and tokenising the data";
  constexpr absl::Duration kSayInterval = absl::Seconds(30);
  JobSpec spec = run.spec();
  spec.data.template_date = day;
  // The job's own number may be beyond what the host allows.
  spec.engine.threads = prepared.session->settings.threads;
  run.Report(TrainingPhase::kPreparing, kActivity);
  std::shared_ptr<const Tokenizer>& tokenizer = prepared.tokenizer;
  if (NeedsTokenizer(spec)) {
    MT_ASSIGN_OR_RETURN(tokenizer,
                        OpenTokenizer(spec.model.path, spec.data.tokenizer, run.files()));
  }
  TransferRate rate;
  absl::Time said = absl::Now();
  const auto progress = [&](int64_t bytes_done, int64_t bytes_total) {
    const absl::Time now = absl::Now();
    const std::optional<std::string> pace = rate.TextIfDue(now, bytes_done, bytes_total);
    if (!pace.has_value()) return run.CheckNotAbandoned();
    const double fraction =
        static_cast<double>(bytes_done) / static_cast<double>(std::max<int64_t>(1, bytes_total));
    run.Report(TrainingPhase::kPreparing, absl::StrCat(kActivity, *pace), fraction);
    said = std::min(said, now);  // the clock may have gone back
    if (now - said >= kSayInterval && !pace->empty()) {
      run.Say(absl::StrFormat("%s: %.1f%%%s", kActivity, 100 * fraction, *pace));
      said = now;
    }
    return run.CheckNotAbandoned();
  };
  absl::StatusOr<std::unique_ptr<Dataset>> dataset =
      OpenDataset(spec, tokenizer, spec.model.path, prepared.layout.model.vocabulary,
                  spec.checkpoint.directory + "/data", progress, run.files(),
                  run.options().verify_data && prepared.directory_ranks.leads());
  if (!dataset.ok()) return AsInputError(dataset.status());
  prepared.dataset = *std::move(dataset);
  MT_RETURN_IF_ERROR(EncodeSamplePrompts(spec, run, prepared));
  MT_ASSIGN_OR_RETURN(prepared.total_steps, TotalSteps(spec, prepared.dataset->epoch_sequences()));
  SayWhatTheDataIs(*prepared.dataset, run);
  if (prepared.dataset->eval_sequences() > 0) {
    run.Say(
        absl::StrCat("held out: ", FormatCount(prepared.dataset->eval_sequences()), " sequences"));
  }
  return absl::OkStatus();
}

// Returns what the prompts are for a model: their tokens.
std::string PromptsHash(const PreparedRun& prepared) {
  std::string text;
  for (const EncodedPrompt& prompt : prepared.sample_prompts) {
    absl::StrAppend(&text, absl::StrJoin(prompt.ids, " "), "\n");
  }
  return HashBytes(text);
}

}  // namespace

absl::Status OpenData(RunContext& run, PreparedRun& prepared) {
  std::string day = run.spec().data.template_date;
  if (day.empty()) day = SavedTemplateDate(run);
  const bool is_new = day.empty();
  if (is_new) day = absl::FormatCivilTime(absl::ToCivilDay(absl::Now(), absl::LocalTimeZone()));
  // The first process decides: midnight may come before the others open the data.
  MT_ASSIGN_OR_RETURN(day, FromFirstRank(run.process_communicator(), day));
  MT_RETURN_IF_ERROR(LeaderFirst(run, prepared.directory_ranks.leads(),
                                 [&] { return OpenHere(run, day, prepared); }));
  if (is_new && !prepared.dataset->template_date().empty()) {
    run.Say(absl::StrCat("the chat template sees the day ", day, "; data.template_date sets it"));
  }
  return CheckSameInAll(run, "data",
                        {{"the fingerprint", prepared.dataset->fingerprint()},
                         {"training.sample_prompts as tokens of the hash", PromptsHash(prepared)}},
                        "give all processes of a job the same files");
}

std::vector<std::string> DescribeBadRecords(const DatasetReport& report) {
  std::vector<std::string> lines;
  for (const std::string& bad : report.bad_records.named) lines.push_back("passed over: " + bad);
  const int64_t unnamed = report.bad_records.unnamed();
  if (unnamed > 0) {
    lines.push_back(absl::StrCat("passed over: ", FormatCount(unnamed), " more bad records"));
  }
  return lines;
}

absl::Status AsInputError(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kDataLoss && status.code() != absl::StatusCode::kAborted) {
    return status;
  }
  return absl::InvalidArgumentError(status.message());
}

}  // namespace megatrain
