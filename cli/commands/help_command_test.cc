#include "cli/commands/help_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::StrEq;

std::vector<const char*> Words(std::vector<const char*> words) {
  return WithHelpOption(static_cast<int>(words.size()), words.data());
}

TEST(HelpCommandTest, WithHelpOption_HelpOfACommand_AsksThatCommand) {
  EXPECT_THAT(Words({"cairn", "help"}), ElementsAre(StrEq("cairn"), StrEq("--help")));
  EXPECT_THAT(Words({"cairn", "help", "corpus", "bpe"}),
              ElementsAre(StrEq("cairn"), StrEq("corpus"), StrEq("bpe"), StrEq("--help")));
}

TEST(HelpCommandTest, WithHelpOption_AnotherCommand_StaysAsItIs) {
  EXPECT_THAT(Words({"cairn"}), ElementsAre(StrEq("cairn")));
  EXPECT_THAT(Words({"cairn", "save", "help"}), ElementsAre(StrEq("cairn"), StrEq("save"), StrEq("help")));
}

}  // namespace
}  // namespace cairn::cli
