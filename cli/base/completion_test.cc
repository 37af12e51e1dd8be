#include "cli/base/completion.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"

namespace cairn::cli {
namespace {

CommandDescription Program() {
  CommandDescription program{"prog", "Does things", {}, {}};
  program.options.push_back({{"--help", "-h"}, "Help", false, false, {}});
  program.options.push_back({{"--format"}, "How it's shown", true, false, {"table", "json"}});
  CommandDescription save{"save", "Saves a job's state", {}, {}};
  save.options.push_back({{"--help", "-h"}, "Help", false, false, {}});
  save.options.push_back({{"JOB"}, "The job", true, true, {}});
  save.options.push_back({{"--step"}, "The step", true, false, {}});
  save.options.push_back({{"--no-wait"}, "At once", false, false, {}});
  CommandDescription corpus{"corpus", "Data", {}, {}};
  corpus.commands.push_back({"shuffle", "Mixes", {}, {}});
  program.commands = {save, corpus};
  return program;
}

// Returns what bash offers behind these words, of which the last one is being written.
std::string Offered(const std::string& words) {
  const std::string path = absl::StrCat(testing::TempDir(), "/completion.bash");
  std::ofstream(path) << BashCompletion(Program()) << "COMP_WORDS=(" << words
                      << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_prog\n"
                      << "echo \"${COMPREPLY[*]}\"\n";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(popen(absl::StrCat("bash ", path, " 2>&1").c_str(), "r"), pclose);
  std::string offered;
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), buffer.size(), out.get()) != nullptr) offered += buffer.data();
  return offered;
}

TEST(CompletionTest, Bash_AtTheProgram_OffersCommandsAndOptions) {
  EXPECT_EQ(Offered("prog ''"), "save corpus --help -h --format\n");
  EXPECT_EQ(Offered("prog s"), "save\n");
}

TEST(CompletionTest, Bash_BehindACommand_OffersItsOptionsAndThoseOfTheProgram) {
  EXPECT_EQ(Offered("prog save --"), "--help --step --no-wait --format\n");
  EXPECT_EQ(Offered("prog corpus ''"), "shuffle --format\n");
  EXPECT_EQ(Offered("prog --format json save --n"), "--no-wait\n");
}

TEST(CompletionTest, Bash_BehindAnOptionWithAValue_OffersItsValues) {
  EXPECT_EQ(Offered("prog save --format ''"), "table json\n");
  EXPECT_EQ(Offered("prog save --format j"), "json\n");
  EXPECT_EQ(Offered("prog save --step ''"), "\n") << "anything may stand there";
}

TEST(CompletionTest, Zsh_HelpWithAnApostrophe_IsQuoted) {
  const std::string script = ZshCompletion(Program());
  EXPECT_EQ(script.find("#compdef prog\n"), 0U);
  EXPECT_NE(script.find(R"('--format:How it'\''s shown')"), std::string::npos) << script;
  EXPECT_NE(script.find(R"('prog --format') compadd -- table json; return ;;)"), std::string::npos) << script;
}

TEST(CompletionTest, Fish_HelpWithAnApostrophe_IsQuoted) {
  const std::string script = FishCompletion(Program());
  EXPECT_NE(script.find(R"(-l format -x -a 'table json' -d 'How it\'s shown')"), std::string::npos) << script;
  EXPECT_NE(script.find(R"(complete -c prog -n '__prog_at \'prog corpus\'' -f -a shuffle -d 'Mixes')"),
            std::string::npos)
      << script;
}

}  // namespace
}  // namespace cairn::cli
