#include "engine/run/tensorboard_report.h"

#include <unistd.h>

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/comm/launch_environment.h"
#include "engine/job/job_keys.h"
#include "engine/trace/event_file.h"
#include "tensorboard_event.pb.h"

namespace megatrain {
namespace {

using tensorboard::Event;
using tensorboard::SessionLog;
using tensorboard::Summary;
using tensorboard::TensorProto;

// TensorBoard honours session logs from version 2 on.
constexpr char kFileVersion[] = "brain.Event:2";

Event EventAt(int64_t step) {
  Event event;
  event.set_wall_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  event.set_step(step);
  return event;
}

// A new name in `directory`. TensorBoard reads files in the order of their names.
std::string NewFile(const std::string& directory, FileSystem* files) {
  const std::string stem = absl::StrFormat("events.out.tfevents.%010d.%s.%d.",
                                           absl::ToUnixSeconds(absl::Now()), HostName(), getpid());
  for (int number = 0;; ++number) {
    std::string path = JoinPath(directory, absl::StrCat(stem, number));
    if (!files->FileExists(path)) return path;
  }
}

// The job's settings as a Markdown block of code.
std::string SettingsText(const JobSpec& spec) {
  JobSpec copy = spec;  // keys are bound to what they may write to
  std::string text;
  for (const ConfigKey& key : JobKeys(&copy).keys) {
    absl::StrAppend(&text, "    ", key.path, ": ", key.value.text(), "\n");
  }
  return text;
}

void AddText(const std::string& tag, const std::string& markdown, Event& event) {
  Summary::Value* const text = event.mutable_summary()->add_value();
  text->set_tag(tag);
  text->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  text->mutable_tensor()->set_dtype(TensorProto::DT_STRING);
  text->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
  text->mutable_tensor()->add_string_val(markdown);
}

// The text as a Markdown block of code, so that nothing in it is Markdown.
std::string Verbatim(const std::string& text) {
  return absl::StrCat("    ", absl::StrReplaceAll(text, {{"\n", "\n    "}}), "\n");
}

}  // namespace

absl::Status TensorBoardReport::Note(const RunEvent& event) {
  if (spec_.report.tensorboard.empty()) return absl::OkStatus();
  const absl::Status status = std::visit(
      Overloaded{[&](const StepsBegin& begin) {
                   // Once: it is reported again after a pause.
                   return std::exchange(begun_, true) ? absl::OkStatus() : Begin(begin.first_step);
                 },
                 [&](const StepRecord& record) { return Add(record); },
                 [&](const SampledAnswer& answer) { return Add(answer); },
                 [&](const BeforeCheckpoint&) {
                   return file_ != nullptr ? file_->Sync() : absl::OkStatus();
                 },
                 [](const auto&) { return absl::OkStatus(); }},
      event);
  if (!status.ok()) file_ = nullptr;
  return status;
}

absl::Status TensorBoardReport::Begin(int64_t first_step) {
  MT_RETURN_IF_ERROR(files_->CreateDirectories(spec_.report.tensorboard));
  MT_ASSIGN_OR_RETURN(file_, files_->NewWritableFile(NewFile(spec_.report.tensorboard, files_)));
  Event version = EventAt(0);
  version.set_file_version(kFileVersion);
  Event start = EventAt(first_step);
  start.mutable_session_log()->set_status(SessionLog::START);
  Event settings = EventAt(first_step);
  AddText("job", SettingsText(spec_), settings);
  for (const Event* const event : {&version, &start, &settings}) {
    MT_RETURN_IF_ERROR(Append(event->SerializeAsString()));
  }
  return absl::OkStatus();
}

absl::Status TensorBoardReport::Add(const StepRecord& record) {
  if (file_ == nullptr) return absl::OkStatus();
  Event event = EventAt(record.step);
  const auto add = [&](const std::string& tag, double value) {
    Summary::Value* const scalar = event.mutable_summary()->add_value();
    scalar->set_tag(tag);
    scalar->set_simple_value(static_cast<float>(value));
  };
  add("loss", record.loss);
  add("gradient_norm", record.gradient_norm);
  add("learning_rate", record.learning_rate);
  add("tokens_per_second", record.tokens_per_second);
  add("step_seconds", record.step_seconds);
  if (record.eval_loss.has_value()) add("eval_loss", *record.eval_loss);
  for (const auto& [name, loss] : record.eval_losses) add(absl::StrCat("eval_loss/", name), loss);
  const auto add_rewards = [&](const std::string& prefix, const Rewards& rewards) {
    add(prefix + "/chosen", rewards.chosen);
    add(prefix + "/rejected", rewards.rejected);
    add(prefix + "/margins", rewards.margins);
    add(prefix + "/accuracies", rewards.accuracies);
  };
  if (record.rewards.has_value()) add_rewards("rewards", *record.rewards);
  if (record.eval_rewards.has_value()) add_rewards("eval_rewards", *record.eval_rewards);
  if (record.router.has_value()) {
    add("router/busiest", record.router->busiest);
    add("router/entropy", record.router->entropy);
    if (record.router->auxiliary_loss.has_value()) {
      add("router/auxiliary_loss", *record.router->auxiliary_loss);
    }
  }
  return Append(event.SerializeAsString());
}

absl::Status TensorBoardReport::Add(const SampledAnswer& answer) {
  if (file_ == nullptr) return absl::OkStatus();
  const Prompt& prompt = spec_.training.sample_prompts[answer.prompt];
  Event event = EventAt(answer.step);
  AddText(absl::StrCat("samples/", answer.prompt + 1),
          absl::StrCat(Verbatim(prompt.record.empty() ? prompt.text : prompt.record), "\n---\n\n",
                       Verbatim(answer.text)),
          event);
  return Append(event.SerializeAsString());
}

absl::Status TensorBoardReport::Append(const std::string& record) {
  const std::string frame = EventFrame(record);
  return file_->Append(frame.data(), static_cast<int64_t>(frame.size()));
}

}  // namespace megatrain
