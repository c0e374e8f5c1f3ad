#include "tests/e2e/daemon_process.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kPatience{120};

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

bool Ended(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

std::vector<std::string> Arguments(const DaemonProcess::Options& options,
                                   const std::string& address) {
  std::vector<std::string> settings = {
      absl::StrCat("state_directory=", options.directory, "/state"),
      absl::StrCat("listen=[\"", address, "\"]"),
      "device=cpu",
      "metrics_listen=",
      absl::StrCat("host_memory=", options.host_memory),
      absl::StrCat("threads=", options.threads)};
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  std::vector<std::string> arguments = {options.binary, "serve"};
  if (!options.config.empty()) arguments.insert(arguments.end(), {"--config", options.config});
  for (std::string& setting : settings) {
    arguments.push_back("--set");
    arguments.push_back(std::move(setting));
  }
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  return arguments;
}

// A line of /proc/PID/status in its unit; 0 if there is none.
int64_t StatusNumber(pid_t pid, const std::string& key) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, key + ":")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t number = 0;
    return words.size() > 1 && absl::SimpleAtoi(words[1], &number) ? number : 0;
  }
  return 0;
}

}  // namespace

absl::Status WaitFor(ChildProcess* process, const std::function<bool()>& condition) {
  const auto deadline = steady_clock::now() + kPatience;
  while (!condition()) {
    if (!process->Running()) {
      return absl::AbortedError(absl::StrCat("the process has ended:\n", process->Output()));
    }
    if (steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("waited in vain:\n", process->Output()));
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return absl::OkStatus();
}

void AwaitConnection(grpc::Channel* channel) {
  channel->WaitForConnected(std::chrono::system_clock::now() + milliseconds(20));
}

std::vector<int64_t> StepSeries::Numbers() const {
  std::vector<int64_t> numbers;
  for (const v1::StepMetrics& step : steps) numbers.push_back(step.step());
  return numbers;
}

DaemonProcess::DaemonProcess(const Options& options, std::string address)
    : address_(std::move(address)),
      process_(Arguments(options, address_), options.directory + ".log", options.limits),
      channel_(NewChannel()),
      jobs_(v1::JobService::NewStub(channel_)),
      nodes_(v1::NodeService::NewStub(channel_)) {}

std::unique_ptr<DaemonProcess> DaemonProcess::Launch(const Options& options) {
  return std::unique_ptr<DaemonProcess>(
      new DaemonProcess(options, absl::StrCat("unix:", options.directory, "/m.sock")));
}

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::Start(const Options& options) {
  std::unique_ptr<DaemonProcess> daemon = Launch(options);
  MT_RETURN_IF_ERROR(daemon->WaitUntilReady());
  return daemon;
}

absl::Status DaemonProcess::WaitUntilReady() {
  return WaitFor([this] {
    const absl::StatusOr<v1::Node> node = GetNode();
    return node.ok() && node->state() == v1::Node::READY;
  });
}

std::shared_ptr<grpc::Channel> DaemonProcess::NewChannel() const {
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // It is waited for; by itself a channel waits longer and longer between its attempts.
  own.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  own.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), own);
}

std::unique_ptr<grpc::ClientContext> DaemonProcess::NewCall() const {
  AwaitConnection(channel_.get());
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kPatience);
  return context;
}

absl::StatusOr<v1::Job> DaemonProcess::Create(const v1::CreateJobRequest& request) {
  v1::Job job;
  MT_RETURN_IF_ERROR(FromGrpc(jobs_->CreateJob(NewCall().get(), request, &job)));
  return job;
}

absl::StatusOr<v1::Job> DaemonProcess::Get(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  MT_RETURN_IF_ERROR(FromGrpc(jobs_->GetJob(NewCall().get(), request, &job)));
  return job;
}

absl::StatusOr<v1::Node> DaemonProcess::GetNode() {
  v1::GetNodeRequest request;
  request.set_name("nodes/local");
  v1::Node node;
  MT_RETURN_IF_ERROR(FromGrpc(nodes_->GetNode(NewCall().get(), request, &node)));
  return node;
}

absl::Status DaemonProcess::Pause(const std::string& name, bool release_host_memory) {
  v1::PauseJobRequest request;
  request.set_name(name);
  request.set_release_host_memory(release_host_memory);
  v1::Job job;
  return FromGrpc(jobs_->PauseJob(NewCall().get(), request, &job));
}

absl::Status DaemonProcess::Resume(const std::string& name) {
  v1::ResumeJobRequest request;
  request.set_name(name);
  v1::Job job;
  return FromGrpc(jobs_->ResumeJob(NewCall().get(), request, &job));
}

absl::Status DaemonProcess::Cancel(const std::string& name) {
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::Job job;
  return FromGrpc(jobs_->CancelJob(NewCall().get(), request, &job));
}

absl::StatusOr<std::vector<v1::Job>> DaemonProcess::List() {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  do {
    v1::ListJobsResponse page;
    MT_RETURN_IF_ERROR(FromGrpc(jobs_->ListJobs(NewCall().get(), request, &page)));
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

absl::Status DaemonProcess::WaitForState(const std::string& name, v1::Job::State state) {
  absl::Status status;
  MT_RETURN_IF_ERROR(WaitFor([&] {
    const absl::StatusOr<v1::Job> job = Get(name);
    status = job.status();
    if (!job.ok() || job->state() == state) return true;
    if (!Ended(job->state())) return false;
    status = absl::FailedPreconditionError(
        absl::StrCat(name, " is ", v1::Job::State_Name(job->state()), ": ", job->reason_text()));
    return true;
  }));
  return status;
}

absl::Status DaemonProcess::WaitForStep(const std::string& name, int64_t step) {
  absl::Status status;
  MT_RETURN_IF_ERROR(WaitFor([&] {
    const absl::StatusOr<v1::Job> job = Get(name);
    status = job.status();
    if (!job.ok() || job->progress().step() >= step) return true;
    if (!Ended(job->state())) return false;
    status = absl::FailedPreconditionError(
        absl::StrCat(name, " is ", v1::Job::State_Name(job->state()), ": ", job->reason_text()));
    return true;
  }));
  return status;
}

absl::Status DaemonProcess::ReadSteps(const std::string& name, int64_t until, bool follow,
                                      StepSeries* series) {
  v1::StreamStepMetricsRequest request;
  request.set_name(name);
  request.set_start_sequence(series->next);
  request.set_follow(follow);
  grpc::ClientContext context;
  const auto reader = jobs_->StreamStepMetrics(&context, request);
  v1::StreamStepMetricsResponse message;
  std::vector<v1::StepMetrics>& steps = series->steps;
  absl::Status numbered;
  const auto expect = [&](int64_t sequence) {
    if (sequence != series->next) {
      numbered = absl::DataLossError(
          absl::StrCat(name, ": record ", sequence, " where ", series->next, " was due"));
    }
    series->next = sequence + 1;
  };
  while (numbered.ok() && (steps.empty() || steps.back().step() < until) &&
         reader->Read(&message)) {
    for (const v1::StepMetricsRecord& record : message.batch().records()) {
      expect(record.sequence());
      series->furthest = std::max(series->furthest, record.metrics().step());
      if (!record.superseded()) steps.push_back(record.metrics());
    }
    if (message.has_missed()) numbered = absl::DataLossError(name + ": records were missed");
    if (message.has_fell_back()) {
      expect(message.fell_back().sequence());
      std::erase_if(steps, [&](const v1::StepMetrics& step) {
        return step.step() > message.fell_back().checkpoint_step();
      });
    }
  }
  if (!numbered.ok() || (!steps.empty() && steps.back().step() >= until)) {
    context.TryCancel();
    reader->Finish();
    return numbered;
  }
  return FromGrpc(reader->Finish());
}

absl::StatusOr<std::vector<v1::JobEvent>> DaemonProcess::Events(const std::string& name) {
  MT_ASSIGN_OR_RETURN(const v1::Job job, Get(name));
  v1::WatchJobRequest request;
  request.set_name(name);
  grpc::ClientContext context;
  const auto reader = jobs_->WatchJob(&context, request);
  std::vector<v1::JobEvent> events;
  v1::WatchJobResponse message;
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
  // Up to the first heartbeat, which says that this is all there is, or the stream's end.
  bool all = false;
  while (!all && reader->Read(&message)) {
    all = message.has_heartbeat();
    if (message.has_missed()) return absl::DataLossError(name + ": events were missed");
    if (!message.has_event()) continue;
    const v1::JobEvent& event = message.event();
    if (event.sequence() != static_cast<int64_t>(events.size()) + 1 ||
        event.from_state() != state) {
      return absl::DataLossError(absl::StrCat(name, ": event ", event.sequence(), " from ",
                                              v1::Job::State_Name(event.from_state()), " follows ",
                                              events.size(), " to ", v1::Job::State_Name(state)));
    }
    state = event.to_state();
    events.push_back(event);
  }
  if (all) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!all && !status.ok()) return FromGrpc(status);
  return events;
}

int64_t DaemonProcess::ResidentBytes() const { return StatusNumber(process_.pid(), "VmRSS") << 10; }

int64_t DaemonProcess::Threads() const { return StatusNumber(process_.pid(), "Threads"); }

int64_t DaemonProcess::OpenFiles() const {
  std::error_code error;
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", process_.pid(), "/fd"),
                                                  error);
  return error ? 0 : std::distance(begin(files), end(files));
}

double DaemonProcess::ProcessorSeconds() const {
  std::ifstream file(absl::StrCat("/proc/", process_.pid(), "/stat"));
  std::stringstream text;
  text << file.rdbuf();
  // Behind the name, which may hold anything: the fields from the third on.
  const std::string line = text.str();
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(name_end + 1), ' ', absl::SkipEmpty());
  int64_t user = 0, system = 0;
  if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system)) {
    return 0;
  }
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace megatrain
