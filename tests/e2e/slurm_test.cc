// `megatraind run` under Slurm, as several processes on two nodes: the weights are those of one
// process, also of jobs that were stopped, cancelled, requeued, or lost a process on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/slurm_cluster.h"
#include "tests/support/child_process.h"
#include "tests/support/private_system.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kBatchScript[] = "deploy/slurm/megatrain.sbatch";
constexpr char kMpiLibrary[] = "server/libmegatrain-mpi.so";
constexpr char kLateFence[] = "tests/e2e/liblate_fence.so";
constexpr int kSteps = 24;
constexpr int kInterrupted = 7;
// As in mpi_run_test.
constexpr auto kEndsWithin = std::chrono::minutes(2);

// Why there can be no Slurm here, or "".
std::string why_not;

std::string Binary() { return fs::absolute("server/megatraind").string(); }

std::string TrainingText() {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    absl::StrAppend(&text, "Line ", i * 7919 % 1000, " of a text that is learnt by heart.\n");
  }
  return text;
}

// A job with the files of its own.
class Job {
 public:
  Job(const TestDirectory& root, const std::string& name, const std::string& precision = "bf16",
      int steps = kSteps)
      : directory_(root / name), name_(name) {
    fs::create_directories(directory_);
    root.Write(name + "/train.txt", TrainingText());
    root.Write(name + "/job.yaml",
               absl::StrCat("model: {path: ../model}\n"
                            "data:\n"
                            "  train: [{path: train.txt, format: text}]\n"
                            "  sequence_length: 32\n"
                            "  tokenizer: bytes\n"
                            "training: {steps: ",
                            steps, ", global_batch: 8, micro_batch: 1, precision: ", precision,
                            "}\n"
                            "optimizer: {learning_rate: 1.0e-3}\n"
                            "checkpoint: {directory: checkpoints, every_steps: 10, keep: 2}\n"
                            "output: {directory: out}\n"
                            "engine: {device: cpu}\n"));
  }

  const std::string& name() const { return name_; }
  std::string operator/(const std::string& file) const { return directory_ + "/" + file; }

  std::vector<std::string> RunArguments() const {
    std::vector<std::string> arguments = {*this / "job.yaml", "--metrics-out",
                                          *this / "metrics.jsonl"};
    for (const std::string& value : overrides_) {
      arguments.push_back("--set");
      arguments.push_back(value);
    }
    return arguments;
  }
  // Adds a KEY=VALUE to the job's file, for several processes.
  void Set(const std::string& override) { overrides_.push_back(override); }

  // One process with `devices` parts of the cpu.
  std::string RunAlone(int devices) const {
    std::vector<std::string> arguments = {Binary(), "run", *this / "job.yaml", "--set",
                                          absl::StrCat("engine.devices=", devices)};
    ChildProcess run(arguments, *this / "log");
    EXPECT_EQ(run.Wait(), 0) << run.Output();
    return FinalState();
  }

  // `variables` is srun's --export.
  std::unique_ptr<ChildProcess> Srun(int ranks = 2, const std::string& mpi = "pmix",
                                     const std::string& variables = "ALL") const {
    std::vector<std::string> arguments = {
        "/usr/bin/srun", "--mpi=" + mpi,
        // One that is killed for another's exit may say nothing.
        mpi == "none" ? "--kill-on-bad-exit=0" : "--kill-on-bad-exit=1", "--job-name=" + name_,
        "--nodes=2", absl::StrCat("--ntasks=", ranks), "--export=" + variables, Binary(), "run"};
    for (const std::string& argument : RunArguments()) arguments.push_back(argument);
    return std::make_unique<ChildProcess>(arguments, *this / "log");
  }

  int Steps() const {
    const std::string metrics = ReadFileOrEmpty(*this / "metrics.jsonl");
    return static_cast<int>(std::count(metrics.begin(), metrics.end(), '\n'));
  }
  bool IsUnderWay() const { return Steps() >= 3; }

  // The checkpoints' names, in order.
  std::vector<std::string> Checkpoints() const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(*this / "checkpoints", error)) {
      const std::string name = entry.path().filename();
      if (absl::StartsWith(name, "step-") && name.size() == 13) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // The exported weights, and the last checkpoint's state.
  std::string FinalState() const {
    const std::vector<std::string> checkpoints = Checkpoints();
    if (checkpoints.empty()) return "";
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(*this / "checkpoints/" + checkpoints.back())) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::string state = checkpoints.back() + ReadFileOrEmpty(*this / "out/model.safetensors");
    for (const fs::path& file : files) state += ReadFileOrEmpty(file);
    return state;
  }

 private:
  const std::string directory_;
  const std::string name_;
  std::vector<std::string> overrides_;
};

class SlurmTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!why_not.empty()) return;
    root_ = new TestDirectory(TestDirectory::Place::kShort);
    ASSERT_EQ(chmod(root_->path().c_str(), 0755), 0);
    cluster_ = new SlurmCluster(*root_ / "slurm");
    ChildProcess init({Binary(), "init", "--preset", "llama-tiny", "--out", *root_ / "model"},
                      *root_ / "init.log");
    ASSERT_EQ(init.Wait(), 0) << init.Output();
    ASSERT_EQ(cluster_->WaitUntilReady(), "");
    setenv("MEGATRAIND", Binary().c_str(), 1);
    undisturbed_ = new std::string(NewJob("undisturbed").RunAlone(2));
  }
  static void TearDownTestSuite() {
    delete undisturbed_;
    delete cluster_;
    delete root_;
  }
  void SetUp() override {
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    ASSERT_NE(undisturbed_, nullptr);
  }

  static Job NewJob(const std::string& name, const std::string& precision = "bf16",
                    int steps = kSteps) {
    return Job(*root_, name, precision, steps);
  }

  // Slurm's number of a job that is queued or runs.
  static std::string IdOf(const Job& job) {
    return cluster_->Command({"/usr/bin/squeue", "-h", "-o", "%i", "--name=" + job.name()});
  }

  static std::string Submit(const Job& job) {
    std::vector<std::string> arguments = {"/usr/bin/sbatch", "--parsable",
                                          "--job-name=" + job.name(), "--output=" + (job / "log"),
                                          kBatchScript};
    for (const std::string& argument : job.RunArguments()) arguments.push_back(argument);
    return cluster_->Command(arguments);
  }
  static bool WaitUntilGone(const Job& job) {
    return WaitUntil([&] { return IdOf(job).empty(); });
  }

  // The process of a rank, or -1.
  static pid_t ProcessOf(const std::string& job_id, int rank) {
    const std::string number = absl::StrCat("SLURM_PROCID=", rank);
    const std::string id = "SLURM_JOB_ID=" + job_id;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      pid_t pid = 0;
      std::error_code error;
      if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
      if (fs::read_symlink(entry.path() / "exe", error).filename() != "megatraind") continue;
      const std::string variables = '\0' + ReadFileOrEmpty(entry.path() / "environ");
      const auto has = [&](const std::string& variable) {
        return absl::StrContains(variables, '\0' + variable + '\0');
      };
      if (has(number) && has(id)) return pid;
    }
    return -1;
  }

  static void ExpectSaved(const Job& job, const std::string& log) {
    const std::vector<std::string> checkpoints = job.Checkpoints();
    ASSERT_FALSE(checkpoints.empty()) << log;
    EXPECT_EQ(std::atoi(checkpoints.back().c_str() + 5), job.Steps()) << log;
    EXPECT_LT(job.Steps(), kSteps) << log;
  }

  static void ExpectEndIsRight(const Job& job) {
    EXPECT_EQ(job.Steps(), kSteps);
    EXPECT_TRUE(job.FinalState() == *undisturbed_) << "other bits at the end";
  }
  static void FinishAndCompare(const Job& job) {
    const auto run = job.Srun();
    EXPECT_EQ(run->Wait(), 0) << run->Output();
    ExpectEndIsRight(job);
  }

  // Both ranks must save and say that they were interrupted.
  void ExpectInterruptedBy(const std::vector<std::string>& scancel, const std::string& name) {
    const Job job = NewJob(name);
    const auto run = job.Srun();
    ASSERT_TRUE(WaitUntil([&] { return job.IsUnderWay(); }, [&] { return !run->Running(); }))
        << run->Output();
    std::vector<std::string> command = scancel;
    command.push_back(IdOf(job));
    EXPECT_EQ(cluster_->Command(command), "");
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
    EXPECT_THAT(run->Output(), AllOf(HasSubstr("n1: task 0: Exited with exit code 7"),
                                     HasSubstr("n2: task 1: Exited with exit code 7")));
    ExpectSaved(job, run->Output());
    FinishAndCompare(job);
  }

  static TestDirectory* root_;
  static SlurmCluster* cluster_;
  static std::string* undisturbed_;
};

TestDirectory* SlurmTest::root_ = nullptr;
SlurmCluster* SlurmTest::cluster_ = nullptr;
std::string* SlurmTest::undisturbed_ = nullptr;

TEST_F(SlurmTest, TheWeightsAreThoseOfOneProcess) {
  for (const std::string precision : {"bf16", "fp32"}) {
    for (const int ranks : {2, 4}) {
      const std::string name = absl::StrCat(precision, "-", ranks);
      const Job job = NewJob(name, precision, /*steps=*/4);
      const auto run = job.Srun(ranks);
      EXPECT_EQ(run->Wait(), 0) << run->Output();
      const std::string one_process = NewJob(name + "-alone", precision, 4).RunAlone(ranks);
      EXPECT_NE(one_process, "");
      EXPECT_TRUE(job.FinalState() == one_process) << name << ": other bits";
    }
  }
}

// The last of four ranks is alone on its node. MPI_Init does not let it wait for the others.
TEST_F(SlurmTest, AProcessThatStartsLateIsWaitedFor) {
  const Job job = NewJob("late", "bf16", /*steps=*/1);
  const auto run = job.Srun(
      4, "pmix", absl::StrCat("ALL,LATE_RANK=2,LD_PRELOAD=", fs::absolute(kLateFence).string()));
  EXPECT_EQ(run->Wait(), 0) << run->Output();
  EXPECT_EQ(job.Steps(), 1);
}

TEST_F(SlurmTest, NodesWithDirectoriesOfTheirOwnSavePartsThatAreGathered) {
  Job job = NewJob("parts", "bf16", /*steps=*/6);
  job.Set("checkpoint.shared=false");
  job.Set("checkpoint.directory=" + cluster_->disk() + "/checkpoints");
  job.Set("checkpoint.every_steps=2");
  job.Set("output.directory=");
  const auto run = job.Srun(/*ranks=*/4);
  EXPECT_EQ(run->Wait(), 0) << run->Output();
  std::vector<std::string> gather = {Binary(), "gather"};
  for (const char* const node : {"n2", "n1"}) {
    gather.push_back(absl::StrCat(cluster_->disk(), ".", node, "/checkpoints/step-00000006"));
  }
  gather.insert(gather.end(), {"--out", job / "checkpoints"});
  const std::string gathered = job / "checkpoints/step-00000006";
  EXPECT_EQ(cluster_->Command(gather), gathered);
  EXPECT_EQ(cluster_->Command({Binary(), "export", gathered, "--out", job / "out"}), job / "out");
  EXPECT_TRUE(job.FinalState() == NewJob("parts-alone", "bf16", 6).RunAlone(4)) << "other bits";
}

TEST_F(SlurmTest, WithoutPmixTheRefusalSaysHowToStart) {
  const auto run = NewJob("without-pmix").Srun(2, "none");
  EXPECT_EQ(run->Wait(), 2) << run->Output();
  EXPECT_THAT(run->Output(), HasSubstr("start them with srun --mpi=pmix"));
}

TEST_F(SlurmTest, ATermSignalSavesAndResumingGivesTheSameBits) {
  ExpectInterruptedBy({"/usr/bin/scancel", "--signal=TERM"}, "term");
}

TEST_F(SlurmTest, ACancelledJobSavesAndResumingGivesTheSameBits) {
  ExpectInterruptedBy({"/usr/bin/scancel"}, "cancel");
}

TEST_F(SlurmTest, TheBatchScriptQueuesItselfAgainBeforeTheTimeLimit) {
  const Job job = NewJob("limit");
  const std::string id = Submit(job);
  const auto log = [&] { return ReadFileOrEmpty(job / "log"); };
  const auto says = [&](const std::string& text) {
    return absl::StrContains(cluster_->Command({"/usr/bin/scontrol", "show", "job", id}), text);
  };
  ASSERT_TRUE(WaitUntil([&] { return job.IsUnderWay(); })) << id << log();
  // The signal that Slurm sends before the limit, which it looks at twice a minute only.
  EXPECT_EQ(cluster_->Command({"/usr/bin/scancel", "--batch", "--signal=USR1", id}), "");
  ASSERT_TRUE(WaitUntil([&] { return says("JobState=PENDING") && says("Restarts=1"); })) << log();
  ExpectSaved(job, log());
  EXPECT_THAT(log(), HasSubstr("task 1: Exited with exit code 7"));
  // A job that was queued again waits two minutes by itself. Slurm's nodes refuse what is of the
  // second in which they ended it.
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_EQ(cluster_->Command({"/usr/bin/scontrol", "update", "jobid=" + id, "starttime=now"}), "");
  ASSERT_TRUE(WaitUntilGone(job)) << log();
  EXPECT_TRUE(says("JobState=COMPLETED")) << log();
  EXPECT_THAT(log(), HasSubstr("resuming from"));
  ExpectEndIsRight(job);
}

TEST_F(SlurmTest, TheBatchScriptIsNotQueuedAgainWhenItsUserStopsIt) {
  const std::vector<std::pair<std::string, std::string>> ways = {
      {"--signal=TERM", "JobState=FAILED"}, {"--signal=KILL", "JobState=CANCELLED"}};
  for (const auto& [signal, state] : ways) {
    const Job job = NewJob("user" + signal);
    const std::string id = Submit(job);
    ASSERT_TRUE(WaitUntil([&] { return job.IsUnderWay(); })) << id << ReadFileOrEmpty(job / "log");
    std::vector<std::string> command = {"/usr/bin/scancel", id};
    if (signal == "--signal=TERM") command.push_back(signal);
    EXPECT_EQ(cluster_->Command(command), "");
    ASSERT_TRUE(WaitUntilGone(job));
    EXPECT_THAT(cluster_->Command({"/usr/bin/scontrol", "show", "job", id}),
                AllOf(HasSubstr(state), HasSubstr("Restarts=0")));
    ExpectSaved(job, ReadFileOrEmpty(job / "log"));
  }
}

// Two jobs at once, since both wait for the deadline of a process that is not heard of.
TEST_F(SlurmTest, AProcessThatIsGoneOrHangsEndsTheJobWithTheCause) {
  struct Case {
    Job job;
    int rank;
    int signal;
    std::unique_ptr<ChildProcess> run;
  };
  Case cases[] = {{NewJob("killed"), 1, SIGKILL, nullptr},
                  {NewJob("hanging"), 0, SIGSTOP, nullptr}};
  for (Case& c : cases) {
    c.run = c.job.Srun();
    // Beyond the first checkpoint.
    ASSERT_TRUE(WaitUntil([&] { return c.job.Steps() >= 12; }, [&] { return !c.run->Running(); }))
        << c.run->Output();
    const pid_t process = ProcessOf(IdOf(c.job), c.rank);
    ASSERT_GT(process, 0);
    kill(process, c.signal);
  }
  const auto begin = steady_clock::now();
  for (Case& c : cases) {
    EXPECT_TRUE(WaitUntil([&] { return !c.run->Running(); },
                          [&] { return steady_clock::now() - begin > kEndsWithin; }))
        << c.job.name() << " has not ended: " << c.run->Output();
    c.run->Signal(SIGKILL);
    EXPECT_NE(c.run->Wait(), 0);
    EXPECT_THAT(c.run->Output(),
                HasSubstr(absl::StrCat("rank ", 1 - c.rank, " waited 20s for rank ", c.rank)));
  }
  for (Case& c : cases) FinishAndCompare(c.job);
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (const std::string missing = megatrain::SlurmCluster::Missing(); !missing.empty()) {
    megatrain::why_not = "there is no " + missing;
  } else if (access(megatrain::kMpiLibrary, F_OK) != 0) {
    megatrain::why_not = "built without MPI (deploy/install-deps.sh --mpi)";
  } else {
    megatrain::why_not = megatrain::EnterPrivateSystem();
  }
  return RUN_ALL_TESTS();
}
