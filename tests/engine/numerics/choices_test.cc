// Jobs that freeze tensors or give groups of them rates of their own, against transformers +
// PyTorch with requires_grad=False and parameter groups.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

class ChoicesTest : public ::testing::TestWithParam<std::tuple<ChoiceReference, bool>> {
 protected:
  JobSpec Job(Precision precision, const std::string& directory) const {
    JobSpec spec = CurveJob(reference_, precision, clipped_, FreshDirectory(directory));
    spec.training.freeze = choice_.freeze;
    for (const ChoiceReference::Rates& rates : choice_.groups) {
      JobSpec::Optimizer::Group& group = spec.optimizer.groups.emplace_back();
      group.match = rates.match;
      if (rates.learning_rate >= 0) group.learning_rate = rates.learning_rate;
      if (rates.weight_decay >= 0) group.weight_decay = rates.weight_decay;
    }
    return spec;
  }
  bool IsFrozen(const std::string& name) const {
    const bool tied = choice_.family == "qwen2" || choice_.family == "llama_tied";
    return std::any_of(choice_.freeze.begin(), choice_.freeze.end(), [&](const std::string& p) {
      return fnmatch(p.c_str(), name.c_str(), 0) == 0 ||
             (tied && name == "model.embed_tokens.weight" &&
              fnmatch(p.c_str(), "lm_head.weight", 0) == 0);
    });
  }
  // A learning rate of 0 moves nothing, but has state.
  static bool HasNoRate(const std::string& name) {
    return name.find(".q_proj.") != std::string::npos;
  }
  // In the newest checkpoint frozen weights are those of the model, and have no state.
  void CheckFrozen(const JobSpec& spec) const {
    const NamedTensors before = ReadFloatTensors(reference_.directory + "/model.safetensors");
    std::string states;
    size_t seen = 0;
    for (const auto& [file, bytes] : CheckpointTensorFiles(spec)) {
      if (file.rfind("optimizer", 0) == 0) states += bytes;
      if (file.rfind("model", 0) != 0) continue;
      for (const auto& [name, values] : ReadFloatTensors(NewestCheckpoint(spec) + "/" + file)) {
        const bool still = choice_.name == "rates_and_frozen" && HasNoRate(name);
        const bool same = values == before.at(name);
        if (IsFrozen(name) || still) {
          EXPECT_TRUE(same) << name;
        } else if (spec.training.precision == Precision::kFp32) {
          EXPECT_FALSE(same) << name;  // in BF16 a small change may be in the remainder alone
        }
        ++seen;
      }
    }
    EXPECT_EQ(seen, before.size());
    for (const auto& [name, values] : before) {
      for (const char* section : {".exp_avg", ".exp_avg_sq", ".remainder"}) {
        const bool has = states.find('"' + name + section + '"') != std::string::npos;
        const bool wanted = !IsFrozen(name) && (section != std::string(".remainder") ||
                                                spec.training.precision == Precision::kBf16);
        EXPECT_EQ(has, wanted) << name << section;
      }
    }
  }

  const ChoiceReference choice_ = std::get<0>(GetParam());
  const bool clipped_ = std::get<1>(GetParam());
  const ModelReference reference_ = LoadModelReference(choice_.family);
};

TEST_P(ChoicesTest, Fp32) {
  const JobSpec spec = Job(Precision::kFp32, "fp32");
  const JobRun run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const LossCurve curve = run.curve(), &expected = choice_.fp32_curve[clipped_],
                  &exact = choice_.fp64_curve[clipped_];
  EXPECT_LE(CurveDistance(curve.losses, expected.losses),
            std::max(1e-4, 3 * CurveDistance(expected.losses, exact.losses)));
  EXPECT_LE(CurveDistance(curve.gradient_norms, expected.gradient_norms),
            std::max(1e-4, 3 * CurveDistance(expected.gradient_norms, exact.gradient_norms)));
  CheckFrozen(spec);
}

TEST_P(ChoicesTest, Bf16) {
  const JobSpec spec = Job(Precision::kBf16, "bf16");
  const JobRun run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const LossCurve curve = run.curve(), &fp32 = choice_.fp32_curve[clipped_],
                  &bf16 = choice_.bf16_curve[clipped_];
  EXPECT_LE(CurveDeviation(curve.losses, fp32.losses),
            1.5 * CurveDeviation(bf16.losses, fp32.losses));
  EXPECT_LE(CurveDistance(curve.gradient_norms, fp32.gradient_norms), 3e-2);
  // The weights of `llama` are not representable in BF16: they are rounded.
  if (choice_.family != "llama") CheckFrozen(spec);
}

INSTANTIATE_TEST_SUITE_P(All, ChoicesTest,
                         ::testing::Combine(::testing::ValuesIn(LoadChoices()), ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  (std::get<1>(info.param) ? "_clipped" : "_unclipped");
                         });

}  // namespace
}  // namespace megatrain
