// The keys of training.objective: dpo, and what they may stand beside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/job/job_parser.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<JobSpec> Parse(const std::string& data, const std::string& training) {
  return ParseJobText("model: {path: m}\ndata: {" + data + "}\ntraining: {" + training + "}\n",
                      "job.yaml", "/jobs", {});
}

constexpr char kPairs[] = "train: [{path: p.jsonl, format: preference}]";

std::string Refusal(const std::string& data, const std::string& training) {
  const auto spec = Parse(data, training);
  EXPECT_TRUE(absl::IsInvalidArgument(spec.status())) << data << " " << training;
  return std::string(spec.status().message());
}

TEST(JobObjectiveTest, Keys) {
  const auto plain = Parse(kPairs, "objective: dpo");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->training.objective, Objective::kDpo);
  EXPECT_EQ(plain->training.dpo.loss, PreferenceLossKind::kSigmoid);
  EXPECT_EQ(plain->training.dpo.beta, 0.1);
  EXPECT_EQ(plain->training.dpo.label_smoothing, 0);
  EXPECT_FALSE(plain->training.dpo_reference_free);
  const auto spec =
      Parse("train: [{path: p.jsonl, format: sharegpt}], eval: [{path: e.jsonl, format: alpaca}]",
            "objective: dpo, dpo_beta: 0.5, dpo_loss: robust, dpo_label_smoothing: 0.1, "
            "dpo_reference_free: true");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->training.dpo.loss, PreferenceLossKind::kRobust);
  EXPECT_EQ(spec->training.dpo.beta, 0.5);
  EXPECT_EQ(spec->training.dpo.label_smoothing, 0.1);
  EXPECT_TRUE(spec->training.dpo_reference_free);
}

TEST(JobObjectiveTest, WhatWouldBePassedOverIsRefused) {
  EXPECT_THAT(Refusal("train: [{path: t, format: text}]", "dpo_beta: 0.2"),
              HasSubstr("training.dpo_beta: is for training.objective: dpo"));
  EXPECT_THAT(Refusal("train: [{path: t, format: text}]", "dpo_loss: ipo"),
              HasSubstr("training.dpo_loss: is for training.objective: dpo"));
  EXPECT_THAT(Refusal("train: [{path: t, format: text}]", "dpo_label_smoothing: 0.1"),
              HasSubstr("training.dpo_label_smoothing: is for training.objective: dpo"));
  EXPECT_THAT(Refusal("train: [{path: t, format: text}]", "dpo_reference_free: true"),
              HasSubstr("training.dpo_reference_free: is for training.objective: dpo"));
  EXPECT_THAT(Refusal(kPairs, "steps: 3"), HasSubstr("p.jsonl: format preference holds pairs"));
  EXPECT_THAT(Refusal("train: [{path: t, format: text}]", "objective: dpo"),
              HasSubstr("format text holds no pairs of answers"));
  EXPECT_THAT(Refusal("train: [{path: p, format: preference}], "
                      "eval: [{path: e.npy, format: tokens}]",
                      "objective: dpo"),
              HasSubstr("data.eval: e.npy: format tokens holds no pairs"));
  EXPECT_THAT(Refusal(kPairs, "objective: dpo, dpo_loss: ipo, dpo_label_smoothing: 0.1"),
              HasSubstr("is for dpo_loss: sigmoid or robust"));
  EXPECT_THAT(Refusal(std::string(kPairs) + ", train_on: all", "objective: dpo"),
              HasSubstr("data.train_on: with training.objective: dpo"));
  EXPECT_THAT(Refusal(std::string(kPairs) + ", sequence_length: 3", "objective: dpo"),
              HasSubstr("at least 4 tokens"));
  EXPECT_THAT(Refusal(kPairs, "objective: dpo, dpo_loss: orpo"),
              HasSubstr("expects sigmoid, robust, hinge or ipo"));
  EXPECT_THAT(Refusal(kPairs, "objective: dpo, dpo_beta: 0"), HasSubstr("training.dpo_beta"));
  EXPECT_THAT(Refusal(kPairs, "objective: ppo"), HasSubstr("expects causal or dpo"));
}

TEST(JobObjectiveTest, WhatGoesTogetherIsAccepted) {
  for (const char* training :
       {"dpo_label_smoothing: 0.1", "dpo_loss: robust, dpo_label_smoothing: 0.1", "dpo_loss: ipo",
        "dpo_loss: hinge, dpo_label_smoothing: 0"}) {
    const auto spec = Parse(std::string(kPairs) + ", sequence_length: 4, train_on: last",
                            std::string("objective: dpo, ") + training);
    EXPECT_TRUE(spec.ok()) << spec.status();
  }
  const auto defaults = Parse("train: [{path: t, format: text}]",
                              "dpo_beta: 0.1, dpo_loss: sigmoid, dpo_label_smoothing: 0");
  EXPECT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_THAT(Refusal(std::string(kPairs) + ", train_on_prompt: true", "objective: dpo"),
              HasSubstr("data.train_on_prompt: with training.objective: dpo"));
  EXPECT_THAT(Refusal("train: [{path: t, format: text}], eval: [{path: e, format: preference}]",
                      "steps: 3"),
              HasSubstr("data.eval: e: format preference holds pairs"));
}

}  // namespace
}  // namespace megatrain
