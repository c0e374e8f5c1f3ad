// megatrain context ls, use, add
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/context_store.h"
#include "client/output/table.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct ContextArguments {
  std::string name;
  std::string server;
};

absl::StatusOr<ExitCode> List(const Invocation& invocation) {
  MT_ASSIGN_OR_RETURN(const std::string path, invocation.ContextsPath());
  MT_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(path));
  if (invocation.quiet) {
    for (const auto& [name, server] : contexts.servers) invocation.Print(name + "\n");
  } else if (invocation.format() != OutputFormat::kTable) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& [name, server] : contexts.servers) {
      list.push_back({{"name", name}, {"server", server}, {"current", name == contexts.current}});
    }
    invocation.PrintObject(list);
  } else if (contexts.servers.empty()) {
    invocation.Note("no contexts; `megatrain context add NAME SERVER` makes one");
  } else {
    Table table({{.heading = ""}, {.heading = "NAME"}, {.heading = "SERVER", .width_min = 16}});
    for (const auto& [name, server] : contexts.servers) {
      table.AddRow({name == contexts.current ? "*" : "", name, server});
    }
    invocation.Print(table.Render(invocation.table_width(), invocation.environment().charset));
  }
  return kExitDone;
}

template <class Edit>
absl::StatusOr<ExitCode> Change(const Invocation& invocation, Edit edit) {
  MT_ASSIGN_OR_RETURN(const std::string path, invocation.ContextsPath());
  MT_ASSIGN_OR_RETURN(Contexts contexts, ReadContexts(path));
  MT_RETURN_IF_ERROR(edit(&contexts));
  MT_RETURN_IF_ERROR(WriteContexts(path, contexts));
  if (!invocation.quiet) {
    invocation.Print(absl::StrCat("the current context is ", contexts.current, ", ",
                                  contexts.servers.at(contexts.current), "\n"));
  }
  return kExitDone;
}

}  // namespace

void AddContextCommands(CLI::App* app, CommandContext context) {
  CLI::App* const group = app->add_subcommand("context", "Servers by name");
  group->fallthrough();
  group->require_subcommand(1);
  const Invocation* const invocation = context.invocation;
  AddCommand(group, "ls", "The contexts; * is the current one", context,
             [invocation] { return List(*invocation); });
  const auto arguments = std::make_shared<ContextArguments>();
  AddCommand(group, "use", "Make a context the current one", context,
             [invocation, arguments] {
               return Change(*invocation, [&](Contexts* contexts) {
                 return UseContext(arguments->name, contexts);
               });
             })
      ->add_option("name", arguments->name)
      ->required()
      ->type_name("NAME");
  CLI::App* const add = AddCommand(group, "add", "Name a server", context, [invocation, arguments] {
    return Change(*invocation, [&](Contexts* contexts) {
      return AddContext(arguments->name, arguments->server, contexts);
    });
  });
  add->add_option("name", arguments->name)->required()->type_name("NAME");
  add->add_option("address", arguments->server, "unix:PATH or HOST:PORT")
      ->required()
      ->type_name("SERVER");
}

}  // namespace megatrain::client
