// Measures a real `megatraind serve` through its API, and holds it to what it must reach:
//
//   bazel-bin/tests/bench/daemon/daemon_bench [requests] [control] [streams] [kills]
//
// Exit code 1 if a bound is missed or a scenario could not be measured.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/bench/daemon/scenarios.h"

int main(int argc, char** argv) {
  using megatrain::BenchOptions;
  using megatrain::Report;
  const std::map<std::string, absl::Status (*)(const BenchOptions&, Report*)> scenarios = {
      {"requests", megatrain::MeasureRequests},
      {"control", megatrain::MeasureControl},
      {"streams", megatrain::MeasureStreams},
      {"kills", megatrain::MeasureKills}};

  BenchOptions options;
  // Of the same build.
  options.binary =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../../server/megatraind")
          .lexically_normal();
  std::vector<std::string> names;
  CLI::App app("Measures the daemon");
  app.add_option("SCENARIO", names, "requests, control, streams, kills; none: all")
      ->check(CLI::IsMember(scenarios));
  app.add_option("--binary", options.binary, "megatraind")
      ->check(CLI::ExistingFile)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of random moments");
  app.add_option("--rounds", options.rounds, "requests: with and without load, by turns");
  app.add_option("--round-seconds", options.round_seconds, "requests");
  app.add_option("--preset", options.preset, "requests: the model whose training is slowed")
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "control: pauses and cancels");
  app.add_option("--streams", options.streams, "streams held at once");
  app.add_option("--stream-seconds", options.stream_seconds, "how long");
  app.add_option("--stream-link", options.stream_link,
                 "GB/s of the streamed job's link, which sets the pace of its steps");
  app.add_option("--kills", options.kills, "kills");
  CLI11_PARSE(app, argc, argv);

  Report report;
  bool measured = true;
  for (const auto& [name, measure] : scenarios) {
    if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) continue;
    if (const absl::Status status = measure(options, &report); !status.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
      measured = false;
    }
  }
  report.Print();
  return measured && report.Met() ? 0 : 1;
}
