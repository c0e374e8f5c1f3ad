#include "engine/job/job_parser.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/job/job_texts.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JobParserTest, DefaultsAreThoseOfTheSpec) {
  absl::StatusOr<JobSpec> spec = Parse(kMinimal);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "demo");
  EXPECT_EQ(spec->model.path, "/jobs/models/tiny");
  EXPECT_FALSE(spec->model.random_initialization);
  ASSERT_EQ(spec->data.train.size(), 1u);
  EXPECT_EQ(spec->data.train[0].path, "/jobs/train.txt");
  EXPECT_EQ(spec->data.train[0].format, DataFormat::kText);
  EXPECT_EQ(spec->data.sequence_length, 1024);
  EXPECT_EQ(spec->training.steps, 200);
  EXPECT_EQ(spec->training.epochs, 0);
  EXPECT_EQ(spec->training.global_batch, 8);
  EXPECT_EQ(spec->training.micro_batch, 2);
  EXPECT_EQ(spec->training.precision, Precision::kBf16);
  EXPECT_EQ(spec->training.gradient_dtype, Precision::kFp32);
  EXPECT_EQ(spec->optimizer.max_gradient_norm, 1.0);
  EXPECT_EQ(spec->checkpoint.directory, "/jobs/demo/checkpoints");
  EXPECT_EQ(spec->output.directory, "");
  EXPECT_EQ(spec->engine.weight_buffers, 2);
}

TEST(JobParserTest, ReadsEveryKey) {
  absl::StatusOr<JobSpec> spec = Parse(R"(
name: full-1
model:
  path: /models/m/
  initialization: random
data:
  train:
    - {path: a.jsonl, format: alpaca}
    - {path: /data/b.bin, format: tokens, dtype: uint16}
    - {path: c.npy, format: tokens}
  eval:
    - {path: ../e.jsonl, format: messages}
  eval_fraction: 0
  sequence_length: 128
  packing: false
  shuffle: false
  cache_directory: cache
  train_on: all
  train_on_prompt: true
  chat_template: own/chat.jinja
  template_date: 2026-01-31
  tokenizer: bytes
training:
  epochs: 1.5
  global_batch: 12
  micro_batch: 3
  precision: fp32
  gradient_dtype: bf16
  seed: 18446744073709551615
  eval_every: 7
optimizer: {type: adamw, learning_rate: 1.0e-3, beta1: 0.8, beta2: 0.9, epsilon: 1e-6, weight_decay: 0, max_gradient_norm: 0}
schedule: {type: warmup_stable_decay, warmup_steps: 0, final_fraction: 0.5, decay_fraction: 0.2}
checkpoint: {directory: out/ckpt, every_steps: 0, keep: 3}
output: {directory: out/hf}
engine:
  device: cpu
  attention: own
  host_memory: 24GiB
  device_memory: 512 MiB
  weight_buffers: 3
  gradient_slabs: 5
  micro_batches_per_sweep: 2
  stash: host
  recompute: all
  threads: 2
  update_threads: 1
  update_device: device
  loads: whole
  link_gigabytes_per_second: 2.5
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "full-1");
  EXPECT_EQ(spec->model.path, "/models/m");
  EXPECT_TRUE(spec->model.random_initialization);
  ASSERT_EQ(spec->data.train.size(), 3u);
  EXPECT_EQ(spec->data.train[1].path, "/data/b.bin");
  EXPECT_EQ(spec->data.train[1].dtype, "uint16");
  EXPECT_EQ(spec->data.train[2].format, DataFormat::kTokens);
  ASSERT_EQ(spec->data.eval.size(), 1u);
  EXPECT_EQ(spec->data.eval[0].path, "/e.jsonl");
  EXPECT_EQ(spec->data.eval[0].format, DataFormat::kMessages);
  EXPECT_FALSE(spec->data.packing);
  EXPECT_FALSE(spec->data.shuffle);
  EXPECT_EQ(spec->data.cache_directory, "/jobs/cache");
  EXPECT_TRUE(spec->data.train_on_prompt);
  EXPECT_EQ(spec->data.chat_template, "/jobs/own/chat.jinja");
  EXPECT_EQ(spec->data.template_date, "2026-01-31");
  EXPECT_EQ(spec->data.tokenizer, "bytes");
  EXPECT_EQ(spec->training.steps, 0);
  EXPECT_EQ(spec->training.epochs, 1.5);
  EXPECT_EQ(spec->training.precision, Precision::kFp32);
  EXPECT_EQ(spec->training.gradient_dtype, Precision::kBf16);
  EXPECT_EQ(spec->training.seed, UINT64_MAX);
  EXPECT_EQ(spec->training.eval_every, 7);
  EXPECT_EQ(spec->optimizer.learning_rate, 1e-3);
  EXPECT_EQ(spec->optimizer.max_gradient_norm, 0);
  EXPECT_EQ(spec->schedule.type, ScheduleType::kWarmupStableDecay);
  EXPECT_EQ(spec->schedule.decay_fraction, 0.2);
  EXPECT_EQ(spec->checkpoint.directory, "/jobs/out/ckpt");
  EXPECT_EQ(spec->checkpoint.every_steps, 0);
  EXPECT_EQ(spec->output.directory, "/jobs/out/hf");
  EXPECT_EQ(spec->engine.attention, AttentionChoice::kOwn);
  EXPECT_EQ(spec->engine.host_memory, int64_t{24} << 30);
  EXPECT_EQ(spec->engine.device_memory, int64_t{512} << 20);
  EXPECT_EQ(spec->engine.stash, StashPlace::kHost);
  EXPECT_EQ(spec->engine.recompute, RecomputeMode::kAll);
  EXPECT_EQ(spec->engine.update_threads, 1);
  EXPECT_EQ(spec->engine.update_device, UpdateDevice::kDevice);
  EXPECT_EQ(spec->engine.loads, WeightLoads::kWhole);
  EXPECT_EQ(spec->engine.link_gigabytes_per_second, 2.5);
}

TEST(JobParserTest, KeysOfFineTuning) {
  const auto spec = Parse(R"(model: {path: m}
data:
  train: [{path: t, format: text}]
  eval: [{path: e, format: text, name: chat}, {path: f, format: text}]
training:
  freeze: ["model.embed_tokens.*", "*.bias"]
  skip_steps: [7, 9]
  keep_best: true
  stop_after_worse: 3
  sample_prompts:
    - Once upon a time
    - {messages: [{role: user, content: "1", weight: 1}]}
  sample_tokens: 9
optimizer:
  groups:
    - {match: "*.mlp.*", learning_rate: 1.0e-5}
    - {match: lm_head.weight, weight_decay: 0}
report: {tensorboard: board}
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.eval[0].name, "chat");
  EXPECT_EQ(spec->data.eval[1].name, "");
  EXPECT_EQ(spec->training.freeze, (std::vector<std::string>{"model.embed_tokens.*", "*.bias"}));
  EXPECT_EQ(spec->training.skip_steps, (std::vector<int64_t>{7, 9}));
  EXPECT_TRUE(spec->training.keep_best);
  EXPECT_EQ(spec->training.stop_after_worse, 3);
  ASSERT_EQ(spec->training.sample_prompts.size(), 2u);
  EXPECT_EQ(spec->training.sample_prompts[0].text, "Once upon a time");
  EXPECT_EQ(spec->training.sample_prompts[1].record,
            R"({"messages":[{"role":"user","content":"1","weight":1}]})");
  EXPECT_EQ(spec->training.sample_tokens, 9);
  ASSERT_EQ(spec->optimizer.groups.size(), 2u);
  EXPECT_EQ(spec->optimizer.groups[0].learning_rate, 1e-5);
  EXPECT_FALSE(spec->optimizer.groups[0].weight_decay.has_value());
  EXPECT_FALSE(spec->optimizer.groups[1].learning_rate.has_value());
  EXPECT_EQ(spec->optimizer.groups[1].weight_decay, 0.0);
  EXPECT_EQ(spec->report.tensorboard, "/jobs/board");

  EXPECT_THAT(Refusal("training: {freeze: [\"\"]}\n"), HasSubstr("tensor names"));
  EXPECT_THAT(Refusal("training: {skip_steps: [0]}\n"), HasSubstr("whole number from 1"));
  EXPECT_THAT(Refusal("training: {sample_prompts: [a]}\n"), HasSubstr("nothing to evaluate"));
  EXPECT_THAT(Refusal("training: {sample_prompts: [{messages: [], temperature: 1}]}\n"),
              HasSubstr("does not know the key temperature"));
  EXPECT_THAT(Refusal("training: {sample_prompts: [{text: a}]}\n"),
              AllOf(HasSubstr("training.sample_prompts[0]"), HasSubstr("a map with messages")));
  EXPECT_THAT(Refusal("optimizer: {groups: [{match: a}]}\n"), HasSubstr("changes nothing"));
  EXPECT_THAT(Refusal("optimizer: {groups: [{learning_rate: 1}]}\n"), HasSubstr("match"));
  EXPECT_THAT(Refusal("optimizer: {groups: [{match: a, learning_rate: -1}]}\n"),
              HasSubstr("groups[0].learning_rate"));
  EXPECT_THAT(Refusal("training: {keep_best: true}\n"), HasSubstr("nothing to evaluate"));
  EXPECT_THAT(Refusal("training: {stop_after_worse: 2}\n"), HasSubstr("nothing to evaluate"));
}

TEST(JobParserTest, UnknownKeysNameKeyLineAndNearest) {
  EXPECT_EQ(Refusal("training:\n  setps: 5\n"),
            "job.yaml:6: training.setps: unknown key; did you mean training.steps?");
  EXPECT_EQ(Refusal("trainning: {steps: 5}\n"),
            "job.yaml:5: trainning: unknown key; did you mean training?");
  EXPECT_EQ(Refusal("optimizer: {lerning_rate: 5}\n"),
            "job.yaml:5: optimizer.lerning_rate: unknown key; did you mean "
            "optimizer.learning_rate?");
  EXPECT_THAT(Refusal("steps: 5\n"), HasSubstr("did you mean training.steps?"));
  EXPECT_THAT(Refusal("optimizer: {warmup_steps: 5}\n"),
              HasSubstr("did you mean schedule.warmup_steps?"));
  EXPECT_THAT(Refusal("model.path: x\n"), HasSubstr("not joined by dots"));
}

TEST(JobParserTest, WrongTypes) {
  EXPECT_EQ(Refusal("training: {steps: many}\n"),
            "job.yaml:5: training.steps: expects a whole number from 1 to 1000000000000, got many");
  EXPECT_THAT(Refusal("training: {steps: 1.5}\n"), HasSubstr("got 1.5"));
  EXPECT_THAT(Refusal("training: {steps: \"5\"}\n"), HasSubstr("got the text \"5\""));
  EXPECT_THAT(Refusal("training: {steps: [5]}\n"), HasSubstr("got a list"));
  EXPECT_THAT(Refusal("training: {steps: }\n"), HasSubstr("got nothing"));
  EXPECT_THAT(Refusal("training: 5\n"), HasSubstr("training: expects a map, got 5"));
  EXPECT_THAT(Refusal("optimizer: {learning_rate: fast}\n"), HasSubstr("expects a number"));
  EXPECT_THAT(Refusal("optimizer: {learning_rate: .nan}\n"), HasSubstr("got .nan"));
  EXPECT_THAT(Refusal("optimizer: {learning_rate: nan}\n"), HasSubstr("got nan"));
  EXPECT_THAT(Refusal("optimizer: {learning_rate: inf}\n"), HasSubstr("got inf"));
  EXPECT_THAT(Refusal("optimizer: {type: sgd}\n"), HasSubstr("expects adamw, got sgd"));
  EXPECT_THAT(Refusal("training: {precision: fp16}\n"), HasSubstr("expects bf16 or fp32"));
  EXPECT_THAT(Refusal("engine: {host_memory: 5GB}\n"), HasSubstr("KiB, MiB, GiB or TiB"));
  EXPECT_THAT(Refusal("output: {directory: [a]}\n"), HasSubstr("expects a path"));
  EXPECT_THAT(Refusal("name: a/b\n"), HasSubstr("name: expects"));
  EXPECT_THAT(Refusal("name: ..\n"), HasSubstr("name: expects"));
}

TEST(JobParserTest, BooleansAreTrueOrFalse) {
  const std::string text =
      "model: {path: m}\ndata: {train: [{path: t, format: text}], packing: yes}\n";
  EXPECT_EQ(Parse(text).status().message(),
            "job.yaml:2: data.packing: expects true or false, got yes");
}

TEST(JobParserTest, OutOfRange) {
  EXPECT_THAT(Refusal("training: {steps: 0}\n"), HasSubstr("from 1"));
  EXPECT_THAT(Refusal("training: {steps: -1}\n"), HasSubstr("got -1"));
  EXPECT_THAT(Refusal("training: {steps: 99999999999999999999}\n"), HasSubstr("training.steps"));
  EXPECT_THAT(Refusal("training: {epochs: 0}\n"), HasSubstr("above 0"));
  EXPECT_THAT(Refusal("training: {seed: -1}\n"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(Refusal("optimizer: {beta2: 1}\n"), HasSubstr("from 0 to below 1"));
  EXPECT_THAT(Refusal("optimizer: {epsilon: 0}\n"), HasSubstr("optimizer.epsilon"));
  for (const char* one : {"1", "01", "+1"}) {
    EXPECT_THAT(Refusal(std::string("engine: {weight_buffers: ") + one + "}\n"),
                HasSubstr("from 2 to 4096, or 0 (chosen by predicted time)"));
  }
  EXPECT_THAT(Refusal("engine: {host_memory: -1}\n"), HasSubstr("engine.host_memory"));
  EXPECT_THAT(Refusal("checkpoint: {keep: 0}\n"), HasSubstr("1 or more"));
}

TEST(JobParserTest, NamesAreNotTooLong) {
  EXPECT_EQ(Refusal("name: " + std::string(100, 'a') + "\n"), "accepted");
  EXPECT_THAT(Refusal("name: " + std::string(101, 'a') + "\n"), HasSubstr("name: expects"));
  const auto eval = [](size_t letters) {
    return "  eval: [{path: e, format: text, name: " + std::string(letters, 'a') + "}]\n";
  };
  EXPECT_EQ(Refusal(eval(64)), "accepted");
  EXPECT_THAT(Refusal(eval(65)), HasSubstr("data.eval[0].name: expects 1 to 64"));
}

TEST(JobParserTest, KeysThatDependOnEachOther) {
  EXPECT_EQ(Refusal("training: {steps: 5,\n  epochs: 1}\n"),
            "job.yaml:6: training.epochs: training.steps is given too (job.yaml:5); give one of "
            "them");
  EXPECT_THAT(Refusal("training: {micro_batch: 3}\n"),
              HasSubstr("training.micro_batch: micro_batch must divide global_batch; 3 does not "
                        "divide 8"));
  EXPECT_THAT(Refusal("training: {gradient_shards: 6}\n"),
              HasSubstr("training.gradient_shards: must be a power of two"));
  EXPECT_THAT(Refusal("engine: {devices: 0}\n"),
              HasSubstr("engine.devices: expects a whole number from 1 to 1024, or all"));
  EXPECT_THAT(Refusal("training: {global_batch: 7}\n"),
              HasSubstr("training.global_batch: micro_batch must divide"));
}

TEST(JobParserTest, ListsHaveBoundsAndEvaluationIsOfOneKind) {
  const auto list = [](int count, const std::string& entry) {
    std::string text = "[" + entry;
    for (int i = 1; i < count; ++i) text += ", " + entry;
    return text + "]";
  };
  const auto freeze = [&](int count) { return "training: {freeze: " + list(count, "a") + "}\n"; };
  EXPECT_EQ(Refusal(freeze(256)), "accepted");
  EXPECT_THAT(Refusal(freeze(257)), HasSubstr("training.freeze: at most 256 patterns"));
  const auto groups = [&](int count) {
    return "optimizer: {groups: " + list(count, "{match: a, learning_rate: 1}") + "}\n";
  };
  EXPECT_EQ(Refusal(groups(256)), "accepted");
  EXPECT_THAT(Refusal(groups(257)), HasSubstr("optimizer.groups: at most 256 groups"));
  const auto prompts = [&](int count) {
    return "  eval_fraction: 0.1\ntraining: {sample_prompts: " + list(count, "a") + "}\n";
  };
  const std::string report = "report: {tensorboard: board}\n";
  EXPECT_EQ(Refusal(prompts(64) + report), "accepted");
  EXPECT_THAT(Refusal(prompts(65) + report),
              HasSubstr("training.sample_prompts: at most 64 prompts"));
  EXPECT_THAT(Refusal(prompts(1)), HasSubstr("report.tensorboard, which is empty"));
  const std::string eval = "  eval: [{path: e, format: text}]\n";
  EXPECT_EQ(Refusal(eval + "  eval_fraction: 0\n"), "accepted");
  EXPECT_THAT(Refusal(eval + "  eval_fraction: 0.1\n"),
              HasSubstr("data.eval_fraction: data.eval is given too"));
}

TEST(JobParserTest, MissingKeys) {
  EXPECT_THAT(std::string(Parse("").status().message()), HasSubstr("model.path: is missing"));
  EXPECT_THAT(std::string(Parse("model: {path: m}\n").status().message()),
              HasSubstr("data.train: is missing"));
  EXPECT_THAT(std::string(Parse("model: {path: m}\ndata: {train: []}\n").status().message()),
              StartsWith("job.yaml:2: data.train: is missing or empty"));
  EXPECT_THAT(std::string(Parse("[1, 2]").status().message()), HasSubstr("this is a list"));
}

TEST(JobParserTest, WhatIsNotSupportedYetIsRefusedByName) {
  EXPECT_THAT(Refusal("engine: {device: tpu}\n"), HasSubstr("expects auto, cpu, cuda or cuda:N"));
  EXPECT_THAT(Refusal("engine: {device: \"cuda:x\"}\n"), HasSubstr("expects auto, cpu, cuda"));
  const auto with_template = [](const std::string& name) {
    return std::string(Parse("model: {path: m}\ndata: {train: [{path: t, format: text}], "
                             "chat_template: " +
                             name + "}\n")
                           .status()
                           .message());
  };
  for (const char* name : {"auto", "chatml", "llama3", "mistral", "gemma", "alpaca"}) {
    EXPECT_EQ(with_template(name), "");
  }
  EXPECT_THAT(with_template("chatlm"),
              HasSubstr("expects auto, chatml, llama3, mistral, gemma, alpaca or a path to a "
                        ".jinja"));
}

TEST(JobParserTest, Overrides) {
  absl::StatusOr<JobSpec> spec = Parse(
      std::string(kMinimal) + "training: {steps: 5}\n",
      {"training.steps=6", "training.steps=7", "name=other", "engine.host_memory=1GiB",
       "output.directory=hf", "data.train.0.path=b.txt", "data.eval=[{path: e, format: alpaca}]",
       "data.cache_directory=", "report.tensorboard=a=b", "data.template_date='2026-01-31'"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->training.steps, 7);
  EXPECT_EQ(spec->name, "other");
  EXPECT_EQ(spec->checkpoint.directory, "/jobs/other/checkpoints");
  EXPECT_EQ(spec->engine.host_memory, int64_t{1} << 30);
  EXPECT_EQ(spec->output.directory, "/jobs/hf");
  EXPECT_EQ(spec->data.train[0].path, "/jobs/b.txt");
  ASSERT_EQ(spec->data.eval.size(), 1u);
  EXPECT_EQ(spec->data.eval[0].format, DataFormat::kAlpaca);
  EXPECT_EQ(spec->data.cache_directory, "");
  EXPECT_EQ(spec->report.tensorboard, "/jobs/a=b") << "the first = ends the key";
  EXPECT_EQ(spec->data.template_date, "2026-01-31");
}

TEST(JobParserTest, OverridesAloneMakeAJob) {
  absl::StatusOr<JobSpec> spec =
      Parse("", {"model.path=m", "data.train=[{path: \"a b\", format: text}]"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.train[0].path, "/jobs/a b");
}

TEST(JobParserTest, BadOverrides) {
  EXPECT_EQ(Refusal("", {"training.setps=7"}),
            "--set training.setps=7: training.setps: unknown key; did you mean training.steps?");
  EXPECT_EQ(Refusal("", {"training.steps=x"}),
            "--set training.steps=x: training.steps: expects a whole number from 1 to "
            "1000000000000, got x");
  EXPECT_THAT(Refusal("", {"training.steps=\"7\""}), HasSubstr("got the text \"7\""));
  EXPECT_THAT(Refusal("", {"training.steps"}), HasSubstr("expects KEY=VALUE"));
  EXPECT_THAT(Refusal("", {"=5"}), HasSubstr("expects KEY=VALUE"));
  EXPECT_THAT(Refusal("", {"training=5"}), HasSubstr("is a section"));
  EXPECT_THAT(Refusal("", {"data.train.3.path=x"}), HasSubstr("there is no 3"));
  EXPECT_THAT(Refusal("", {"data.train.0.paht=x"}), HasSubstr("did you mean path?"));
  EXPECT_THAT(Refusal("", {"data.train=[{"}), StartsWith("--set data.train=[{"));
  EXPECT_EQ(Refusal("", {"training.freeze.0=\xff"}),
            "--set training.freeze.0=\\xff: not UTF-8 text");
  EXPECT_EQ(Refusal("training: 5\n", {"training.steps=3"}),
            "job.yaml:5: training: expects a map, got 5");
  EXPECT_THAT(Refusal("training: {epochs: 1}\n", {"training.steps=3"}),
              HasSubstr("give one of them"));
}

TEST(JobParserTest, FilesAreReadAndPathsAreTheirDirectorys) {
  const std::string directory = std::getenv("TEST_TMPDIR");
  const std::string path = directory + "/a-job.yaml";
  std::ofstream(path) << kMinimal;
  absl::StatusOr<JobSpec> spec = ParseJobFile(path, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.path, directory + "/models/tiny");

  const absl::Status missing = ParseJobFile(directory + "/none.yaml", {}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("none.yaml: No such file or directory"));
  EXPECT_THAT(std::string(ParseJobFile(directory, {}).status().message()),
              HasSubstr("is a directory"));

  std::ofstream(path) << std::string((size_t{1} << 20) + 10, '#');
  EXPECT_THAT(std::string(ParseJobFile(path, {}).status().message()), HasSubstr("bytes long"));
}

TEST(JobParserTest, ASubmittedJobWithoutABaseHasAbsolutePathsOnly) {
  const auto parse = [](std::vector<std::string> overrides) {
    return ParseSubmittedJob(
        "model: {path: /models/../tiny/}\n"
        "data: {train: [{path: /data/train.txt, format: text}]}\n",
        "job.yaml", "", overrides);
  };
  const absl::StatusOr<JobSpec> spec = parse({});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.path, "/tiny");
  EXPECT_EQ(spec->data.train[0].path, "/data/train.txt");
  EXPECT_EQ(spec->checkpoint.directory, "");
  EXPECT_EQ(spec->output.directory, "");
  EXPECT_EQ(parse({"output.directory=/"})->output.directory, "/");

  EXPECT_THAT(std::string(ParseSubmittedJob(kMinimal, "job.yaml", "", {}).status().message()),
              StartsWith("job.yaml:1: model.path: \"models/tiny\" is a relative path"));
  // Of an entry of a list the place is the list's.
  EXPECT_THAT(std::string(parse({"data.train.0.path=some/where"}).status().message()),
              StartsWith("job.yaml:2: data.train: \"some/where\" is a relative path"));
  for (const std::string key :
       {"data.cache_directory", "checkpoint.directory", "output.directory"}) {
    const absl::Status status = parse({key + "=some/where"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(status.message()), StartsWith("--set " + key + "=some/where: " + key));
    EXPECT_THAT(std::string(status.message()), HasSubstr("absolute path"));
  }
}

TEST(JobParserTest, ASubmittedJobTakesRelativePathsFromItsBase) {
  const absl::StatusOr<JobSpec> spec =
      ParseSubmittedJob(kMinimal, "job.yaml", "/srv/anna", {"output.directory=out"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.path, "/srv/anna/models/tiny");
  EXPECT_EQ(spec->output.directory, "/srv/anna/out");
  EXPECT_EQ(spec->checkpoint.directory, "") << "is the daemon's to choose";
}

}  // namespace
}  // namespace megatrain
