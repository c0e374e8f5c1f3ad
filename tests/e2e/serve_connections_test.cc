// A daemon with more connections than it can hold, and with connections that are not what they
// should be: it trains on, and serves again when they have gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

// Connections to a Unix socket that say what they are told to and are then silent.
class Connections {
 public:
  explicit Connections(const std::string& path) {
    address_.sun_family = AF_UNIX;
    std::strncpy(address_.sun_path, path.c_str(), sizeof(address_.sun_path) - 1);
  }
  ~Connections() { Close(); }

  // False: it is not let in now.
  bool Open(const std::string& said) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) != 0) {
      close(fd);
      return false;
    }
    fds_.push_back(fd);
    return said.empty() || send(fd, said.data(), said.size(), MSG_NOSIGNAL) > 0;
  }
  // As many as asked for, waiting a little where there is a queue to get in; how many were let in.
  int OpenMany(int count, const std::string& said) {
    int opened = 0;
    for (int tries = 0; opened < count && tries < count + 2000; ++tries) {
      if (Open(said)) {
        ++opened;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    return opened;
  }
  void Close() {
    for (const int fd : fds_) close(fd);
    fds_.clear();
  }

 private:
  sockaddr_un address_ = {};
  std::vector<int> fds_;
};

// HTTP/2's first words and an empty SETTINGS frame: what a client says before its first call.
const std::string kPreface =
    std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\0\0\0\4\0\0\0\0\0", 9);

class ServeConnectionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    files_max_ = static_cast<int64_t>(limit.rlim_max);
    auto place = Workplace::Make(fs::absolute("server/megatraind").string(), "llama-tiny");
    ASSERT_TRUE(place.ok()) << place.status();
    place_ = *std::move(place);
  }

  // With a job that runs for as long as the test does.
  void Start(int64_t open_files) {
    auto options = place_->NewDaemon("d");
    ASSERT_TRUE(options.ok()) << options.status();
    options->limits.open_files = open_files;
    auto daemon = DaemonProcess::Start(*options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    socket_ = daemon_->address().substr(5);
    const JobShape shape{.steps = 1'000'000, .threads = 1, .link_gigabytes_per_second = 0.1};
    const auto job = daemon_->Create(place_->Request(shape, ""));
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = job->name();
    ASSERT_TRUE(daemon_->WaitForStep(job_, 2).ok());
  }

  // By a connection of its own, within ten seconds.
  bool ANewClientIsAnswered() {
    const auto jobs = v1::JobService::NewStub(daemon_->NewChannel());
    v1::GetJobRequest request;
    request.set_name(job_);
    v1::Job job;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return jobs->GetJob(&context, request, &job).ok();
  }
  void ExpectTraining() {
    const auto job = daemon_->Get(job_);
    ASSERT_TRUE(job.ok()) << job.status();
    const absl::Status status = daemon_->WaitForStep(job_, job->progress().step() + 5);
    EXPECT_TRUE(status.ok()) << status;
  }
  // A job comes to be, which takes the store, and is gone again.
  void ExpectTheStoreWorks() {
    const auto job = daemon_->Create(place_->Request({.threads = 1}, ""));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(daemon_->Cancel(job->name()).ok());
    EXPECT_TRUE(daemon_->WaitForState(job->name(), v1::Job::CANCELLED).ok());
  }

  int64_t files_max_ = 0;
  std::unique_ptr<Workplace> place_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::string socket_, job_;
};

TEST_F(ServeConnectionsTest, ThreeThousandIdleConnections) {
  const int count = static_cast<int>(std::min<int64_t>(3000, files_max_ - 200));
  Start(0);
  const int64_t files_before = daemon_->OpenFiles();
  const int64_t threads_before = daemon_->Threads();
  for (const std::string& said : {std::string(), kPreface}) {
    Connections idle(socket_);
    EXPECT_EQ(idle.OpenMany(count, said), count);
    EXPECT_TRUE(ANewClientIsAnswered());
    ExpectTraining();
    EXPECT_LE(daemon_->Threads(), threads_before + 20);
    idle.Close();
    const absl::Status gone =
        daemon_->WaitFor([&] { return daemon_->OpenFiles() <= files_before + 10; });
    EXPECT_TRUE(gone.ok()) << daemon_->OpenFiles() << " files, " << files_before << " before";
  }
  EXPECT_TRUE(ANewClientIsAnswered());
  ExpectTheStoreWorks();
}

TEST_F(ServeConnectionsTest, MoreConnectionsThanFilesMayBeOpened) {
  constexpr int64_t kFiles = 256;
  Start(kFiles);
  Connections idle(socket_);
  idle.OpenMany(2 * kFiles, kPreface);
  // That some were turned away is said once, not for each.
  const auto said = [this] { return daemon_->process().Output().find("NO_FILES_LEFT"); };
  EXPECT_TRUE(daemon_->WaitFor([&] { return said() != std::string::npos; }).ok());
  EXPECT_EQ(daemon_->process().Output().rfind("NO_FILES_LEFT"), said());
  // The job, and who is connected already, do not notice.
  ExpectTraining();
  ExpectTheStoreWorks();
  StepSeries series;
  EXPECT_TRUE(daemon_->ReadSteps(job_, 1, false, &series).ok());
  // Nothing spins: what is used is the job's one thread, and what gRPC and the calls take.
  const double before = daemon_->ProcessorSeconds();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LT(daemon_->ProcessorSeconds() - before, 3.0);
  idle.Close();
  EXPECT_TRUE(ANewClientIsAnswered()) << daemon_->process().Output();
  ExpectTraining();
  ExpectTheStoreWorks();
}

TEST_F(ServeConnectionsTest, ConnectionsThatSpeakNonsense) {
  Start(0);
  const int64_t files_before = daemon_->OpenFiles();
  Connections odd(socket_);
  // A frame that says it has 16 MiB; a stream's headers that never end.
  for (const std::string& said :
       {std::string(20000, '\xA5'), std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("PRI * HTTP/2.0\r\n"), kPreface + std::string("\xFF\xFF\xFF\0\0\0\0\0\1", 9),
        kPreface + std::string("\0\x10\0\1\0\0\0\0\1", 9) + std::string(4096, '\x40')}) {
    EXPECT_EQ(odd.OpenMany(50, said), 50);
  }
  EXPECT_TRUE(ANewClientIsAnswered());
  ExpectTraining();
  odd.Close();
  EXPECT_TRUE(daemon_->WaitFor([&] { return daemon_->OpenFiles() <= files_before + 10; }).ok());
  ExpectTheStoreWorks();
}

}  // namespace
}  // namespace megatrain
