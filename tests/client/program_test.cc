// The client's commands against the daemon's real services, in one process.
#include "client/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/connection/exit_code.h"
#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ProgramTest, SubmitSaysTheNameLast) {
  const Result result = Run({"submit", JobFile()});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(LastWord(result.out), StartsWith("jobs/"));
  EXPECT_EQ(Run({"submit", JobFile(), "-q"}).out.substr(0, 5), "jobs/");
  const nlohmann::json job = Json({"submit", JobFile(), "--set", "training.steps=7"});
  EXPECT_EQ(job["display_name"], "demo");
  EXPECT_EQ(job["summary"]["model_path"], directory_.path() + "/model")
      << "from the job file's directory";
  EXPECT_EQ(job["file"]["overrides"][0], "training.steps=7");
}

TEST_F(ProgramTest, TheSameRequestIsOneJob) {
  const std::vector<std::string> arguments = {"submit", JobFile(), "-q", "--request-id", "r-1"};
  const Result first = Run(arguments);
  EXPECT_EQ(Run(arguments).out, first.out);
  std::vector<std::string> other = arguments;
  other.insert(other.end(), {"--set", "training.steps=3"});
  const Result refused = Run(other);
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("leave --request-id out"));
  EXPECT_EQ(Json({"ls"}).size(), 1u);
}

TEST_F(ProgramTest, ValidatingSubmitsNothing) {
  EXPECT_EQ(Run({"submit", JobFile(), "--validate-only"}).code, kExitDone);
  EXPECT_EQ(Json({"ls", "--all"}).size(), 0u);
}

TEST_F(ProgramTest, WhatIsWrongWithAJobFile) {
  Result result = Run({"submit", JobFile(), "--set", "training.stepz=3"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("training.stepz"));
  result = Run({"submit", directory_.path() + "/nope.yaml"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("nope.yaml: No such file"));
  result = Run({"submit", JobFile(), "--set", "model.path=other"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr(directory_.path() + "/other"));
}

TEST_F(ProgramTest, WhatDoesNotFitIsRefusedWithThePlan) {
  plan_ = [plan = plan_](const JobSpec& spec) {
    absl::StatusOr<PlanReport> report = plan(spec);
    report->fits = false;
    report->table = "needs 9 GiB\nhas 1 GiB\n";
    return report;
  };
  const Result result = Run({"submit", JobFile()});
  EXPECT_EQ(result.code, kExitDoesNotFit);
  EXPECT_THAT(result.err, HasSubstr("needs 9 GiB\nhas 1 GiB"));
  EXPECT_THAT(result.err, HasSubstr("max_gradient_norm"));
  EXPECT_EQ(Run({"plan", JobFile()}).code, kExitDoesNotFit);
}

TEST_F(ProgramTest, Lists) {
  Result result = Run({"ls"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("--all"));
  const std::string running = Create("anna", "first"), cancelled = Create("anna", "second");
  Create("bob", "third");
  MoveToRunning(running);
  AddStep(running, 3);
  Move(cancelled, JobState::kCancelled);

  EXPECT_EQ(Run({"ls", "-q"}).out, absl::StrCat("jobs/", running, "\n"));
  EXPECT_EQ(Run({"-q", "ls", "--all"}).out,
            absl::StrCat("jobs/", cancelled, "\njobs/", running, "\n"));
  EXPECT_EQ(Run({"ls", "-q", "--state", "cancelled,FAILED"}).out,
            absl::StrCat("jobs/", cancelled, "\n"));
  result = Run({"ls"});
  EXPECT_THAT(result.out, AllOf(StartsWith("JOB "), HasSubstr("first  RUNNING"),
                                HasSubstr("0.3333"), Not(HasSubstr("third"))));
  const nlohmann::json jobs = Json({"ls", "--all"});
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[1]["progress"]["last_step"]["step"], 3);
  result = Run({"ls", "--state", "SLEEPING"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("there is no state SLEEPING"));
}

TEST_F(ProgramTest, OnATerminalARowIsALine) {
  const std::string long_name(60, 'x');
  Create("anna", long_name);
  EXPECT_THAT(Run({"ls"}).out, HasSubstr(long_name));
  is_terminal_ = true;
  EXPECT_THAT(Run({"ls"}).out, AllOf(HasSubstr("xxx…"), Not(HasSubstr(long_name))));
}

TEST_F(ProgramTest, ShowHasTheEvents) {
  const std::string id = Create();
  MoveToRunning(id);
  const Result result = Run({"show", id});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("state        RUNNING\n"), HasSubstr("submitted by anna"),
                                HasSubstr("PREPARING  by the test\n")));
  const nlohmann::json job = Json({"show", "jobs/" + id});
  ASSERT_EQ(job["events"].size(), 3u);
  EXPECT_EQ(job["events"][2]["to_state"], "RUNNING");
  EXPECT_THAT(job["file"]["yaml"], HasSubstr("name: demo"));
  EXPECT_THAT(Run({"show", id, "-o", "yaml"}).out, HasSubstr("\nstate: RUNNING\n"));
}

TEST_F(ProgramTest, ErrorsSayWhatToDoNext) {
  const std::string other = Create("bob");
  for (const char* const command : {"show", "watch", "wait", "logs", "metrics", "pause", "resume",
                                    "cancel", "checkpoint", "checkpoints"}) {
    for (const std::string& name : {std::string("nope"), other}) {
      const Result result = Run({command, name});
      EXPECT_EQ(result.code, kExitNotFound) << command;
      EXPECT_THAT(result.err, HasSubstr("megatrain ls --all")) << command;
    }
    EXPECT_EQ(Run({command, "a/b"}).code, kExitUsage) << command;
    EXPECT_EQ(Run({command}).code, kExitUsage) << command;
  }
  const std::string id = Create();
  const Result result = Run({"pause", id});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("is QUEUED and cannot be paused"), HasSubstr("megatrain show JOB")));
  authenticator_.nameless = "";
  EXPECT_EQ(Run({"show", id}).code, kExitNotPermitted);
}

TEST_F(ProgramTest, NobodyAnswers) {
  StopDaemon();
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"ls"},
                                                    {"watch", "a"},
                                                    {"wait", "a"},
                                                    {"logs", "-f", "a"},
                                                    {"export", "a", "--out", "x"},
                                                    {"info"}}) {
    const Result result = Run(arguments);
    EXPECT_EQ(result.code, kExitUnreachable) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("megatraind serve")) << arguments[0];
  }
  EXPECT_THAT(Run({"submit", JobFile()}).err, HasSubstr("--request-id "));
  StartDaemon();
}

TEST_F(ProgramTest, Control) {
  const std::string id = Create();
  MoveToRunning(id);
  EXPECT_THAT(Run({"checkpoint", id}).out, HasSubstr("saves a checkpoint"));
  EXPECT_EQ(engine_.Checkpoints(), 1);
  EXPECT_EQ(Run({"pause", id, "--release-host"}).out,
            absl::StrCat("jobs/", id, " (demo) is PAUSING\n"));
  EXPECT_TRUE(ledger_->table().Find(id)->release_host);
  Move(id, JobState::kPaused);
  EXPECT_EQ(Json({"resume", id})["state"], "QUEUED");
  EXPECT_EQ(Run({"cancel", id, "-q"}).out, absl::StrCat("jobs/", id, "\n"));
  EXPECT_EQ(Json({"show", id})["state"], "CANCELLED");
}

TEST_F(ProgramTest, CheckpointsAndExport) {
  const std::string id = Create();
  Result result = Run({"checkpoints", id});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_THAT(result.err, HasSubstr("no checkpoint yet"));
  EXPECT_EQ(Json({"checkpoints", id}), nlohmann::json::array());
  result = Run({"export", id, "--out", directory_.path() + "/out"});
  EXPECT_EQ(result.code, kExitNotFound);
  EXPECT_THAT(result.err, HasSubstr("megatrain checkpoints JOB"));
  EXPECT_EQ(Run({"export", id}).code, kExitUsage) << "without --out";
}

TEST_F(ProgramTest, Info) {
  const Result result = Run({"info"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr(options_.listen[0]), HasSubstr("daemon     0.1.0")));
  EXPECT_EQ(Json({"info"})["daemon_version"], "0.1.0");
}

TEST_F(ProgramTest, InfoHasRatesAndDevices) {
  v1::MeasuredRates* const rates = node_.mutable_rates();
  rates->set_fp32_flops_per_second(230e9);
  rates->set_bf16_flops_per_second(1.2e12);
  rates->set_h2d_bytes_per_second(20e9);
  rates->set_d2h_bytes_per_second(25e9);
  EXPECT_THAT(Run({"info"}).out,
              AllOf(HasSubstr("products   230 GFLOP/s in FP32, 1.2 TFLOP/s in BF16\n"),
                    HasSubstr("link       20 GB/s to the device, 25 GB/s back\n"),
                    Not(HasSubstr("both ways"))));
  rates->set_h2d_beside_d2h_bytes_per_second(12e9);
  rates->set_d2h_beside_h2d_bytes_per_second(13e9);
  for (const char* const id : {"cuda:0", "cuda:1"}) node_.add_devices()->set_id(id);
  node_.mutable_devices(0)->set_busy(true);
  EXPECT_THAT(Run({"info"}).out,
              AllOf(HasSubstr("both ways  12 GB/s to the device, 13 GB/s back\n"),
                    HasSubstr("device     cuda:0; a job has it\n"),
                    HasSubstr("device     cuda:1; free\n")));
}

TEST_F(ProgramTest, LogsAndMetrics) {
  const std::string id = Create();
  AddLine(id, "loading \x1b[1m");
  for (int64_t step = 1; step <= 3; ++step) AddStep(id, step);
  ASSERT_TRUE(Records(id)->FallBack(2).ok());
  AddStep(id, 3);
  EXPECT_THAT(Run({"logs", id}).out, ::testing::EndsWith("  loading ?[1m\n"));
  const Result table = Run({"metrics", id});
  EXPECT_EQ(table.code, kExitDone) << table.err;
  EXPECT_EQ(Lines(table.out).size(), 4u) << "a heading and three steps\n" << table.out;

  const Result records = Run({"metrics", id, "-o", "json"});
  std::vector<std::string> seen;
  for (const std::string& line : Lines(records.out)) {
    const nlohmann::json record = nlohmann::json::parse(line);
    seen.push_back(absl::StrCat(record["step"].get<int>(), record["superseded"] ? "!" : ""));
  }
  EXPECT_THAT(seen, ::testing::ElementsAre("1", "2", "3!", "3"));
}

TEST_F(ProgramTest, WaitTellsHowItEnded) {
  for (const auto& [end, code] : std::map<JobState, int>{{JobState::kSucceeded, kExitDone},
                                                         {JobState::kFailed, kExitFailed}}) {
    const std::string id = Create();
    MoveToRunning(id);
    std::thread ending([&, end = end] {
      WaitUntil([&] { return server_->streams() > 0; });
      Move(id, end);
    });
    const Result result = Run({"wait", id});
    ending.join();
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(LastWord(result.out), "jobs/" + id);
  }
  const std::string id = Create();
  Move(id, JobState::kCancelled);
  EXPECT_EQ(Run({"wait", id}).code, kExitFailed);
}

TEST_F(ProgramTest, WatchAndMetricsGoOnOverARestartWithoutAGap) {
  const std::string id = Create();
  MoveToRunning(id);
  AddStep(id, 1);
  Captured watch_out, watch_err, metrics_out, metrics_err;
  int watch_code = -1, metrics_code = -1;
  std::thread watch([&] { watch_code = RunInto({"watch", id}, &watch_out, &watch_err); });
  std::thread metrics([&] {
    metrics_code = RunInto({"metrics", id, "-f", "-o", "json"}, &metrics_out, &metrics_err);
  });
  WaitUntil([&] {
    return watch_out.Text().find("step 1") != std::string::npos && !metrics_out.Text().empty();
  });
  StopDaemon();
  WaitUntil([&] { return watch_out.Text().find("server is away") != std::string::npos; });
  StartDaemon();
  WaitUntil([&] { return watch_out.Text().find("server is back") != std::string::npos; });
  MoveToRunning(id);
  for (int64_t step = 2; step <= 5; ++step) AddStep(id, step);
  WaitUntil([&] { return metrics_out.Text().find("\"step\":5") != std::string::npos; });
  Move(id, JobState::kSucceeded);
  watch.join();
  metrics.join();
  EXPECT_EQ(watch_code, kExitDone) << watch_err.Text();
  EXPECT_EQ(metrics_code, kExitDone) << metrics_err.Text();
  EXPECT_EQ(LastWord(watch_out.Text()), "jobs/" + id);
  int64_t sequence = 0;
  for (const std::string& line : Lines(metrics_out.Text())) {
    EXPECT_EQ(nlohmann::json::parse(line)["sequence"], ++sequence);
  }
  EXPECT_EQ(sequence, 5);
}

TEST_F(ProgramTest, OnATerminalAViewIsDrawnInPlaceAndItsLastPictureStays) {
  node_.mutable_host_pool()->set_size_bytes(int64_t{8} << 30);
  node_.mutable_host_pool()->set_used_bytes(int64_t{1} << 30);
  const std::string id = Create();
  MoveToRunning(id);
  AddStep(id, 1);
  is_terminal_ = true;
  Captured out, err;
  int code = -1;
  std::thread watch([&] { code = RunInto({"watch", id}, &out, &err); });
  const std::string pool = "pool 1.0 GiB of 8.0 GiB";
  WaitUntil([&] { return out.Text().find(pool) != std::string::npos; });
  Move(id, JobState::kSucceeded);
  watch.join();
  EXPECT_EQ(code, kExitDone) << err.Text();
  const std::string text = out.Text();
  EXPECT_THAT(text, StartsWith("\033[?1049h"));
  const size_t left = text.find("\033[?1049l");
  ASSERT_NE(left, std::string::npos);
  EXPECT_THAT(text.substr(left), AllOf(HasSubstr("demo  jobs/" + id + "  SUCCEEDED\n"),
                                       HasSubstr(pool), HasSubstr("\ndemo has succeeded")));
}

TEST_F(ProgramTest, WatchAsRecords) {
  const std::string id = Create();
  MoveToRunning(id);
  AddStep(id, 1);
  Move(id, JobState::kSucceeded);
  const Result result = Run({"watch", id, "-o", "json"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("{"), HasSubstr("{\"step\":{\"step\":1,"),
                                HasSubstr("\"to_state\":\"SUCCEEDED\"")));
}

TEST_F(ProgramTest, SubmitAndWatch) {
  std::thread ending([&] {
    WaitUntil([&] { return server_->streams() >= 3; });
    const std::string id = ledger_->table().All().front()->id;
    MoveToRunning(id);
    Move(id, JobState::kFailed);
  });
  const Result result = Run({"submit", JobFile(), "--watch"});
  ending.join();
  EXPECT_EQ(result.code, kExitFailed) << result.err;
  EXPECT_THAT(LastWord(result.out), StartsWith("jobs/"));
  EXPECT_THAT(result.out, AllOf(StartsWith("submitted demo: "), HasSubstr("\nPREPARING"),
                                HasSubstr("\ndemo has failed")));
}

TEST_F(ProgramTest, SubmitAndWatchQuietly) {
  std::thread ending([&] {
    WaitUntil([&] { return server_->streams() >= 3; });
    const std::string id = ledger_->table().All().front()->id;
    MoveToRunning(id);
    Move(id, JobState::kFailed);
  });
  const Result result = Run({"submit", JobFile(), "--watch", "--quiet"});
  ending.join();
  EXPECT_EQ(result.code, kExitFailed) << result.err;
  const std::string name = "jobs/" + ledger_->table().All().front()->id;
  EXPECT_EQ(result.out, name + "\n");
  EXPECT_EQ(Run({"watch", name, "--quiet"}).out, name + "\n");
}

TEST_F(ProgramTest, ServersInTheirOrder) {
  const std::string server = variables_["MEGATRAIN_SERVER"];
  variables_["MEGATRAIN_SERVER"] = "nonsense";
  EXPECT_EQ(Run({"info"}).code, kExitUsage);
  EXPECT_EQ(Run({"info", "--server", server}).code, kExitDone);
  variables_.erase("MEGATRAIN_SERVER");
  EXPECT_THAT(Run({"info"}).err, HasSubstr("/run/megatrain/megatrain.sock"));

  EXPECT_EQ(Run({"context", "add", "near", server}).code, kExitDone);
  EXPECT_EQ(Run({"context", "add", "far", "node7:1"}).code, kExitDone);
  EXPECT_EQ(Run({"info"}).code, kExitDone) << "the first context is the current one";
  EXPECT_EQ(Run({"context", "use", "far"}).code, kExitDone);
  EXPECT_THAT(Run({"context", "ls"}).out, HasSubstr("*  far   node7:1"));
  EXPECT_EQ(Json({"context", "ls"})[0]["current"], true);
  EXPECT_EQ(Run({"context", "use", "nope"}).code, kExitNotFound);
  variables_["XDG_CONFIG_HOME"] = directory_.path() + "/xdg";
  EXPECT_EQ(Run({"context", "ls"}).out, "");
}

TEST_F(ProgramTest, Usage) {
  EXPECT_EQ(Run({}).code, kExitUsage);
  EXPECT_EQ(Run({"nope"}).code, kExitUsage);
  EXPECT_EQ(Run({"ls", "-o", "xml"}).code, kExitUsage);
  EXPECT_EQ(Run({"--help"}).code, kExitDone);
  EXPECT_THAT(Run({"submit", "--help"}).out, HasSubstr("--request-id"));
  EXPECT_THAT(Run({"--version"}).out, HasSubstr("megatrain 0.1.0"));
  EXPECT_THAT(Run({"version"}).out, HasSubstr("megatrain 0.1.0"));
  EXPECT_EQ(Json({"version"})["version"], "0.1.0");
}

TEST_F(ProgramTest, BashCompletesWhatThereIs) {
  const std::string script = directory_.path() + "/completion.bash";
  std::ofstream(script) << Run({"completion", "bash"}).out;
  const auto complete = [&](const std::string& words) {
    const std::string test = directory_.path() + "/test.bash", out = directory_.path() + "/out";
    std::ofstream(test) << "megatrain() { echo jobs/a1; echo jobs/b2; }\n"
                        << "source " << script << "\nCOMP_WORDS=(" << words
                        << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_megatrain\n"
                        << "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    EXPECT_EQ(std::system(("bash -u " + test + " > " + out).c_str()), 0);
    std::ifstream file(out);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(complete("megatrain wa"), "watch\nwait\n");
  EXPECT_EQ(complete("megatrain --server unix:/x pa"), "pause\n");
  EXPECT_EQ(complete("megatrain --server node7 : 9463 pa"), "pause\n") << "as bash splits it";
  EXPECT_EQ(complete("megatrain show jobs/a"), "jobs/a1\n");
  EXPECT_EQ(complete("megatrain pause --re"), "--release-host\n");
  EXPECT_EQ(complete("megatrain ls -o j"), "json\n");
  EXPECT_EQ(complete("megatrain context u"), "use\n");
  for (const char* const shell : {"zsh", "fish"}) {
    EXPECT_THAT(Run({"completion", shell}).out,
                AllOf(HasSubstr("release-host"), HasSubstr("megatrain ls --all --quiet")));
  }
  EXPECT_EQ(Run({"completion", "csh"}).code, kExitUsage);
}

TEST_F(ProgramTest, APriorityIsSubmitted) {
  EXPECT_EQ(Json({"submit", JobFile(), "--priority", "-5"})["priority"], -5);
  EXPECT_EQ(Run({"submit", JobFile(), "--priority", "1"}).code, kExitNotPermitted);
}

TEST_F(ProgramTest, OutputThatCannotBeWrittenIsAFailure) {
  Create();
  Captured err;
  Environment environment;
  environment.out = std::fopen("/dev/full", "w");
  ASSERT_NE(environment.out, nullptr);
  environment.err = err.file();
  environment.variable = [this](const char* name) { return variables_[name]; };
  EXPECT_EQ(RunProgram({"ls", "-o", "json"}, environment), kExitFailed);
  EXPECT_EQ(RunProgram({"--version"}, environment), kExitFailed);
  // A command that fails anyway keeps its code.
  EXPECT_EQ(RunProgram({"show", "nope"}, environment), kExitNotFound);
  std::fclose(environment.out);
  std::fflush(err.file());
  EXPECT_THAT(err.Text(), HasSubstr("standard output cannot be written"));
}

}  // namespace
}  // namespace megatrain::client
