// megatrain context ls, use, add
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/context/context_store.h"
#include "client/output/table.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct ContextArguments {
  std::string name;
  Context context;
};

absl::StatusOr<ExitCode> List(const Invocation& invocation) {
  MT_ASSIGN_OR_RETURN(const std::string path, invocation.ContextsPath());
  MT_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(path));
  if (invocation.quiet) {
    for (const auto& [name, context] : contexts.contexts) invocation.Print(name + "\n");
  } else if (invocation.format() != OutputFormat::kTable) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& [name, context] : contexts.contexts) {
      list.push_back({{"name", name},
                      {"server", context.server},
                      {"current", name == contexts.current},
                      {"ca", context.files.ca},
                      {"certificate", context.files.certificate},
                      {"key", context.files.key},
                      {"token_file", context.files.token}});
    }
    invocation.PrintObject(list);
  } else if (contexts.contexts.empty()) {
    invocation.Note("no contexts; `megatrain context add NAME SERVER` makes one");
  } else {
    Table table({{.heading = ""}, {.heading = "NAME"}, {.heading = "SERVER", .width_min = 16}});
    for (const auto& [name, context] : contexts.contexts) {
      table.AddRow({name == contexts.current ? "*" : "", name, context.server});
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
                                  contexts.contexts.at(contexts.current).server, "\n"));
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
      return AddContext(arguments->name, arguments->context, contexts);
    });
  });
  add->add_option("name", arguments->name)->required()->type_name("NAME");
  add->add_option("address", arguments->context.server, "unix:PATH or HOST:PORT")
      ->required()
      ->type_name("SERVER");
  CredentialFiles& files = arguments->context.files;
  add->add_option("--ca", files.ca,
                  "who issues the server's certificate; else whom the system trusts")
      ->type_name("F.pem");
  add->add_option("--certificate", files.certificate,
                  "your certificate, for the daemon's client_ca")
      ->type_name("F.pem");
  add->add_option("--key", files.key, "the certificate's key")->type_name("F.pem");
  add->add_option("--token-file", files.token, "holds what `megatraind token add` printed")
      ->type_name("F");
}

}  // namespace megatrain::client
