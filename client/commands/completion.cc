#include "client/commands/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace megatrain::client {
namespace {

constexpr char kJobs[] = "megatrain ls --all --quiet 2>/dev/null";

std::vector<CompletionOption> OptionsOf(const CLI::App& app) {
  std::vector<CompletionOption> options;
  for (const CLI::Option* const option : app.get_options()) {
    // The first long name, else the first short one; arguments have neither.
    std::string name;
    if (!option->get_lnames().empty()) {
      name = "--" + option->get_lnames().front();
    } else if (!option->get_snames().empty()) {
      name = "-" + option->get_snames().front();
    } else {
      continue;
    }
    options.push_back({name, option->get_description(), option->get_expected_min() > 0});
  }
  return options;
}

CompletionCommand DescribeCommand(const CLI::App& app) {
  CompletionCommand command{
      app.get_name(), app.get_description(), ArgumentKind::kNone, {}, OptionsOf(app)};
  for (const CLI::App* const sub : app.get_subcommands(nullptr)) {
    command.argument = ArgumentKind::kWords;
    command.words.push_back(sub->get_name());
  }
  for (const CLI::Option* const option : app.get_options()) {
    if (!option->get_positional() || command.argument != ArgumentKind::kNone) continue;
    const std::string type = option->get_type_name();
    if (type == "JOB") {
      command.argument = ArgumentKind::kJob;
    } else if (type == "JOB.yaml") {
      command.argument = ArgumentKind::kFile;
    } else if (option->get_name() == "shell") {
      command.argument = ArgumentKind::kWords;
      command.words = {"bash", "zsh", "fish"};
    }
  }
  return command;
}

std::string Names(const std::vector<CompletionOption>& options) {
  return absl::StrJoin(options, " ", [](std::string* out, const CompletionOption& option) {
    absl::StrAppend(out, option.name);
  });
}

// For text in single quotes.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}
// For _arguments: brackets and colons have a meaning there.
std::string ZshDescription(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}, {"'", "'\\''"}});
}

std::string ValueOptions(const CompletionWords& words) {
  std::vector<std::string> names = {"-o"};
  const auto add = [&names](const std::vector<CompletionOption>& options) {
    for (const CompletionOption& option : options) {
      if (option.takes_value) names.push_back(option.name);
    }
  };
  add(words.options);
  for (const CompletionCommand& command : words.commands) add(command.options);
  return absl::StrJoin(names, "|");
}

}  // namespace

CompletionWords DescribeForCompletion(const CLI::App& app) {
  CompletionWords words;
  words.options = OptionsOf(app);
  for (const CLI::App* const command : app.get_subcommands(nullptr)) {
    words.commands.push_back(DescribeCommand(*command));
  }
  return words;
}

std::string BashCompletion(const CompletionWords& words) {
  std::string script = absl::StrCat(
      "# bash completion for megatrain; for this shell: source <(megatrain completion bash)\n"
      "_megatrain() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local command=\"\" each value=0 options=\"",
      Names(words.options),
      "\"\n"
      "  for each in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      // bash takes the : and = within an address for words.
      "    if [[ $each == [:=]* ]]; then value=1; continue; fi\n"
      "    if ((value)); then value=0; continue; fi\n"
      "    case \"$each\" in\n"
      "      ",
      ValueOptions(words),
      ") value=1 ;;\n"
      "      -*) ;;\n"
      "      *) command=\"$each\"; break ;;\n"
      "    esac\n"
      "  done\n"
      // So it does that within an option's value.
      "  if [[ $word == = ]]; then word=\"\"; fi\n"
      "  if [[ $before == = ]]; then before=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n"
      "  case \"$before\" in\n"
      "    -o|--output) COMPREPLY=($(compgen -W 'table json yaml' -- \"$word\")); return ;;\n"
      "    --out) COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n"
      "    --set|--server|--state|--request-id|--priority|--allow-change) return ;;\n"
      "  esac\n"
      "  case \"$command\" in\n"
      "    '')\n"
      "      options+=' ",
      absl::StrJoin(words.commands, " ",
                    [](std::string* out, const CompletionCommand& command) {
                      absl::StrAppend(out, command.name);
                    }),
      "' ;;\n");
  for (const CompletionCommand& command : words.commands) {
    absl::StrAppend(&script, "    ", command.name, ")\n      options+=' ", Names(command.options));
    if (command.argument == ArgumentKind::kWords) {
      absl::StrAppend(&script, " ", absl::StrJoin(command.words, " "));
    }
    absl::StrAppend(&script, "'\n");
    if (command.argument == ArgumentKind::kJob) {
      absl::StrAppend(&script, "      [[ $word == -* ]] || options+=\" $(", kJobs, ")\"\n");
    } else if (command.argument == ArgumentKind::kFile) {
      absl::StrAppend(&script,
                      "      [[ $word == -* ]] || { COMPREPLY=($(compgen -f -- \"$word\")); "
                      "return; }\n");
    }
    absl::StrAppend(&script, "      ;;\n");
  }
  absl::StrAppend(&script,
                  "  esac\n"
                  "  COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
                  "}\n"
                  "complete -o filenames -F _megatrain megatrain\n");
  return script;
}

std::string ZshCompletion(const CompletionWords& words) {
  const auto arguments = [](const std::vector<CompletionOption>& options,
                            const std::string& indent) {
    std::string text;
    for (const CompletionOption& option : options) {
      absl::StrAppend(&text, " \\\n", indent, "'", option.name, "[",
                      ZshDescription(option.description), "]", option.takes_value ? ":value:" : "",
                      option.name == "--output" ? "(table json yaml)"
                      : option.name == "--out"  ? "_files -/"
                                                : "",
                      "'");
    }
    return text;
  };
  std::string script = absl::StrCat(
      "#compdef megatrain\n"
      "# zsh completion for megatrain; for this shell: source <(megatrain completion zsh)\n"
      "_megatrain_jobs() {\n"
      "  local -a jobs\n"
      "  jobs=(${(f)\"$(",
      kJobs,
      ")\"})\n"
      "  compadd -a jobs\n"
      "}\n"
      "_megatrain() {\n"
      "  local context state line\n"
      "  _arguments -C",
      arguments(words.options, "    "),
      " \\\n"
      "    '1:command:->command' \\\n"
      "    '*::argument:->argument'\n"
      "  case $state in\n"
      "    command)\n"
      "      local -a commands\n"
      "      commands=(\n");
  for (const CompletionCommand& command : words.commands) {
    absl::StrAppend(&script, "        ",
                    Quoted(absl::StrCat(command.name, ":",
                                        absl::StrReplaceAll(command.description, {{":", "\\:"}}))),
                    "\n");
  }
  absl::StrAppend(&script,
                  "      )\n"
                  "      _describe command commands ;;\n"
                  "    argument)\n"
                  "      case $words[1] in\n");
  for (const CompletionCommand& command : words.commands) {
    absl::StrAppend(&script, "        ", command.name, ") _arguments",
                    arguments(command.options, "          "));
    switch (command.argument) {
      case ArgumentKind::kJob:
        absl::StrAppend(&script, " '1:job:_megatrain_jobs'");
        break;
      case ArgumentKind::kFile:
        absl::StrAppend(&script, " '1:job file:_files'");
        break;
      case ArgumentKind::kWords:
        absl::StrAppend(&script, " '1:argument:(", absl::StrJoin(command.words, " "), ")'");
        break;
      case ArgumentKind::kNone:
        break;
    }
    absl::StrAppend(&script, " ;;\n");
  }
  absl::StrAppend(&script,
                  "      esac ;;\n"
                  "  esac\n"
                  "}\n"
                  "if [[ $funcstack[1] == _megatrain ]]; then _megatrain \"$@\"; "
                  "else compdef _megatrain megatrain; fi\n");
  return script;
}

std::string FishCompletion(const CompletionWords& words) {
  std::string script =
      "# fish completion for megatrain; for this shell: megatrain completion fish | source\n"
      "complete -c megatrain -f\n";
  const auto options = [&script](const std::vector<CompletionOption>& list,
                                 const std::string& condition) {
    for (const CompletionOption& option : list) {
      const bool is_long = option.name.size() > 2;
      absl::StrAppend(&script, "complete -c megatrain", condition, is_long ? " -l " : " -s ",
                      option.name.substr(is_long ? 2 : 1),
                      option.name == "--out"      ? " -r -F"
                      : option.name == "--output" ? " -x -a 'table json yaml'"
                      : option.takes_value        ? " -x"
                                                  : "",
                      " -d ", Quoted(option.description), "\n");
    }
  };
  options(words.options, "");
  for (const CompletionCommand& command : words.commands) {
    absl::StrAppend(&script, "complete -c megatrain -n __fish_use_subcommand -a ", command.name,
                    " -d ", Quoted(command.description), "\n");
    const std::string condition =
        absl::StrCat(" -n '__fish_seen_subcommand_from ", command.name, "'");
    options(command.options, condition);
    if (command.argument == ArgumentKind::kJob) {
      absl::StrAppend(&script, "complete -c megatrain", condition, " -a '(", kJobs, ")'\n");
    } else if (command.argument == ArgumentKind::kFile) {
      absl::StrAppend(&script, "complete -c megatrain", condition, " -F\n");
    } else if (command.argument == ArgumentKind::kWords) {
      absl::StrAppend(&script, "complete -c megatrain", condition, " -a '",
                      absl::StrJoin(command.words, " "), "'\n");
    }
  }
  return script;
}

}  // namespace megatrain::client
