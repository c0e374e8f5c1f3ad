#include "engine/job/spec_values.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/resume_check.h"
#include "engine/job/job_keys.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(SpecValuesTest, HoldsWhatAResumedRunMayNotChange) {
  const auto values = SpecValues(JobSpec());
  EXPECT_EQ(values.at("training.global_batch"), "8");
  EXPECT_EQ(values.at("optimizer.learning_rate"), "0.0003");
  EXPECT_EQ(values.at("data.train"), "[]");
  EXPECT_EQ(values.at("training.freeze"), "[]");
  EXPECT_EQ(values.at("optimizer.groups"), "[]");
  for (const char* free : {"training.steps", "training.epochs", "training.eval_every",
                           "training.keep_best", "training.skip_steps", "report.tensorboard",
                           "checkpoint.keep", "output.directory", "engine.threads"}) {
    EXPECT_EQ(values.count(free), 0u) << free;
  }
}

// CheckResumable's error lists the keys by hand, whole sections by their names.
TEST(SpecValuesTest, WhatAResumedRunMayChangeIsListedInTheRefusal) {
  CheckpointState other;
  other.seed = 1;
  const std::string refusal(CheckResumable(other, CheckpointState()).message());
  JobSpec spec;
  for (const ConfigKey& key : JobKeys(&spec).keys) {
    if (!key.may_change) continue;
    const std::string section = key.path.substr(0, key.path.find('.'));
    EXPECT_TRUE(absl::StrContains(refusal, key.path) ||
                absl::StrContains(refusal, absl::StrCat(" ", section, ",")) ||
                absl::StrContains(refusal, absl::StrCat(" ", section, " ")))
        << key.path << " is not in: " << refusal;
  }
}

TEST(SpecValuesTest, DifferInWhatAResumedRunMayNotChange) {
  JobSpec before;
  before.data.train = {{"/a", DataFormat::kText, ""}};
  JobSpec now = before;
  now.training.steps = 1000;
  now.engine.threads = 1;
  now.checkpoint.keep = 9;
  EXPECT_EQ(SpecValues(now), SpecValues(before));

  now.data.train.push_back({"/b", DataFormat::kTokens, "uint16"});
  EXPECT_NE(SpecValues(now).at("data.train"), SpecValues(before).at("data.train"));
  now.optimizer.beta1 = 0.8;
  EXPECT_EQ(SpecValues(before).at("optimizer.beta1"), "0.9");
  EXPECT_EQ(SpecValues(now).at("optimizer.beta1"), "0.8");
}

TEST(SpecValuesTest, DifferInTheNamesOfEvaluationSets) {
  JobSpec before;
  before.data.eval = {{"/a", DataFormat::kText, ""}};
  before.data.eval[0].name = "chat";
  JobSpec now = before;
  EXPECT_EQ(SpecValues(now), SpecValues(before));
  now.data.eval[0].name = "code";
  EXPECT_NE(SpecValues(now).at("data.eval"), SpecValues(before).at("data.eval"));
}

TEST(SpecValuesTest, DifferInTheWeightsOfAMix) {
  JobSpec before;
  before.data.train = {{"/a", DataFormat::kText, ""}, {"/b", DataFormat::kTokens, "uint16"}};
  before.data.train[0].weight = before.data.train[1].weight = 1;
  JobSpec now = before;
  EXPECT_EQ(SpecValues(now), SpecValues(before));
  now.data.train[1].weight = 1.0000000000000002;
  EXPECT_NE(SpecValues(now).at("data.train"), SpecValues(before).at("data.train"));
  EXPECT_NE(WithoutPaths(SpecValues(now)), WithoutPaths(SpecValues(before)));
  now = before;
  now.data.train[1].dtype = "uint32";
  EXPECT_NE(SpecValues(now).at("data.train"), SpecValues(before).at("data.train"));
}

TEST(SpecValuesTest, PathsMayBeLeftOut) {
  JobSpec before, now;
  before.model.path = "/a";
  before.data.train = {{"/a/x.txt", DataFormat::kText, ""},
                       {"{path(3): ", DataFormat::kAlpaca, ""}};
  before.data.chat_template = "/a/chat.jinja";
  before.data.cache_directory = "/a/cache";
  now = before;
  now.model.path = "/elsewhere";
  now.data.train[0].path = "b, format: alpaca}";
  now.data.train[1].path = "/elsewhere/y";
  now.data.chat_template = "/elsewhere/template.jinja";
  now.data.cache_directory = "";
  EXPECT_NE(SpecValues(now), SpecValues(before));
  const auto values = WithoutPaths(SpecValues(before));
  EXPECT_EQ(WithoutPaths(SpecValues(now)), values);
  EXPECT_EQ(values.at("data.train"), "[{path, format: text}, {path, format: alpaca}]");
  EXPECT_EQ(values.count("model.path"), 0u);
  now.data.train[1].format = DataFormat::kMessages;
  EXPECT_NE(WithoutPaths(SpecValues(now)), values);
  now.data.train.pop_back();
  EXPECT_NE(WithoutPaths(SpecValues(now)), values);
  now = before;
  now.data.chat_template = "chatml";
  EXPECT_NE(WithoutPaths(SpecValues(now)), values);
}

// A manifest is JSON, which holds UTF-8 alone.
TEST(SpecValuesTest, APathThatIsNotUtf8IsTakenAsAManifestHoldsIt) {
  JobSpec spec;
  spec.data.train = {{"/caf\xe9/\xc3\xa9", DataFormat::kText, ""}};
  EXPECT_EQ(SpecValues(spec).at("data.train"),
            "[{path(10): /caf\xef\xbf\xbd/\xc3\xa9, format: text}]");
  EXPECT_EQ(WithoutPaths(SpecValues(spec)).at("data.train"), "[{path, format: text}]");
}

TEST(SpecValuesTest, OptimizerGroupsDifferInPatternAndRates) {
  JobSpec before;
  before.optimizer.groups = {{"a", 1e-5, std::nullopt}};
  const auto groups = [](const JobSpec& spec) { return SpecValues(spec).at("optimizer.groups"); };
  const std::vector<JobSpec::Optimizer::Group> others = {{"b", 1e-5, std::nullopt},
                                                         {"a", 1e-4, std::nullopt},
                                                         {"a", std::nullopt, 1e-5},
                                                         {"a", 1e-5, 0.0}};
  for (const JobSpec::Optimizer::Group& other : others) {
    JobSpec now = before;
    now.optimizer.groups = {other};
    EXPECT_NE(groups(now), groups(before)) << groups(now);
  }
  JobSpec now = before;
  now.optimizer.groups.push_back(before.optimizer.groups[0]);
  EXPECT_NE(groups(now), groups(before));
}

// A manifest may be hostile.
TEST(SpecValuesTest, TextsThatAreNoListsStayAsTheyAre) {
  for (const std::string text : {"", "[]", "{path(", "{path(x): a", "[{path(7): ab}]",
                                 "[{path(-1): ab}]", "[{path(99999999999999999999): ab}]"}) {
    EXPECT_EQ(WithoutPaths({{"data.train", text}}).at("data.train"), text);
  }
}

TEST(SpecValuesTest, PathsCannotImitateAListOfFiles) {
  JobSpec one;
  one.data.train = {{"/a, format: text}, {path(2): /b", DataFormat::kText, ""}};
  JobSpec two;
  two.data.train = {{"/a", DataFormat::kText, ""}, {"/b", DataFormat::kText, ""}};
  EXPECT_NE(SpecValues(one), SpecValues(two));
}

// A key that a resumed run may change is still the same in all processes of a run.
TEST(SpecValuesTest, OfAllProcessesAreAllButWhatEachHasOfItsOwn) {
  JobSpec one;
  one.data.train = {{"/a", DataFormat::kText, ""}};
  JobSpec other = one;
  other.model.path = "/elsewhere/model";
  other.data.train = {{"/b", DataFormat::kText, ""}};
  one.output.directory = "/output";
  other.checkpoint.directory = other.output.directory = other.report.tensorboard = "/elsewhere";
  other.engine.device = "cuda:1";
  other.engine.threads = other.engine.update_threads = 3;
  EXPECT_EQ(ValuesOfAllProcesses(other), ValuesOfAllProcesses(one));
  other.output.directory = "";
  EXPECT_NE(ValuesOfAllProcesses(other), ValuesOfAllProcesses(one)) << "none takes part alone";
  other.output.directory = "/elsewhere";
  other.training.steps = 7;
  EXPECT_NE(ValuesOfAllProcesses(other), ValuesOfAllProcesses(one));
  JobSpec spec;
  const auto values = ValuesOfAllProcesses(spec);
  for (const ConfigKey& key : JobKeys(&spec).keys) {
    const bool own = key.path.ends_with("_directory") || key.path == "checkpoint.directory" ||
                     key.path.ends_with("threads") || key.path == "model.path" ||
                     key.path == "report.tensorboard" || key.path == "engine.device" ||
                     key.path == "engine.link_gigabytes_per_second";
    EXPECT_EQ(values.count(key.path), own ? 0u : 1u) << key.path;
  }
}

}  // namespace
}  // namespace megatrain
