// Makes shell completion scripts from the declared command line, so that they have its commands,
// the names of their subcommands, and their options. The options of subcommands are left out. The
// values that an option accepts are fixed in the scripts.
#ifndef MEGATRAIN_CLIENT_COMMANDS_COMPLETION_H_
#define MEGATRAIN_CLIENT_COMMANDS_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace megatrain::client {

// The kind of a command's argument, as far as a shell can complete it.
enum class ArgumentKind { kNone, kJob, kFile, kWords };  // kWords: CompletionCommand::words

struct CompletionOption {
  std::string name;  // "--set"
  std::string description;
  bool takes_value = false;
};

struct CompletionCommand {
  std::string name;
  std::string description;
  ArgumentKind argument = ArgumentKind::kNone;
  std::vector<std::string> words;  // of kWords
  std::vector<CompletionOption> options;
};

struct CompletionWords {
  std::vector<CompletionOption> options;  // of all commands
  std::vector<CompletionCommand> commands;
};

// Collects the commands of `app` and their options. An argument with the type name "JOB" is
// completed with jobs, and one with "JOB.yaml" with files. A command that has subcommands is
// completed with their names, and an argument named "shell" with bash, zsh and fish.
CompletionWords DescribeForCompletion(const CLI::App& app);

// Return the text of a shell script. The script completes job names by running `megatrain ls`.
std::string BashCompletion(const CompletionWords& words);
std::string ZshCompletion(const CompletionWords& words);
std::string FishCompletion(const CompletionWords& words);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_COMMANDS_COMPLETION_H_
