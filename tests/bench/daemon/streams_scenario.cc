#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "tests/bench/daemon/scenarios.h"
#include "tests/bench/daemon/stream_load.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kConnections = 10;
constexpr double kMessagesPerSecond = 10;
constexpr double kMiB = 1 << 20;

// Least squares: how much y grows with one of x.
double Slope(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum_x += x[i];
    sum_y += y[i];
    sum_xx += x[i] * x[i];
    sum_xy += x[i] * y[i];
  }
  const double spread = n * sum_xx - sum_x * sum_x;
  return spread > 0 ? (n * sum_xy - sum_x * sum_y) / spread : 0;
}

}  // namespace

absl::Status MeasureStreams(const BenchOptions& options, Report* report) {
  MT_ASSIGN_OR_RETURN(const auto place, Workplace::Make(options.binary, "llama-tiny"));
  MT_ASSIGN_OR_RETURN(DaemonProcess::Options daemon_options, place->NewDaemon("streams"));
  daemon_options.threads = 2;
  MT_ASSIGN_OR_RETURN(const auto daemon, DaemonProcess::Start(daemon_options));
  // Steps somewhat shorter than a tenth of a second, by a link that sets their pace: what else the
  // machine does then does not make them longer.
  const JobShape shape{.steps = 10'000'000,
                       .checkpoint_every_steps = 10'000'000,
                       .link_gigabytes_per_second = options.stream_link};
  MT_ASSIGN_OR_RETURN(const v1::Job job, daemon->Create(place->Request(shape, "")));
  MT_RETURN_IF_ERROR(daemon->WaitForStep(job.name(), 10));
  MT_ASSIGN_OR_RETURN(const v1::Node node, daemon->GetNode());
  const double pool_mib = static_cast<double>(node.host_pool().pinned_bytes()) / kMiB;
  const auto beside_pool = [&] {
    return static_cast<double>(daemon->ResidentBytes()) / kMiB - pool_mib;
  };
  report->Note("daemon's memory beside the pool before the streams",
               absl::StrCat(std::lround(beside_pool()), " MiB"));

  StreamLoad load(*daemon, job.name(), options.streams, kConnections);
  // Settled when each has read what was there.
  MT_RETURN_IF_ERROR(daemon->WaitFor([&] { return load.Counts().slowest >= 10; }));
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const StreamCounts before = load.Counts();
  MT_ASSIGN_OR_RETURN(const v1::Job first, daemon->Get(job.name()));
  const double processor = daemon->ProcessorSeconds();
  std::vector<double> minutes, memory;
  const double between = std::min(60.0, options.stream_seconds / 10);
  while (elapsed() < options.stream_seconds) {
    minutes.push_back(elapsed() / 60);
    memory.push_back(beside_pool());
    const StreamCounts counts = load.Counts();
    std::printf("%5.0f s: %5.1f MiB beside the pool, %lld streams, %lld records, %lld lost\n",
                elapsed(), memory.back(), static_cast<long long>(counts.open),
                static_cast<long long>(counts.records), static_cast<long long>(counts.lost));
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::duration<double>(
        std::max(0.0, std::min(between, options.stream_seconds - elapsed()))));
  }
  const double seconds = elapsed();
  const StreamCounts after = load.Counts();
  MT_ASSIGN_OR_RETURN(const v1::Job last, daemon->Get(job.name()));
  minutes.push_back(seconds / 60);
  memory.push_back(beside_pool());
  // What was recorded until here reaches every reader.
  MT_RETURN_IF_ERROR(
      daemon->WaitFor([&] { return load.Counts().slowest >= last.progress().step(); }));
  const StreamCounts end = load.Counts();

  report->Exactly(absl::StrCat("streams held for ", std::lround(seconds), " s"), end.open,
                  options.streams);
  report->AtLeast("messages/s to each",
                  static_cast<double>(after.messages - before.messages) / seconds / options.streams,
                  kMessagesPerSecond, "");
  report->Note("steps/s of the job",
               absl::StrCat(static_cast<double>(last.progress().step() - first.progress().step()) /
                            seconds));
  report->Exactly("records lost", end.lost, 0);
  report->Exactly("records twice", end.twice, 0);
  report->Note("records received", absl::StrCat(end.records));
  report->AtMost("daemon's memory beside the pool, largest", Quantile(memory, 1), 200, "MiB");
  report->AtMost("  its growth", Slope(minutes, memory), 1, "MiB/minute");
  report->Note("processors the daemon used, training included",
               absl::StrCat((daemon->ProcessorSeconds() - processor) / seconds));
  return absl::OkStatus();
}

}  // namespace megatrain
