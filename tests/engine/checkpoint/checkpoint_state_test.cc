#include "engine/checkpoint/checkpoint_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CheckpointStateTest, EqualStatesAreResumableWhateverTheStepAndThreads) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.step = 0;
  wanted.data_position = 0;
  wanted.threads = 64;
  wanted.arithmetic = "cuda, another library";
  wanted.steps_total = 1000;
  EXPECT_TRUE(CheckResumable(saved, wanted).ok());
}

void ExpectRefused(const CheckpointState& saved, const CheckpointState& wanted,
                   const testing::Matcher<std::string>& message) {
  const absl::Status status = CheckResumable(saved, wanted);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), message);
}

TEST(CheckpointStateTest, AChangedSpecKeyIsNamedWithBothValues) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.spec["optimizer.learning_rate"] = "0.001";
  ExpectRefused(
      saved, wanted,
      AllOf(HasSubstr("optimizer.learning_rate"), HasSubstr("0.0003"), HasSubstr("0.001")));
}

TEST(CheckpointStateTest, AnAddedAndARemovedSpecKeyAreBothNamed) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.spec.erase("optimizer.learning_rate");
  wanted.spec["optimizer.new_key"] = "7";
  ExpectRefused(
      saved, wanted,
      AllOf(HasSubstr("optimizer.learning_rate differs: the checkpoint has 0.0003, the "
                      "job nothing"),
            HasSubstr("optimizer.new_key differs: the checkpoint has nothing, the job 7")));
}

TEST(CheckpointStateTest, AnotherModelPrecisionSeedAndDataAreRefused) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  CheckpointState wanted = saved;
  wanted.model_fingerprint = "other";
  ExpectRefused(
      saved, wanted,
      AllOf(HasSubstr("another model"), HasSubstr("other"), HasSubstr(saved.model_fingerprint)));
  wanted = saved;
  wanted.weight_dtype = DType::kF32;
  ExpectRefused(saved, wanted,
                AllOf(HasSubstr("training.precision"), HasSubstr("bf16"), HasSubstr("fp32")));
  wanted = saved;
  wanted.seed = 7;
  ExpectRefused(saved, wanted, AllOf(HasSubstr("training.seed"), HasSubstr("job 7")));
  wanted = saved;
  wanted.data_fingerprint = "changed";
  ExpectRefused(saved, wanted, AllOf(HasSubstr("training data"), HasSubstr("changed")));
}

TEST(CheckpointStateTest, SectionsThatAreAllowedMayDifferAndTheDifferencesAreTold) {
  CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10), wanted = saved;
  saved.spec["schedule.warmup_steps"] = "5";
  wanted.spec["optimizer.beta1"] = "0.8";
  wanted.spec["optimizer.learning_rate"] = "0.001";
  wanted.step = 0;
  std::vector<AllowedChange> changes;
  const std::vector<std::string> both = {"optimizer", "schedule"};
  EXPECT_TRUE(CheckResumable(saved, wanted, both, &changes).ok());
  EXPECT_TRUE(CheckResumable(saved, wanted, both).ok()) << "nobody asks";
  ASSERT_EQ(changes.size(), 3u);
  const std::vector<std::vector<std::string>> expected = {
      {"optimizer.beta1", "", "0.8"},
      {"optimizer.learning_rate", "0.0003", "0.001"},
      {"schedule.warmup_steps", "5", ""}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(changes[i].step, 10);
    EXPECT_EQ(changes[i].key, expected[i][0]);
    EXPECT_EQ(changes[i].before, expected[i][1]);
    EXPECT_EQ(changes[i].now, expected[i][2]);
  }
  const absl::Status status = CheckResumable(saved, wanted, {"optimizer"});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("schedule.warmup_steps differs"),
                    Not(HasSubstr("optimizer.learning_rate differs"))));
}

// A section is the name before the first dot, and nothing but its keys is allowed.
TEST(CheckpointStateTest, AnAllowedSectionAllowsNothingElse) {
  const CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10);
  using Change = std::function<void(CheckpointState&)>;
  const std::vector<Change> changes = {
      [](auto& s) { s.spec["optimizer_of_mine.beta1"] = "1"; },
      [](auto& s) { s.spec["training.optimizer"] = "1"; },
      [](auto& s) { s.spec["training.global_batch"] = "16"; },
      [](auto& s) { s.seed = 7; },
      [](auto& s) { s.data_fingerprint = "changed"; },
      [](auto& s) { s.model_fingerprint = "other"; },
      [](auto& s) { s.weight_dtype = DType::kF32; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    CheckpointState wanted = saved;
    changes[i](wanted);
    EXPECT_EQ(CheckResumable(saved, wanted, {"optimizer", "schedule"}).code(),
              absl::StatusCode::kFailedPrecondition)
        << i;
  }
}

TEST(CheckpointStateTest, OtherCarriedTensorsAreRefused) {
  CheckpointState saved = MakeState(TinyLayout(), DType::kBF16, 10), wanted = saved;
  wanted.carried_digest = "a";
  EXPECT_TRUE(CheckResumable(saved, wanted).ok()) << "of a version that had no digest";
  saved.carried_digest = "b";
  ExpectRefused(saved, wanted, HasSubstr("tensors beside the text model"));
  wanted.carried_digest = "b";
  EXPECT_TRUE(CheckResumable(saved, wanted).ok());
}

TEST(CheckpointStateTest, WithoutANameARunIsKnownByWhatItTrains) {
  CheckpointState state = MakeState(TinyLayout(), DType::kBF16, 10);
  state.run.clear();
  const std::string name = RunName(state);
  CheckpointState later = state;
  later.step = 20;
  later.data_position = 7;
  later.threads = 64;
  EXPECT_EQ(RunName(later), name);
  using Change = std::function<void(CheckpointState&)>;
  const std::vector<Change> changes = {
      [](auto& s) { s.model_fingerprint = "other"; },
      [](auto& s) { s.weight_dtype = DType::kF32; },
      [](auto& s) { s.seed = 7; },
      [](auto& s) { s.data_fingerprint = "changed"; },
      [](auto& s) { s.spec["optimizer.learning_rate"] = "0.001"; },
      [](auto& s) { s.run = "named"; },
  };
  std::set<std::string> names = {name};
  for (size_t i = 0; i < changes.size(); ++i) {
    CheckpointState other = state;
    changes[i](other);
    EXPECT_TRUE(names.insert(RunName(other)).second) << i;
  }
  EXPECT_EQ(names.count("named"), 1u);
}

TEST(CheckpointStateTest, TheLastEvaluationIsKnownWhateverItsLoss) {
  Evaluations evaluations;
  evaluations.Add(3, 2.0);
  evaluations.Add(6, std::numeric_limits<double>::infinity());
  EXPECT_EQ(evaluations.last_step, 6);
  EXPECT_EQ(evaluations.last_loss, std::numeric_limits<double>::infinity());
  EXPECT_EQ(evaluations.best_step, 3);
  EXPECT_EQ(evaluations.best_loss, 2.0);
  EXPECT_EQ(evaluations.since_best, 1);
  EXPECT_EQ(evaluations.kept_step, 0) << "that is saved apart";
  evaluations.Add(9, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(evaluations.best_step, 3);
  EXPECT_EQ(evaluations.since_best, 2);
}

TEST(CheckpointStateTest, FingerprintSeesShapesAndMathematics) {
  const std::string base = ModelFingerprint(TinyLayout());
  EXPECT_EQ(base.size(), 32u);
  EXPECT_EQ(base, ModelFingerprint(TinyLayout()));
  using Change = std::function<void(ModelDescription&)>;
  const std::vector<Change> changes = {
      [](auto& m) { m.family = "qwen2"; },
      [](auto& m) { m.vocabulary += 1; },
      [](auto& m) { m.norm_epsilon = 1e-5; },
      [](auto& m) { m.one_plus_norms = true; },
      [](auto& m) { m.embedding_scale = 2; },
      [](auto& m) { m.rounds_embedding_scale = true; },
      [](auto& m) { m.padding_id = 3; },
      [](auto& m) { m.logit_scale = 0.5; },
      [](auto& m) { m.logit_softcap = 30; },
      [](auto& m) { m.tied_embeddings = true; },
      [](auto& m) { m.wrapper.family = "gemma3"; },
      [](auto& m) { m.ropes[0].theta = 500000; },
      [](auto& m) { m.ropes[0].type = RopeType::kLinear; },
      [](auto& m) { m.ropes[0].factor = 8; },
      [](auto& m) { m.ropes[0].low_frequency_factor = 2; },
      [](auto& m) { m.ropes[0].high_frequency_factor = 8; },
      [](auto& m) { m.ropes[0].original_positions = 99; },
      [](auto& m) { m.ropes[0].beta_fast = 16; },
      [](auto& m) { m.ropes[0].beta_slow = 2; },
      [](auto& m) { m.ropes[0].attention_factor = 1.5; },
      [](auto& m) { m.ropes[0].rotary_dim = 4; },
      [](auto& m) { m.ropes[0].interleaved = true; },
      [](auto& m) { m.ropes[0].truncate = false; },
      [](auto& m) { m.ropes[0].position_scale = 0.1; },
      [](auto& m) { m.ropes[0].turning_pairs = 1; },
      [](auto& m) {
        m.ropes[0].short_factors = {1, 2, 3};
      },
      [](auto& m) {
        m.ropes[0].long_factors = {1, 2, 3};
      },
      [](auto& m) { m.ropes.push_back(m.ropes[0]); },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).theta = 500000; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).type = RopeType::kLinear; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).factor = 8; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).low_frequency_factor = 2; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).high_frequency_factor = 8; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).original_positions = 99; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).beta_fast = 16; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).beta_slow = 2; },
      [](auto& m) { m.ropes.emplace_back(m.ropes[0]).attention_factor = 1.5; },
      [](auto& m) { m.layers[1].attention.window = 8; },
      [](auto& m) { m.layers[0].attention.window = 8; },
      [](auto& m) { m.layers[1].attention.softcap = 50; },
      [](auto& m) { m.layers[1].attention.score_scale = 1; },
      [](auto& m) { m.layers[1].attention.sinks = true; },
      [](auto& m) { m.layers[1].attention.qkv_bias = true; },
      [](auto& m) { m.layers[1].attention.output_bias = true; },
      [](auto& m) { m.layers[1].attention.fused_qkv = true; },
      [](auto& m) { m.layers[1].attention.qk_norm = QkNorm::kHead; },
      [](auto& m) { m.layers[1].attention.qk_norm = QkNorm::kFull; },
      [](auto& m) { m.layers[1].attention.value_norm = true; },
      [](auto& m) { m.layers[1].attention.values_are_keys = true; },
      [](auto& m) { m.layers[1].output_scale = true; },
      [](auto& m) { m.layers[1].attention.query_rope = -1; },
      [](auto& m) { m.layers[1].attention.key_rope = -1; },
      [](auto& m) { m.layers[1].attention_norms.norm = ""; },
      [](auto& m) { m.layers[1].attention_norms.post_norm = "after"; },
      [](auto& m) { m.layers[1].feed_forward_norms.post_norm = "after"; },
      [](auto& m) { m.layers[1].feed_forward.activation = GluActivation::kGeluTanh; },
      [](auto& m) { m.layers[1].feed_forward.intermediate += 1; },
      [](auto& m) { m.layers[1].residual_scale = 0.5; },
      [](auto& m) { m.layers.pop_back(); },
  };
  std::set<std::string> fingerprints = {base};
  for (size_t i = 0; i < changes.size(); ++i) {
    ModelDescription model = TinyConfig();
    changes[i](model);
    EXPECT_TRUE(fingerprints.insert(ModelFingerprint(BuildModelLayout(model))).second) << i;
  }
}

TEST(CheckpointStateTest, FingerprintSeesLatents) {
  using Change = std::function<void(LatentDescription&)>;
  const std::vector<Change> changes = {
      [](auto&) {},
      [](auto& l) { l.key_value_rank = 6; },
      [](auto& l) { l.query_rank = 0; },
      [](auto& l) { l.query_rank = 8; },
      [](auto& l) { l.rotary_dim = 4; },
      [](auto& l) { l.value_dim = 4; },
      [](auto& l) { l.norm_epsilon = 1e-5; },
  };
  std::set<std::string> fingerprints = {ModelFingerprint(TinyLayout())};
  for (size_t i = 0; i < changes.size(); ++i) {
    ModelDescription model = TinyConfig();
    AttentionDescription& attention = model.layers[1].attention;
    attention.kv_heads = attention.heads;
    attention.latent = {.key_value_rank = 5, .query_rank = 7, .rotary_dim = 2, .value_dim = 3};
    changes[i](attention.latent);
    EXPECT_TRUE(fingerprints.insert(ModelFingerprint(BuildModelLayout(model))).second) << i;
  }
}

// Each change leaves the tensors' names and shapes as they are.
TEST(CheckpointStateTest, FingerprintSeesHeadsOfDeltaNets) {
  std::set<std::string> fingerprints;
  for (const int64_t key_heads : {1, 2, 4}) {
    ModelDescription model = TinyConfig();
    LayerDescription& layer = model.layers[1];
    layer.attention = AttentionDescription();
    layer.delta_net = {.key_heads = key_heads,
                       .value_heads = 4,
                       .key_dim = 16 / key_heads,
                       .value_dim = 6,
                       .kernel = 4};
    EXPECT_TRUE(fingerprints.insert(ModelFingerprint(BuildModelLayout(model))).second) << key_heads;
  }
}

TEST(CheckpointStateTest, FingerprintSeesExperts) {
  using Change = std::function<void(ExpertsDescription&)>;
  const std::vector<Change> changes = {
      [](auto&) {},
      [](auto& e) { e.count = 8; },
      [](auto& e) { e.chosen = 3; },
      [](auto& e) { e.intermediate = 24; },
      [](auto& e) { e.activation = GluActivation::kClampedSilu; },
      [](auto& e) { e.limit = 7; },
      [](auto& e) { e.slope = 1.702; },
      [](auto& e) { e.bias = true; },
      [](auto& e) { e.tensors = ExpertTensors::kStacked; },
      [](auto& e) { e.tensors = ExpertTensors::kTransposed; },
      [](auto& e) { e.name = "other"; },
      [](auto& e) { e.gate_name = "w1"; },
      [](auto& e) { e.up_name = "w3"; },
      [](auto& e) { e.down_name = "w2"; },
      [](auto& e) { e.router.scores = RouterScores::kSigmoid; },
      [](auto& e) { e.router.scores = RouterScores::kSoftmaxOfChosen; },
      [](auto& e) { e.router.normalized = false; },
      [](auto& e) { e.router.scale = 2.5; },
      [](auto& e) { e.router.groups = 2; },
      [](auto& e) { e.router.chosen_groups = 2; },
      [](auto& e) { e.router.bias = true; },
      [](auto& e) { e.router.correction = true; },
      [](auto& e) { e.router.name = "mlp.router"; },
      [](auto& e) { e.shared_intermediate = 8; },
      [](auto& e) {
        e.shared_intermediate = 8;
        e.shared_name = "mlp.shared_expert";
      },
      // A checkpoint has the files of its tiles.
      [](auto& e) { e.experts_per_tile = 3; },
      [](auto& e) { e.auxiliary_loss = 0.001; },
  };
  std::set<std::string> fingerprints = {ModelFingerprint(TinyLayout())};
  for (size_t i = 0; i < changes.size(); ++i) {
    ModelDescription model = TinyConfig();
    LayerDescription& layer = model.layers[1];
    layer.feed_forward.intermediate = 0;
    layer.experts.count = 6;
    layer.experts.chosen = 2;
    layer.experts.intermediate = 12;
    layer.experts.experts_per_tile = 2;
    changes[i](layer.experts);
    EXPECT_TRUE(fingerprints.insert(ModelFingerprint(BuildModelLayout(model))).second) << i;
  }
}

}  // namespace
}  // namespace megatrain
