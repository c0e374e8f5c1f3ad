// The program as the shell sees it: exit codes and messages of commands that need little training.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/commands/run_megatraind.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  void WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }

  // A tiny model, text and job; `training` is the job's section.
  void MakeJob(const std::string& training) const {
    ASSERT_EQ(Megatraind("init --preset llama-tiny --out " + Path("model")).exit_code, 0);
    std::string text;
    for (int i = 0; i < 400; ++i) text += "All work and no play makes Jack a dull boy. ";
    WriteFile("train.txt", text);
    WriteFile("job.yaml",
              "model: {path: model}\n"
              "data:\n"
              "  train: [{path: train.txt, format: text}]\n"
              "  eval_fraction: 0.1\n"
              "  sequence_length: 64\n"
              "training: " +
                  training +
                  "\n"
                  "output: {directory: out}\n");
  }

  std::string directory_;
};

TEST_F(CommandsTest, UsageErrorsAreTwo) {
  EXPECT_EQ(Megatraind("").exit_code, 2);
  EXPECT_EQ(Megatraind("no-such-command").exit_code, 2);
  EXPECT_EQ(Megatraind("serve --no-such-option").exit_code, 2);
  EXPECT_EQ(Megatraind("serve --config " + Path("none.yaml")).exit_code, 2);
  EXPECT_EQ(Megatraind("run").exit_code, 2);
  EXPECT_EQ(Megatraind("run a.yaml --no-such-option").exit_code, 2);
  EXPECT_EQ(Megatraind("--help").exit_code, 0);
  EXPECT_EQ(Megatraind("run --help").exit_code, 0);
  const Result version = Megatraind("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.output, HasSubstr("megatraind 0."));
}

TEST_F(CommandsTest, BadJobFilesAreTwoAndNameTheKey) {
  EXPECT_EQ(Megatraind("run " + Path("none.yaml")).exit_code, 2);
  WriteFile("job.yaml", "model: {path: m}\ntrainig: {steps: 1}\n");
  const Result run = Megatraind("run " + Path("job.yaml"));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.output, HasSubstr("job.yaml:2: trainig: unknown key; did you mean training?"));
  EXPECT_EQ(Megatraind("plan " + Path("job.yaml")).output, run.output);
}

TEST_F(CommandsTest, SchemaDescribesBothFiles) {
  for (const auto& [file, key] : {std::pair{"job", "training"}, std::pair{"config", "limits"}}) {
    const Result schema = Megatraind(std::string("schema ") + file);
    EXPECT_EQ(schema.exit_code, 0) << schema.output;
    const auto json = nlohmann::json::parse(schema.output, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(json["properties"].contains(key)) << schema.output;
    const Result listing = Megatraind(std::string("schema -o yaml ") + file);
    EXPECT_THAT(listing.output, HasSubstr(std::string("\n") + key + ":\n"));
  }
  EXPECT_EQ(Megatraind("schema").exit_code, 2);
  EXPECT_EQ(Megatraind("schema model").exit_code, 2);
}

TEST_F(CommandsTest, InitRefusesUnknownPresetsAndInspectShowsModels) {
  const Result refused = Megatraind("init --preset gpt-5 --out " + Path("x"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr("llama-tiny"));
  ASSERT_EQ(Megatraind("init --preset qwen3-0.6b --config-only --out " + Path("q")).exit_code, 0);
  const Result inspect = Megatraind("inspect -o json " + Path("q"));
  EXPECT_EQ(inspect.exit_code, 0) << inspect.output;
  const auto json = nlohmann::json::parse(inspect.output);
  EXPECT_EQ(json["model"]["family"], "qwen3");
  EXPECT_EQ(json["parameters"], 596049920);
  EXPECT_TRUE(json["tensors"].empty());
  EXPECT_EQ(Megatraind("inspect " + Path("nothing")).exit_code, 2);
}

TEST_F(CommandsTest, AJobThatDoesNotFitIsThree) {
  MakeJob("{steps: 1}");
  EXPECT_EQ(Megatraind("plan " + Path("job.yaml")).exit_code, 0);
  const std::string small = Path("job.yaml") + " --set engine.host_memory=1MiB";
  EXPECT_EQ(Megatraind("plan " + small).exit_code, 3);
  EXPECT_EQ(Megatraind("run " + small).exit_code, 3);
  const Result json = Megatraind("plan -o json " + Path("job.yaml"));
  EXPECT_TRUE(nlohmann::json::accept(json.output)) << json.output;
}

TEST_F(CommandsTest, PlanTakesGivenRatesAndRefusesOthers) {
  MakeJob("{steps: 1}");
  const Result plan = Megatraind("plan " + Path("job.yaml") +
                                 " --profile h200 --rate dram=80 --rate products=700 -o json");
  EXPECT_EQ(plan.exit_code, 0) << plan.output;
  EXPECT_THAT(plan.output, HasSubstr("\"chosen_by\""));
  for (const char* wrong : {"speed=3", "dram=0", "dram=-2", "dram"}) {
    const Result refused =
        Megatraind("plan " + Path("job.yaml") + " --profile h200 --rate " + wrong);
    EXPECT_EQ(refused.exit_code, 2) << wrong;
    EXPECT_THAT(refused.output, HasSubstr("attention_backward (TFLOP/s)")) << wrong;
  }
}

// No machine has a GPU of this number.
TEST_F(CommandsTest, ADeviceThatIsNotHereIsTwoAndIsPlannedForByItsMemory) {
  MakeJob("{steps: 1}");
  const std::string job = Path("job.yaml") + " --set engine.device=cuda:999";
  const Result run = Megatraind("run " + job);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.output, HasSubstr("engine.device: cuda"));
  EXPECT_FALSE(std::filesystem::exists(Path("demo/checkpoints")));
  const Result generate = Megatraind("generate " + Path("model") + " --prompt a --device cuda:999");
  EXPECT_EQ(generate.exit_code, 2);
  EXPECT_THAT(generate.output, HasSubstr("--device: cuda"));
  const Result unknown = Megatraind("plan " + job);
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("engine.device_memory"));
  const Result large = Megatraind("plan " + job + " --set engine.device_memory=80GiB");
  EXPECT_EQ(large.exit_code, 0) << large.output;
  EXPECT_THAT(large.output, HasSubstr("stream workspace"));
  EXPECT_EQ(Megatraind("plan " + job + " --set engine.device_memory=1MiB").exit_code, 3);
}

TEST_F(CommandsTest, PlansForAMachineByItsName) {
  MakeJob("{steps: 1}");
  const std::string plan = "plan -o json " + Path("job.yaml") + " --profile ";
  const Result json = Megatraind(plan + "h200");
  ASSERT_EQ(json.exit_code, 0) << json.output;
  EXPECT_EQ(nlohmann::json::parse(json.output)["profile"], "h200");
  EXPECT_EQ(Megatraind(plan + "h200 --set engine.device_memory=1MiB").exit_code, 3);
  const Result refused = Megatraind(plan + "h2000");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("h2000"), HasSubstr("h200, h100")));
}

TEST_F(CommandsTest, TrainsVerifiesExportsAndGenerates) {
  MakeJob("{steps: 3, global_batch: 2, micro_batch: 1, eval_every: 2}");
  const std::string metrics = Path("metrics.jsonl");
  const std::string run = "run " + Path("job.yaml") + " --metrics-out " + metrics;
  Result result = Megatraind(run);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("step 3/3"));
  std::ifstream file(metrics);
  std::string line;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(std::getline(file, line));
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["step"], step);
    EXPECT_EQ(json.contains("eval_loss"), step >= 2);  // every two steps, and at the end
  }
  EXPECT_FALSE(std::getline(file, line));
  // Finished already: nothing to do, and the metrics stay.
  const auto size = std::filesystem::file_size(metrics);
  EXPECT_EQ(Megatraind(run).exit_code, 0);
  EXPECT_EQ(std::filesystem::file_size(metrics), size);
  EXPECT_EQ(Megatraind(run + " --resume never").exit_code, 2);
  // A key that a resumed run may not change.
  result = Megatraind(run + " --set optimizer.beta1=0.5 --set training.steps=4");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("optimizer.beta1"));

  const std::string checkpoint = Path("demo/checkpoints/step-00000003");
  EXPECT_EQ(Megatraind("verify " + checkpoint).exit_code, 0);
  EXPECT_EQ(Megatraind("inspect " + checkpoint).exit_code, 0);
  result = Megatraind("export " + checkpoint + " --out " + Path("exported"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(Megatraind("inspect " + Path("exported")).exit_code, 0);
  const std::string generate = " --prompt 'All work' --tokens 8 --temperature 0";
  const Result from_export = Megatraind("generate " + Path("exported") + generate);
  EXPECT_EQ(from_export.exit_code, 0) << from_export.output;
  EXPECT_EQ(Megatraind("generate " + Path("out") + generate).output, from_export.output);
  EXPECT_EQ(Megatraind("generate " + checkpoint + generate).output, from_export.output);

  // One flipped bit is found and its file named.
  std::string victim;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename();
    if (name.rfind("optimizer-", 0) == 0) victim = name;
  }
  std::fstream bits(checkpoint + "/" + victim, std::ios::in | std::ios::out | std::ios::binary);
  bits.seekg(-1, std::ios::end);
  const char last = static_cast<char>(bits.get() ^ 1);
  bits.seekp(-1, std::ios::end);
  bits.put(last);
  bits.close();
  result = Megatraind("verify " + checkpoint);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr(victim));
}

TEST_F(CommandsTest, InspectShowsWhatTrainingSees) {
  MakeJob("{steps: 3, global_batch: 2}");
  Result result = Megatraind("inspect " + Path("job.yaml") + " --sequences 0:2 -o json");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  ASSERT_EQ(json.size(), 2u);
  for (const char* key : {"input_ids", "labels", "position_ids", "document_ids"}) {
    EXPECT_EQ(json[0][key].size(), 64u) << key;
  }
  EXPECT_EQ(Megatraind("inspect " + Path("job.yaml")).exit_code, 0);
  result = Megatraind("inspect " + Path("job.yaml") + " -o json");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  // Programs of users read these names.
  for (const char* key :
       {"documents", "tokens", "sequences", "truncated_examples", "dropped_tokens",
        "examples_without_target", "turns_left_out", "bad_records", "named_bad_records"}) {
    EXPECT_THAT(result.output, HasSubstr(std::string("\"") + key + "\":")) << key;
  }
  EXPECT_EQ(Megatraind("inspect " + Path("job.yaml") + " --sequences x").exit_code, 2);
  EXPECT_EQ(Megatraind("inspect " + Path("model") + " --sequences 0:1").exit_code, 2);
  result = Megatraind("inspect " + Path("train.txt") + " --sequence-length 64 -o json");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  // 17,600 bytes, each a token.
  const auto file = nlohmann::json::parse(result.output);
  EXPECT_EQ(file["train"]["documents"], 1);
  EXPECT_NEAR(file["train"]["tokens"].get<double>(), 17600, 10);
  EXPECT_NEAR(file["train"]["sequences"].get<double>(), 277, 8);
  EXPECT_EQ(file["train"]["sequences"], file["train_sequences"]);
  EXPECT_EQ(file["eval_sequences"], 0);
  result = Megatraind("inspect " + Path("train.txt"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("All work"));
  WriteFile("chat.jsonl", R"({"messages": [{"role": "user", "content": "Play?"},)"
                          R"( {"role": "assistant", "content": "All work"}]})");
  result = Megatraind("inspect " + Path("chat.jsonl") +
                      " --chat-template alpaca --format messages --sequence-length 200");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("### Instruction:\\nPlay?"));
  EXPECT_THAT(result.output, HasSubstr("sequence 0: 153 tokens, 47 padding"));
  result = Megatraind("inspect " + Path("train.txt") + " --model " + Path("nothing"));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr(Path("nothing")));
  result = Megatraind("inspect " + Path("train.txt") + " --dtype float");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("--dtype"));
}

TEST_F(CommandsTest, GenerateAnswersAFileOfPrompts) {
  ASSERT_EQ(Megatraind("init --preset llama-tiny --out " + Path("model")).exit_code, 0);
  WriteFile("prompts.jsonl",
            "{\"prompt\": \"All work\"}\n"
            "{\"messages\": [{\"role\": \"user\", \"content\": \"Play?\"}], \"seed\": 3}\n");
  const std::string generate = "generate " + Path("model") + " --tokens 5 ";
  const Result both = Megatraind(generate + "-o json --prompts " + Path("prompts.jsonl"));
  ASSERT_EQ(both.exit_code, 0) << both.output;
  std::istringstream lines(both.output);
  std::vector<nlohmann::json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(answers.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(answers[i]["index"], i);
    EXPECT_LE(answers[i]["tokens"], 5);
  }
  EXPECT_EQ(answers[0]["prompt_tokens"], 8);
  EXPECT_EQ(answers[0]["finish_reason"], answers[0]["tokens"] == 5 ? "length" : "stop");
  const Result one = Megatraind(generate + "-o json --prompt 'All work'");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const nlohmann::json alone = nlohmann::json::parse(one.output);
  EXPECT_EQ(alone["text"], answers[0]["text"]);
  EXPECT_EQ(alone["prompt"], "All work");
  const Result text = Megatraind(generate + "--prompt 'All work'");
  EXPECT_EQ(text.output.substr(0, 8), "All work");  // and bytes that need not be UTF-8
  EXPECT_EQ(text.output.back(), '\n');
  const Result chat = Megatraind(generate + "--chat --prompt 'All work'");
  EXPECT_EQ(chat.exit_code, 0) << chat.output;
  EXPECT_THAT(chat.output, ::testing::Not(HasSubstr("All work"))) << "the answer alone";

  WriteFile("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  const Result bad = Megatraind(generate + "--prompts " + Path("bad.jsonl"));
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.output,
              AllOf(HasSubstr("bad.jsonl:2"), HasSubstr("neither prompt nor messages")));
  EXPECT_EQ(Megatraind(generate).exit_code, 2);
  EXPECT_EQ(Megatraind(generate + "--prompt a --top-p 0").exit_code, 2);
  EXPECT_EQ(Megatraind(generate + "--prompt a --top-p 1.5").exit_code, 2);
  const Result small = Megatraind(generate + "--prompt a --device-memory 100KiB");
  EXPECT_EQ(small.exit_code, 3);
  EXPECT_THAT(small.output, HasSubstr("device memory: needs"));
}

TEST_F(CommandsTest, TokensExpireWhenTheyAreToldTo) {
  const std::string file = " --tokens-file " + Path("tokens");
  const auto seconds = [](const nlohmann::json& text) {
    absl::Time time;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text.get<std::string>(), &time, nullptr));
    return absl::ToUnixSeconds(time);
  };
  const auto newest = [&] {
    return nlohmann::json::parse(Megatraind("token ls -o json" + file).output).back();
  };
  for (const auto& [expires, expected] :
       {std::pair{"90d", 90 * 86400}, {"1d", 86400}, {"12h", 43200}, {"1h30m", 5400}}) {
    const Result added = Megatraind(std::string("token add daemon --expires ") + expires + file);
    ASSERT_EQ(added.exit_code, 0) << added.output;
    const nlohmann::json token = newest();
    EXPECT_EQ(seconds(token["expires"]) - seconds(token["created"]), expected) << expires;
    EXPECT_EQ(token["expired"], false);
  }
  ASSERT_EQ(Megatraind("token add daemon" + file).exit_code, 0);
  EXPECT_EQ(newest()["expires"], "never");
  for (const char* wrong : {"0d", "-1d", "36501d", "90", "soon", "d"}) {
    const Result refused = Megatraind(std::string("token add daemon --expires=") + wrong + file);
    EXPECT_EQ(refused.exit_code, 2) << wrong;
    EXPECT_THAT(refused.output, HasSubstr("expects a time from now")) << wrong;
  }
}

TEST_F(CommandsTest, TheConfigurationNamesTheTokens) {
  EXPECT_THAT(Megatraind("token ls").output, HasSubstr("which tokens?"));
  WriteFile("without.yaml", "threads: 1\n");
  const Result without = Megatraind("token ls --config " + Path("without.yaml"));
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.output, HasSubstr("tokens_file: is not set"));
  WriteFile("daemon.yaml", "tokens_file: " + Path("tokens") + "\n");
  const std::string config = " --config " + Path("daemon.yaml");
  EXPECT_EQ(Megatraind("token ls -o json" + config).output, "[]\n") << "no file: no tokens";
  EXPECT_EQ(Megatraind("token add no-such-account" + config).exit_code, 2);
  ASSERT_EQ(Megatraind("token add daemon" + config).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(Megatraind("token ls -o json" + config).output).size(), 1u);
}

TEST_F(CommandsTest, ExpiredTokensAreMarkedAndRevokedOnesAreGone) {
  const std::string id = "0123456789abcdef", file = " --tokens-file " + Path("tokens");
  WriteFile("tokens", id + " " + std::string(64, '0') +
                          " daemon 2020-01-31T12:00:00Z 2020-02-01T12:00:00Z\n");
  std::filesystem::permissions(Path("tokens"), std::filesystem::perms(0600));
  ASSERT_EQ(Megatraind("token add daemon" + file).exit_code, 0);
  const auto list = [&] {
    return nlohmann::json::parse(Megatraind("token ls -o json" + file).output);
  };
  ASSERT_EQ(list().size(), 2u);
  EXPECT_EQ(list()[0]["expired"], true);
  EXPECT_EQ(list()[1]["expired"], false);
  EXPECT_THAT(Megatraind("token ls" + file).output,
              AllOf(HasSubstr("  daemon  2020-01-31T12:00:00Z  2020-02-01T12:00:00Z (expired)\n"),
                    HasSubstr("  never\n")));
  EXPECT_EQ(Megatraind("token revoke " + id + file).exit_code, 0);
  ASSERT_EQ(list().size(), 1u);
  EXPECT_NE(list()[0]["id"].get<std::string>(), id);
  EXPECT_EQ(Megatraind("token revoke " + id + file).exit_code, 2);
}

// The same number, to the last digit.
TEST_F(CommandsTest, EvaluateGivesARunsEvalLoss) {
  MakeJob("{steps: 2, global_batch: 4, micro_batch: 2}");
  std::string text;
  for (int i = 0; i < 90; ++i) text += "The quick brown fox jumps over the lazy dog. ";
  WriteFile("eval.txt", text);
  const std::string metrics = Path("metrics.jsonl");
  const Result run =
      Megatraind("run " + Path("job.yaml") + " --metrics-out " + metrics +
                 " --set data.eval_fraction=0 --set 'data.eval=[{path: " + Path("eval.txt") +
                 ", format: text}]'");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::ifstream file(metrics);
  std::string line, last;
  while (std::getline(file, line)) last = line;
  const double eval_loss = nlohmann::json::parse(last)["eval_loss"];
  const std::string evaluate = "evaluate " + Path("out") + " --data " + Path("eval.txt");
  const std::string batches = " --set training.global_batch=4 --sequence-length 64";
  const Result json = Megatraind(evaluate + batches + " -o json");
  ASSERT_EQ(json.exit_code, 0) << json.output;
  const auto report = nlohmann::json::parse(json.output);
  EXPECT_EQ(report["loss"].get<double>(), eval_loss);
  EXPECT_DOUBLE_EQ(report["perplexity"], std::exp(eval_loss));
  EXPECT_GT(report["predictions"], 3000);
  EXPECT_EQ(report["documents"], 1);
  EXPECT_NEAR(report["tokens"].get<double>(), 4050, 10);
  EXPECT_NEAR(report["sequences"].get<double>(), 64, 2);
  const Result table = Megatraind(evaluate + batches);
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.output, HasSubstr("perplexity"));

  EXPECT_EQ(Megatraind("evaluate " + Path("out")).exit_code, 2);
  const Result fixed = Megatraind(evaluate + " --set training.steps=3");
  EXPECT_EQ(fixed.exit_code, 2);
  EXPECT_THAT(fixed.output, HasSubstr("--set training.steps=3"));
  for (const char* key :
       {"data.train=[]", "data.eval=[]", "data.eval_fraction=0.1", "data.epochs=2"}) {
    const Result refused = Megatraind(evaluate + " --set '" + key + "'");
    EXPECT_EQ(refused.exit_code, 2) << key;
    EXPECT_THAT(refused.output, HasSubstr(": only keys that say how data.eval is read")) << key;
  }
  const Result missing = Megatraind("evaluate " + Path("out") + " --data " + Path("none.txt"));
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_THAT(missing.output, HasSubstr("none.txt"));
}

TEST_F(CommandsTest, ARunThatStopsEarlyIsDone) {
  MakeJob("{steps: 9, global_batch: 2, micro_batch: 1, eval_every: 1, stop_after_worse: 1}");
  const Result run = Megatraind("run " + Path("job.yaml") + " --set optimizer.learning_rate=0");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("stopped at step 2 of 9"));
}

}  // namespace
}  // namespace megatrain
