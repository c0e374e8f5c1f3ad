// Makes shell completion scripts from the declared command line. They complete the commands and
// their options. Of a command with subcommands, such as `context`, they complete the names of the
// subcommands, but not the options of these. The values of options, such as `json` of --output, are
// fixed in the scripts and not taken from the command line.
#ifndef MEGATRAIN_CLIENT_COMMANDS_COMPLETION_H_
#define MEGATRAIN_CLIENT_COMMANDS_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace megatrain::client {

// The kind of text that completes a command's argument: none, names of jobs, names of files, or
// CompletionCommand::words.
enum class ArgumentKind { kNone, kJob, kFile, kWords };

struct CompletionOption {
  std::string name;  // "--set", or "-x" for an option without a long name
  std::string description;
  bool takes_value = false;
};

struct CompletionCommand {
  std::string name;
  std::string description;
  ArgumentKind argument = ArgumentKind::kNone;
  std::vector<std::string> words;  // if `argument` is kWords
  std::vector<CompletionOption> options;
};

// The command line as far as the scripts complete it.
struct CompletionWords {
  std::vector<CompletionOption> options;  // of the program, not of a command
  std::vector<CompletionCommand> commands;
};

// Collects the options and commands of `app`, and the options of the commands. An argument with the
// type name "JOB" is completed with jobs, and one with "JOB.yaml" with files. A command that has
// subcommands is completed with their names, and an argument named "shell" with bash, zsh and fish.
CompletionWords DescribeForCompletion(const CLI::App& app);

// Return the text of a script for the shell. The script completes names of jobs by running
// `megatrain ls --all --quiet`.
std::string BashCompletion(const CompletionWords& words);
std::string ZshCompletion(const CompletionWords& words);
std::string FishCompletion(const CompletionWords& words);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_COMMANDS_COMPLETION_H_
