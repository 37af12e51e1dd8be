#include <cstdio>
#include <memory>
#include <string>

#include "cli/base/completion.h"
#include "cli/commands/commands.h"

namespace cairn::cli {

void AddCompletionCommand(ArgumentParser& app, CommandContext& context) {
  auto shell = std::make_shared<std::string>();
  Command command = app.AddCommand("completion", "Prints a script by which a shell completes cairn's command line");
  command.AddOption("SHELL", *shell, "bash, zsh or fish").Required().OneOf({"bash", "zsh", "fish"});
  command.Footer(
      "Examples:\n"
      "  source <(cairn completion bash)        # also in ~/.bashrc\n"
      "  source <(cairn completion zsh)         # also in ~/.zshrc, behind compinit\n"
      "  cairn completion fish > ~/.config/fish/completions/cairn.fish");
  command.Action([&app, &context, shell] {
    const CommandDescription program = app.Describe();
    const std::string script = *shell == "bash"  ? BashCompletion(program)
                               : *shell == "zsh" ? ZshCompletion(program)
                                                 : FishCompletion(program);
    std::fputs(script.c_str(), stdout);
    context.exit_status = kDone;
  });
}

}  // namespace cairn::cli
