// The scripts for zsh and fish, line by line: no such shell is needed. That for bash in bash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CompletionCommandTest : public ProgramTest {
 protected:
  std::string Script(const std::string& shell) {
    const Result result = Run({"completion", shell});
    EXPECT_EQ(result.code, kExitDone) << result.err;
    return result.out;
  }
};

TEST_F(CompletionCommandTest, FishKnowsWhatFollowsEachCommand) {
  const std::string seen = "complete -c megatrain -n '__fish_seen_subcommand_from ";
  EXPECT_THAT(
      Script("fish"),
      AllOf(HasSubstr("complete -c megatrain -n __fish_use_subcommand -a pause -d 'Free the "),
            HasSubstr(seen + "show' -a '(megatrain ls --all --quiet 2>/dev/null)'\n"),
            HasSubstr(seen + "submit' -F\n"), HasSubstr(seen + "plan' -F\n"),
            HasSubstr(seen + "context' -a 'ls use add'\n"),
            HasSubstr(seen + "completion' -a 'bash zsh fish'\n"),
            Not(HasSubstr(seen + "ls' -a "))));
}

TEST_F(CompletionCommandTest, FishKnowsWhichOptionsTakeAValue) {
  const std::string seen = "complete -c megatrain -n '__fish_seen_subcommand_from ";
  EXPECT_THAT(
      Script("fish"),
      AllOf(HasSubstr("complete -c megatrain -l server -x -d 'where the daemon is; "),
            HasSubstr("complete -c megatrain -l output -x -a 'table json yaml' -d "),
            HasSubstr("complete -c megatrain -l quiet -d 'names only'\n"),
            HasSubstr(seen + "pause' -l release-host -d 'save it and give its host memory back "),
            HasSubstr(seen + "submit' -l set -x -d "), HasSubstr(seen + "submit' -l watch -d "),
            HasSubstr(seen + "export' -l out -r -F -d "
                             "'an empty or new directory on the daemon'\\''s machine'\n")));
}

TEST_F(CompletionCommandTest, ZshDescribesCommandsAndTheirOptions) {
  EXPECT_THAT(
      Script("zsh"),
      AllOf(HasSubstr("\n        'metrics:Step metrics of a job; -o json\\: an object a line'\n"),
            HasSubstr(" '--release-host[save it and give its host memory back too]'"
                      " '1:job:_megatrain_jobs' ;;\n"),
            HasSubstr("'--output[how results are written]:value:(table json yaml)'"),
            HasSubstr("or unix\\:/run/megatrain/megatrain.sock]:value:'"),
            HasSubstr("'--out[an empty or new directory on the daemon'\\''s machine]"
                      ":value:_files -/'"),
            HasSubstr(" '1:job file:_files' ;;\n"), HasSubstr(" '1:argument:(ls use add)' ;;\n")));
}

// bash makes three words of --output=json.
TEST_F(CompletionCommandTest, BashCompletesTheValueBehindAnEqualsSign) {
  const std::string script = directory_.path() + "/test.bash", out = directory_.path() + "/out";
  for (const auto& [words, expected] : {std::pair("megatrain ls --output = j", "json\n"),
                                        std::pair("megatrain ls --output =", "table\njson\nyaml\n"),
                                        std::pair("megatrain ls --state = p", "\n")}) {
    std::ofstream(script) << Script("bash") << "COMP_WORDS=(" << words << ")\n"
                          << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_megatrain\n"
                          << "printf '%s\\n' \"${COMPREPLY[@]-}\"\n";
    EXPECT_EQ(std::system(("bash -u " + script + " > " + out).c_str()), 0) << words;
    std::ifstream file(out);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), expected) << words;
  }
}

}  // namespace
}  // namespace megatrain::client
