#include "tests/bench/gpu/bench_results.h"

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

using nlohmann::json;

constexpr char kJson[] = "results.json", kMarkdown[] = "results.md";

std::string Text(const json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : "";
}

// As a cell of a table.
std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

// Four digits: no measurement has more.
std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), value >= 1000 ? "%.0f" : "%.4g", value);
  return text;
}

std::string Measured(const json& result) {
  const std::string beside = Text(result, "beside");
  const auto value = result.find("value");
  if (value == result.end() || !value->is_number()) return beside;
  return absl::StrCat(Number(*value), " ", Text(result, "unit"),
                      beside.empty() ? "" : absl::StrCat("; ", beside));
}

}  // namespace

absl::StatusOr<BenchResults> BenchResults::Open(const std::string& directory) {
  BenchResults results;
  results.directory_ = directory;
  if (directory.empty()) return results;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError("make", directory, error.value());
  const std::string path = JoinPath(directory, kJson);
  if (!std::filesystem::exists(path)) return results;
  MT_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(PosixFileSystem(), path, 64 * kMiB));
  json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const char* list : {"machine", "results", "steps"}) {
    if (!all.is_object() || !all.contains(list) || !all[list].is_array()) {
      return absl::DataLossError(absl::StrCat(path, " is not what gpu_bench writes: remove it"));
    }
  }
  results.all_ = std::move(all);
  return results;
}

void BenchResults::Begin(const std::string& item, double seconds_max) {
  item_ = item;
  deadline_ = seconds_max > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(seconds_max))
                              : Clock::time_point::max();
}

absl::Status BenchResults::Add(const std::string& name, double value, const std::string& unit,
                               const std::string& beside) {
  std::printf("%s: %s: %s %s%s%s\n", item_.c_str(), name.c_str(), Number(value).c_str(),
              unit.c_str(), beside.empty() ? "" : "; ", beside.c_str());
  std::fflush(stdout);
  return Put(
      "results",
      {{"item", item_}, {"name", name}, {"value", value}, {"unit", unit}, {"beside", beside}},
      "item", "name");
}

absl::Status BenchResults::Note(const std::string& name, const std::string& text) {
  std::printf("%s: %s: %s\n", item_.c_str(), name.c_str(), text.c_str());
  std::fflush(stdout);
  return Put("results", {{"item", item_}, {"name", name}, {"beside", text}}, "item", "name");
}

absl::Status BenchResults::Describe(const std::string& key, const std::string& text) {
  std::printf("%-16s%s\n", key.c_str(), text.c_str());
  std::fflush(stdout);
  return Put("machine", {{"key", key}, {"text", text}}, "key", "key");
}

absl::Status BenchResults::AddStep(const std::string& phase, const std::string& step,
                                   const std::string& outcome, double seconds,
                                   const std::string& detail) {
  return Put("steps",
             {{"phase", phase},
              {"step", step},
              {"outcome", outcome},
              {"seconds", seconds},
              {"detail", detail}},
             "phase", "step");
}

absl::StatusOr<double> BenchResults::Value(const std::string& item, const std::string& name) const {
  for (const json& result : all_["results"]) {
    const auto value = result.find("value");
    if (Text(result, "item") == item && Text(result, "name") == name && value != result.end() &&
        value->is_number()) {
      return value->get<double>();
    }
  }
  return absl::NotFoundError(absl::StrCat(item, ": ", name, " is not measured"));
}

absl::Status BenchResults::Put(const char* list, json entry, const char* key, const char* name) {
  json& entries = all_[list];
  bool replaced = false;
  for (json& old : entries) {
    if (Text(old, key) != Text(entry, key) || Text(old, name) != Text(entry, name)) continue;
    old = entry;
    replaced = true;
  }
  if (!replaced) entries.push_back(std::move(entry));
  return Write();
}

std::string BenchResults::Table() const {
  std::string text;
  for (const json& entry : all_["machine"]) {
    absl::StrAppend(&text, "- ", Text(entry, "key"), ": ", Text(entry, "text"), "\n");
  }
  if (!all_["results"].empty()) {
    absl::StrAppend(&text, "\n| what | benchmark | must reach | measured |\n|---|---|---|---|\n");
    for (const json& result : all_["results"]) {
      absl::StrAppend(&text, "| ", Cell(Text(result, "name")), " | `gpu_bench ",
                      Text(result, "item"), "` | | ", Cell(Measured(result)), " |\n");
    }
  }
  if (!all_["steps"].empty()) {
    absl::StrAppend(&text, "\n| phase | step | outcome | seconds | |\n|---|---|---|---|---|\n");
    for (const json& step : all_["steps"]) {
      absl::StrAppend(&text, "| ", Cell(Text(step, "phase")), " | ", Cell(Text(step, "step")),
                      " | ", Cell(Text(step, "outcome")), " | ", Number(step.value("seconds", 0.0)),
                      " | ", Cell(Text(step, "detail")), " |\n");
    }
  }
  return text;
}

absl::Status BenchResults::Write() const {
  if (directory_.empty()) return absl::OkStatus();
  FileSystem* const files = PosixFileSystem();
  // What a library says need not be UTF-8.
  const std::string text = all_.dump(2, ' ', false, json::error_handler_t::replace);
  MT_RETURN_IF_ERROR(AtomicWriteFile(files, JoinPath(directory_, kJson), text + "\n"));
  return AtomicWriteFile(files, JoinPath(directory_, kMarkdown), Table());
}

}  // namespace megatrain
