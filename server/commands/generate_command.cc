// megatraind generate PATH: text from a model.
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "engine/engine.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct GenerateArguments {
  std::string path;
  GenerateOptions options;
  std::string device = "auto";
  int threads = 0;
};

absl::Status RunGenerate(const GenerateArguments& arguments) {
  EngineHostOptions options;
  options.device = arguments.device;
  options.device_key = "--device";
  options.threads = arguments.threads;
  options.open_gpu = OpenCudaDevice;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host, EngineHost::Create(options));
  std::fputs(arguments.options.prompt.c_str(), stdout);
  const absl::Status status =
      Generate(*host, arguments.path, arguments.options, [](const std::string& text) {
        std::fputs(text.c_str(), stdout);
        std::fflush(stdout);
      });
  std::fputc('\n', stdout);
  return status;
}

}  // namespace

void AddGenerateCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& options = arguments->options;
  CLI::App* const command =
      app->add_subcommand("generate", "Text from a Hugging Face directory or checkpoint");
  command->add_option("path", arguments->path, "the directory")->required()->type_name("PATH");
  command->add_option("--prompt", options.prompt, "the text to go on from")->required();
  command->add_option("--tokens", options.tokens, "how many at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--temperature", options.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--seed", options.seed)->capture_default_str();
  command
      ->add_option("--add-bos", options.add_bos,
                   "auto, true or false: the beginning-of-text token, as data.add_bos")
      ->transform(CLI::CheckedTransformer(std::map<std::string, AddBos>{
          {"auto", AddBos::kAuto}, {"true", AddBos::kTrue}, {"false", AddBos::kFalse}}));
  command->add_option("--tokenizer", options.tokenizer, "auto, or bytes")
      ->check(CLI::IsMember({"auto", "bytes"}))
      ->capture_default_str();
  command->add_option("--device", arguments->device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: the processors this process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->callback([arguments, exit_code] { *exit_code = Report(RunGenerate(*arguments)); });
}

}  // namespace megatrain
