// megatraind plan JOB.yaml: what a job needs, before anything is allocated.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "engine/engine.h"
#include "engine/job/job_parser.h"
#include "server/base/exit_code.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct PlanArguments {
  std::string job;
  std::vector<std::string> overrides;
  std::string profile;
  std::vector<std::string> rates;
  int nodes = 1;
  std::string output = "table";
};

absl::StatusOr<PlanReport> PlanOn(const JobSpec& spec, const PlanArguments& arguments) {
  if (arguments.profile.empty()) {
    return PlanTraining(spec, OpenCudaDevice, arguments.rates, arguments.nodes, LoadNccl);
  }
  MT_ASSIGN_OR_RETURN(const MachineProfile machine, FindMachineProfile(arguments.profile));
  return PlanTraining(spec, machine, arguments.rates, arguments.nodes);
}

int Plan(const PlanArguments& arguments) {
  const absl::StatusOr<JobSpec> spec = ParseJobFile(arguments.job, arguments.overrides);
  if (!spec.ok()) return Report(spec.status());
  const absl::StatusOr<PlanReport> plan = PlanOn(*spec, arguments);
  if (!plan.ok()) return Report(plan.status());
  const std::string text = arguments.output == "json" ? PlanJson(*plan) : plan->table;
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
  return plan->fits ? kExitDone : kExitDoesNotFit;
}

}  // namespace

void AddPlanCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* const command =
      app->add_subcommand("plan", "The bytes a job needs on host, device and disk");
  command->add_option("job", arguments->job, "the job file")->required()->type_name("JOB.yaml");
  command->add_option("--set", arguments->overrides, "replace a value of the job file; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--profile", arguments->profile,
                   "plan for another machine, by its data sheets, 1.5 GiB of its device left free "
                   "for what is loaded later: " +
                       absl::StrJoin(MachineProfileNames(), ", "))
      ->type_name("NAME");
  command
      ->add_option("--rate", arguments->rates,
                   "a rate in the place of a measured one or the profile's; repeatable: dram, "
                   "host_memory (what the optimizer and copies move together), link (GB/s), "
                   "products, attention_forward, attention_backward (TFLOP/s), memory (the "
                   "device's, TB/s), collective (GB/s that each of several devices receives from "
                   "the others), network (GB/s that each of several machines receives), launch "
                   "(microseconds)")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--nodes", arguments->nodes,
                   "plan for so many such machines, with engine.devices devices each; --rate "
                   "network says what is between them")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("-o,--output", arguments->output)
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command->callback([arguments, exit_code] { *exit_code = Plan(*arguments); });
}

}  // namespace megatrain
