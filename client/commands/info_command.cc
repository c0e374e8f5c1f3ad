// megatrain info
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/output/proto_json.h"
#include "client/output/proto_time.h"
#include "engine/base/status.h"
#include "server/base/version.h"

namespace megatrain::client {
namespace {

// Decimal, as rates are: "230 GFLOP/s in FP32, 1.2 TFLOP/s in BF16".
std::string RateText(double first, const char* first_unit, double second, const char* second_unit) {
  if (first == 0) return "not measured yet";
  std::string text;
  for (const auto& [rate, unit] : {std::pair(first, first_unit), std::pair(second, second_unit)}) {
    const bool tera = rate >= 1e12;
    absl::StrAppendFormat(&text, "%.3g %s%s", rate / (tera ? 1e12 : 1e9), tera ? "T" : "G", unit);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> DeviceLines(const v1::Node& node) {
  std::vector<v1::Device> devices(node.devices().begin(), node.devices().end());
  if (devices.empty()) devices.push_back(node.device());  // of a daemon that has one
  std::vector<std::pair<std::string, std::string>> lines;
  for (const v1::Device& device : devices) {
    lines.push_back({"device", absl::StrCat(device.id(), device.description().empty() ? "" : ": ",
                                            device.description(),
                                            devices.size() == 1 ? ""
                                            : device.busy()     ? "; a job has it"
                                                                : "; free")});
  }
  return lines;
}

absl::StatusOr<ExitCode> Info(const Invocation& invocation) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  v1::GetNodeRequest request;
  request.set_name("nodes/local");
  MT_ASSIGN_OR_RETURN(
      const v1::Node node,
      connection->Call(connection->nodes(), &v1::NodeService::Stub::GetNode, request));
  if (invocation.quiet) {
    invocation.Print(node.name() + "\n");
    return kExitDone;
  }
  if (invocation.format() != OutputFormat::kTable) {
    nlohmann::ordered_json json = ToJson(node);
    json["server"] = connection->address().text;
    json["client_version"] = kVersion;
    invocation.PrintObject(json);
    return kExitDone;
  }
  const v1::HostPool& pool = node.host_pool();
  std::vector<std::pair<std::string, std::string>> lines = {
      {"server", connection->address().text},
      {"state", v1::Node::State_Name(node.state())},
      {"host", node.hostname()},
      {"daemon", absl::StrCat(node.daemon_version(), ", up ",
                              DurationText(absl::Now() - ToTime(node.start_time())))},
      {"client", kVersion},
      {"threads", absl::StrCat(node.threads())},
      {"products", RateText(node.rates().fp32_flops_per_second(), "FLOP/s in FP32, ",
                            node.rates().bf16_flops_per_second(), "FLOP/s in BF16")},
      {"link", RateText(node.rates().h2d_bytes_per_second(), "B/s to the device, ",
                        node.rates().d2h_bytes_per_second(), "B/s back")},
      {"both ways", RateText(node.rates().h2d_beside_d2h_bytes_per_second(), "B/s to the device, ",
                             node.rates().d2h_beside_h2d_bytes_per_second(), "B/s back")},
      {"optimizer", RateText(node.rates().fp32_update_bytes_per_second(), "B/s in FP32, ",
                             node.rates().bf16_update_bytes_per_second(), "B/s in BF16")},
      {"host pool",
       absl::StrCat(SizeText(pool.used_bytes()), " used of ", SizeText(pool.size_bytes()),
                    pool.pinned_bytes() < pool.size_bytes()
                        ? absl::StrCat(", ", SizeText(pool.pinned_bytes()), " pinned so far")
                        : "")},
      {"disk", absl::StrCat(SizeText(node.state_disk().free_bytes()), " free of ",
                            SizeText(node.state_disk().size_bytes()))},
      {"jobs", absl::StrCat(node.jobs().running(), " running, ", node.jobs().queued(), " queued, ",
                            node.jobs().paused(), " paused")}};
  const auto threads = std::find_if(lines.begin(), lines.end(),
                                    [](const auto& line) { return line.first == "threads"; });
  const std::vector<std::pair<std::string, std::string>> devices = DeviceLines(node);
  lines.insert(threads, devices.begin(), devices.end());
  // The cpu device's link is the processors' own work.
  if (node.rates().h2d_beside_d2h_bytes_per_second() == 0) {
    lines.erase(std::find_if(lines.begin(), lines.end(),
                             [](const auto& line) { return line.first == "both ways"; }));
  }
  std::string text;
  for (const auto& [label, value] : lines) {
    const std::string line = absl::StrCat(PadRight(label, 11), Printable(value));
    const int width = invocation.table_width();
    absl::StrAppend(
        &text, width > 0 ? Ellipsize(line, width, invocation.environment().charset) : line, "\n");
  }
  invocation.Print(text);
  return kExitDone;
}

}  // namespace

void AddInfoCommand(CLI::App* app, CommandContext context) {
  AddCommand(app, "info", "The daemon, its device, its host pool, how busy it is", context,
             [context] { return Info(*context.invocation); });
}

}  // namespace megatrain::client
