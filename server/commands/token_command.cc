// megatraind token add, ls, revoke: the tokens file, edited in place. A daemon that runs takes
// notice by itself.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "server/commands/command.h"
#include "server/config/daemon_config.h"
#include "server/identity/account.h"
#include "server/identity/token_file.h"

namespace megatrain {
namespace {

struct TokenArguments {
  std::string tokens_file;
  std::string config;
  std::string user;
  std::string expires;
  std::string id;
  std::string output = "table";
};

absl::StatusOr<std::string> TokensFile(const TokenArguments& arguments) {
  if (!arguments.tokens_file.empty()) return arguments.tokens_file;
  if (arguments.config.empty()) {
    return absl::InvalidArgumentError(
        "which tokens? Name the daemon's configuration with --config, or the file with "
        "--tokens-file");
  }
  MT_ASSIGN_OR_RETURN(const DaemonConfig config, ReadDaemonConfig(arguments.config, {}));
  if (config.tokens_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.config, ": tokens_file: is not set; name a file there, as in ",
                     "tokens_file: /var/lib/megatrain/tokens"));
  }
  return config.tokens_file;
}

// "90d", "12h30m": Abseil's durations, and days.
absl::StatusOr<absl::Time> ExpiryTime(const std::string& text, absl::Time now) {
  if (text.empty()) return absl::InfiniteFuture();
  absl::Duration duration;
  int64_t days = 0;
  if (absl::EndsWith(text, "d") && absl::SimpleAtoi(text.substr(0, text.size() - 1), &days)) {
    duration = absl::Hours(24) * days;
  } else if (!absl::ParseDuration(text, &duration)) {
    duration = absl::ZeroDuration();
  }
  // A hundred years are a slip of the hand.
  if (duration < absl::Seconds(1) || duration > absl::Hours(24) * 36500) {
    return absl::InvalidArgumentError(
        absl::StrCat("--expires ", text, ": expects a time from now, as in 90d, 12h or 30m"));
  }
  return now + duration;
}

absl::Status AddToken(const TokenArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const std::string path, TokensFile(arguments));
  const absl::StatusOr<Account> account = FindAccount(arguments.user);
  if (!account.ok()) {
    return absl::Status(
        account.status().code(),
        absl::StrCat(account.status().message(),
                     "; a token stands for a local account, which its jobs run as"));
  }
  // As accounts of a domain may have.
  if (absl::c_any_of(account->name, [](unsigned char c) {
        return absl::ascii_isspace(c) || absl::ascii_iscntrl(c);
      })) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the account's name \"", absl::CHexEscape(account->name),
        "\" has white space, which a tokens file cannot hold; give its user a client certificate"));
  }
  const absl::Time now = absl::Now();
  MT_ASSIGN_OR_RETURN(const absl::Time expires, ExpiryTime(arguments.expires, now));
  MT_ASSIGN_OR_RETURN(const NewToken token, MakeToken(account->name, now, expires));
  MT_RETURN_IF_ERROR(EditTokenFile(path, [&token](std::vector<StoredToken>* tokens) {
    tokens->push_back(token.stored);
    return absl::OkStatus();
  }));
  std::fprintf(stderr,
               "megatraind: token %s of %s, expires: %s; %s holds its hash, so that it cannot be "
               "shown again\n",
               token.stored.id.c_str(), account->name.c_str(), TokenTimeText(expires).c_str(),
               path.c_str());
  std::printf("%s\n", token.text.c_str());
  return absl::OkStatus();
}

absl::Status ListTokens(const TokenArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const std::string path, TokensFile(arguments));
  absl::StatusOr<std::vector<StoredToken>> tokens = ReadTokenFile(path);
  if (absl::IsNotFound(tokens.status())) tokens = std::vector<StoredToken>();
  if (!tokens.ok()) return tokens.status();
  if (arguments.output == "json") {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const StoredToken& token : *tokens) {
      list.push_back({{"id", token.id},
                      {"user", token.user},
                      {"created", TokenTimeText(token.created)},
                      {"expires", TokenTimeText(token.expires)},
                      {"expired", token.expires <= absl::Now()}});
    }
    std::printf("%s\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return absl::OkStatus();
  }
  size_t user_width = sizeof("USER") - 1;
  for (const StoredToken& token : *tokens) user_width = std::max(user_width, token.user.size());
  const int width = static_cast<int>(user_width);
  std::printf("%-16s  %-*s  %-20s  %s\n", "ID", width, "USER", "CREATED", "EXPIRES");
  for (const StoredToken& token : *tokens) {
    std::printf("%-16s  %-*s  %-20s  %s%s\n", token.id.c_str(), width, token.user.c_str(),
                TokenTimeText(token.created).c_str(), TokenTimeText(token.expires).c_str(),
                token.expires <= absl::Now() ? " (expired)" : "");
  }
  return absl::OkStatus();
}

absl::Status RevokeToken(const TokenArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const std::string path, TokensFile(arguments));
  return EditTokenFile(path, [&](std::vector<StoredToken>* tokens) {
    const size_t erased =
        std::erase_if(*tokens, [&](const StoredToken& token) { return token.id == arguments.id; });
    if (erased > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": there is no token ", arguments.id,
                     "; `megatraind token ls` lists those there are, by their IDs"));
  });
}

CLI::App* AddAction(CLI::App* group, const std::string& name, const std::string& description,
                    const std::shared_ptr<TokenArguments>& arguments, int* exit_code,
                    absl::Status (*act)(const TokenArguments&)) {
  CLI::App* const command = group->add_subcommand(name, description);
  command
      ->add_option("--tokens-file", arguments->tokens_file,
                   "the file; else that of the configuration")
      ->type_name("FILE");
  command->add_option("--config", arguments->config, "the daemon's configuration")
      ->type_name("F.yaml");
  command->callback([=] { *exit_code = Report(act(*arguments)); });
  return command;
}

}  // namespace

void AddTokenCommands(CLI::App* app, int* exit_code) {
  const auto arguments = std::make_shared<TokenArguments>();
  CLI::App* const group =
      app->add_subcommand("token", "Tokens that callers on TCP prove themselves with");
  group->require_subcommand(1);
  CLI::App* const add = AddAction(group, "add", "Make a token for a user and print it, once",
                                  arguments, exit_code, AddToken);
  add->add_option("user", arguments->user, "a local account")->required()->type_name("USER");
  add->add_option("--expires", arguments->expires, "how long it is good, as in 90d; else for ever")
      ->type_name("DURATION");
  CLI::App* const list =
      AddAction(group, "ls", "The tokens there are", arguments, exit_code, ListTokens);
  list->add_option("-o,--output", arguments->output)
      ->type_name("table|json")
      ->check(CLI::IsMember({"table", "json"}));
  AddAction(group, "revoke", "Make a token void", arguments, exit_code, RevokeToken)
      ->add_option("id", arguments->id)
      ->required()
      ->type_name("ID");
}

}  // namespace megatrain
