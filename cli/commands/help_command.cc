#include "cli/commands/help_command.h"

#include <memory>
#include <string>
#include <string_view>

namespace cairn::cli {

std::vector<const char*> WithHelpOption(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  if (words.size() < 2 || std::string_view(words[1]) != "help") return words;
  words.erase(words.begin() + 1);
  words.push_back("--help");
  return words;
}

void AddHelpCommand(Command app) {
  Command command = app.AddCommand("help", "Shows the help of a command, the same as its --help");
  auto names = std::make_shared<std::vector<std::string>>();
  command.AddOption("COMMAND", *names, "The command, for example `save` or `corpus bpe`; default: list all");
  command.Action([names] {});  // WithHelpOption has replaced the words, so this never runs
}

}  // namespace cairn::cli
