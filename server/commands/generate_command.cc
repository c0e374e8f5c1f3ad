// megatraind generate PATH: a model's answers to prompts.
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "engine/engine.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct GenerateArguments {
  std::string path;
  GenerateOptions options;
  std::vector<std::string> prompts;
  std::string prompts_file;
  std::string output = "text";
  std::string device = "auto";
  std::string device_memory;
  int threads = 0;
};

void PrintJson(size_t index, const Prompt& prompt, const GeneratedText& answer) {
  nlohmann::ordered_json line;
  line["index"] = index;
  if (prompt.record.empty()) line["prompt"] = prompt.text;
  line["text"] = answer.text;
  line["prompt_tokens"] = answer.prompt_tokens;
  line["tokens"] = answer.tokens;
  line["finish_reason"] = answer.stopped ? "stop" : "length";
  std::puts(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

absl::Status RunGenerate(const GenerateArguments& arguments) {
  GenerateOptions options = arguments.options;
  for (const std::string& text : arguments.prompts) {
    options.prompts.push_back({text, ""});
    options.prompt_places.push_back(arguments.prompts.size() == 1
                                        ? "--prompt"
                                        : absl::StrCat("--prompt ", options.prompts.size()));
  }
  if (!arguments.prompts_file.empty()) {
    MT_RETURN_IF_ERROR(ReadPrompts(arguments.prompts_file, PosixFileSystem(), &options));
  }
  if (!arguments.device_memory.empty()) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(arguments.device_memory);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device-memory: ", bytes.status().message()));
    }
    options.engine.device_memory = *bytes;
  }
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host,
                      EngineHost::Create({.device = arguments.device,
                                          .device_key = "--device",
                                          .open_gpu = OpenCudaDevice,
                                          .threads = arguments.threads}));

  GenerateSink sink;
  sink.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  const auto echo = [&](size_t index) {
    if (!options.chat) std::fputs(options.prompts[index].text.c_str(), stdout);
  };
  const bool one = options.prompts.size() == 1;
  if (arguments.output == "json") {
    sink.answer = [&](size_t index, const GeneratedText& answer) {
      PrintJson(index, options.prompts[index], answer);
    };
  } else if (one) {
    echo(0);
    sink.piece = [](size_t, const std::string& text) {
      std::fputs(text.c_str(), stdout);
      std::fflush(stdout);
    };
  } else {
    sink.answer = [&](size_t index, const GeneratedText& answer) {
      if (index > 0) std::fputc('\n', stdout);
      echo(index);
      std::puts(answer.text.c_str());
      std::fflush(stdout);
    };
  }
  const absl::Status status = Generate(*host, arguments.path, options, sink);
  if (one && arguments.output == "text") std::fputc('\n', stdout);
  return status;
}

void AddPromptOptions(CLI::App* command, GenerateArguments& arguments) {
  GenerateOptions& options = arguments.options;
  CLI::Option* const prompt =
      command
          ->add_option("--prompt", arguments.prompts,
                       "a text to go on from; repeatable, all are answered together")
          ->type_name("TEXT")
          ->allow_extra_args(false);
  CLI::Option* const file =
      command
          ->add_option("--prompts", arguments.prompts_file,
                       "a file of prompts: one on each line, or .jsonl with the key prompt or "
                       "messages, and seed")
          ->type_name("FILE")
          ->excludes(prompt);
  prompt->excludes(file);
  command->add_flag("--chat", options.chat,
                    "a text is a user's turn, written by the model's chat template");
  command->add_option("--chat-template", options.chat_template, "as data.chat_template of a job")
      ->capture_default_str();
  command
      ->add_option("--add-bos", options.add_bos,
                   "auto, true or false: the beginning-of-text token, as data.add_bos")
      ->transform(CLI::CheckedTransformer(std::map<std::string, AddBos>{
          {"auto", AddBos::kAuto}, {"true", AddBos::kTrue}, {"false", AddBos::kFalse}}));
  command->add_option("--tokenizer", options.tokenizer, "auto, or bytes")
      ->check(CLI::IsMember({"auto", "bytes"}))
      ->capture_default_str();
}

void AddAnswerOptions(CLI::App* command, GenerateOptions& options) {
  command->add_option("--tokens", options.tokens, "of an answer at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--temperature", options.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", options.top_k, "only the likeliest K tokens; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  command
      ->add_option("--top-p", options.top_p,
                   "only the likeliest tokens that together have this probability; 1: all")
      ->check([](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && value <= 1;
        return good ? std::string() : "expects a number above 0 and up to 1, got " + text;
      })
      ->capture_default_str();
  command
      ->add_option("--seed", options.seed,
                   "of the random numbers, which are each prompt's own: equal prompts get equal "
                   "answers")
      ->capture_default_str();
  command
      ->add_option("--stop", options.stop_texts,
                   "a text, or the name of a token, that ends an answer; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command->add_option("--stop-id", options.stop_ids, "a token that ends an answer; repeatable")
      ->type_name("ID")
      ->allow_extra_args(false);
}

}  // namespace

void AddGenerateCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* const command = app->add_subcommand(
      "generate", "Answers of a model in a Hugging Face directory or checkpoint");
  command->add_option("path", arguments->path, "the directory")->required()->type_name("PATH");
  AddPromptOptions(command, *arguments);
  AddAnswerOptions(command, arguments->options);
  command
      ->add_option("-o,--output", arguments->output,
                   "json: an object on a line for each prompt, in their order")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->add_option("--device", arguments->device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  command
      ->add_option("--device-memory", arguments->device_memory,
                   "limit for the device's memory (24GiB); weights that fit stay there. Default: "
                   "what a GPU has free")
      ->type_name("SIZE");
  command
      ->add_option("--link-gigabytes-per-second",
                   arguments->options.engine.link_gigabytes_per_second,
                   "cpu device: throttle the stream of weights to rehearse a bus; 0: do not")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: the processors this process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->callback([arguments, exit_code] {
    if (arguments->prompts.empty() && arguments->prompts_file.empty()) {
      throw CLI::RequiredError("--prompt or --prompts");
    }
    *exit_code = Report(RunGenerate(*arguments));
  });
}

}  // namespace megatrain
