#include "common/process/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Answer {
  std::optional<int> exit_status;
  std::string out, err;
};

// A program that has an argument of every kind.
class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() : parser_("prog", "Does things.", "1.2.3") {
    parser_.RequireCommand();
    parser_.AddOption("--mode", mode_, "How").OneOf({"fast", "exact"}).ShowDefault();
    parser_.AddOption("--token", token_, "Secret")
        .FromEnvironment("CAIRN_TEST_SHORT")
        .FromEnvironment("CAIRN_TEST_LONG");
    Command run = parser_.AddCommand("run", "Runs");
    run.AddOption("FILE", file_, "What").Required();
    run.AddOption("--threads", threads_, "At once").Between(1, 8).ShowDefault();
    Argument size = run.AddOption("--size", size_, "Bytes").Positive();
    run.AddOption("--count", count_, "Number").Excludes(size);
    run.AddOption("--unit", unit_, "Of the size").Needs(size);
    run.AddOption("--tag", tags_, "Any text").OneEachTime();
    run.AddOption("--keys", keys_, "Names").TakesMany().SplitAt(',');
    run.AddOption("--odd", odd_, "A name").Fits([](const std::string& value) {
      return value == "odd" ? "" : "is not an odd name";
    });
    run.AddFlag("--quiet,-q", quiet_, "No words");
    run.RefuseOption("--depth", "give --threads");
    run.Footer("Example:\n  prog run x");
    run.Action([this] { ++ran_; });
    Command more = parser_.AddCommand("more", "Has commands of its own");
    more.RequireCommand();
    more.AddCommand("one", "The only one");
  }

  Answer Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "prog");
    Answer answer;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    answer.exit_status = parser_.Parse(static_cast<int>(arguments.size()), arguments.data());
    answer.out = ::testing::internal::GetCapturedStdout();
    answer.err = ::testing::internal::GetCapturedStderr();
    return answer;
  }

  void ExpectUsage(const std::vector<const char*>& arguments, const std::string& message, const std::string& next) {
    const Answer answer = Parse(arguments);
    EXPECT_EQ(answer.exit_status, 2);
    EXPECT_THAT(answer.err, StartsWith("error: BAD_REQUEST: "));
    EXPECT_THAT(answer.err, HasSubstr(message));
    EXPECT_THAT(answer.err, HasSubstr("next: See `" + next + " --help`."));
    EXPECT_EQ(answer.out, "");
    EXPECT_EQ(ran_, 0);
  }

  ArgumentParser parser_;
  std::string mode_ = "exact", token_, file_, odd_, unit_;
  int threads_ = 3;
  uint64_t size_ = 0;
  int64_t count_ = 0;
  std::vector<std::string> tags_, keys_;
  bool quiet_ = false;
  int ran_ = 0;
};

TEST_F(ArgumentsTest, Rest_StandsBehindDashes_IsTakenAsItIs) {
  std::vector<std::string> rest;
  Command other = parser_.AddCommand("wrap", "Runs another program");
  other.AddOption("--name", file_, "Name");
  parser_.TakeRest(other, rest);
  EXPECT_EQ(Parse({"wrap", "--name", "n", "--", "prog", "run", "--size=", "--name", "x", "--", "y"}).exit_status,
            std::nullopt);
  EXPECT_THAT(rest, ElementsAre("prog", "run", "--size=", "--name", "x", "--", "y"));
  EXPECT_EQ(file_, "n");
  EXPECT_EQ(ran_, 0);
}

TEST_F(ArgumentsTest, Rest_OfAnotherCommand_IsItsPositionals) {
  std::vector<std::string> rest;
  parser_.TakeRest(parser_.AddCommand("wrap", "Runs another program"), rest);
  EXPECT_EQ(Parse({"run", "--", "file"}).exit_status, std::nullopt);
  EXPECT_EQ(file_, "file");
  EXPECT_TRUE(rest.empty());
}

TEST_F(ArgumentsTest, Parse_EveryKindOfArgument_Arrives) {
  const Answer answer = Parse({"run", "x", "--threads", "8", "--size=18446744073709551615", "--tag", "[a]", "--tag=b,c",
                               "-q", "--mode", "fast", "--keys", "p", "q,r"});
  EXPECT_EQ(answer.exit_status, std::nullopt) << answer.err;
  EXPECT_EQ(file_, "x");
  EXPECT_EQ(threads_, 8);
  EXPECT_EQ(size_, UINT64_MAX);
  EXPECT_THAT(tags_, ElementsAre("[a]", "b,c"));
  EXPECT_THAT(keys_, ElementsAre("p", "q", "r"));
  EXPECT_TRUE(quiet_);
  EXPECT_EQ(mode_, "fast");  // an option of the program, given behind the command
  EXPECT_EQ(ran_, 1);
}

TEST_F(ArgumentsTest, Given_AfterParsing_IsTrueOfWhatTheCommandLineHas) {
  Command ask = parser_.AddCommand("ask", "Asks");
  const Argument many = ask.AddOption("--many", count_, "Number").ShowDefault();
  const Argument loud = ask.AddFlag("--loud", quiet_, "Many words");
  EXPECT_EQ(Parse({"ask", "--many", "0"}).exit_status, std::nullopt);
  EXPECT_TRUE(many.given());
  EXPECT_FALSE(loud.given());
}

TEST_F(ArgumentsTest, Parse_AnyMistake_NamesTheCommandWhoseHelpHelps) {
  ExpectUsage({"run"}, "FILE is required", "prog run");
  ExpectUsage({"run", "x", "--threads", "9"}, "9", "prog run");
  ExpectUsage({"run", "x", "--threads", "many"}, "many", "prog run");
  ExpectUsage({"run", "x", "--size", "0"}, "0", "prog run");
  ExpectUsage({"run", "x", "--mode=slow"}, "slow", "prog run");
  ExpectUsage({"run", "x", "--size", "1", "--count", "2"}, "excludes", "prog run");
  ExpectUsage({"run", "x", "--unit", "MiB"}, "--unit requires --size", "prog run");
  ExpectUsage({"run", "x", "--sise", "1"}, "unknown option '--sise', did you mean '--size'?", "prog run");
  ExpectUsage({"walk"}, "unknown command 'walk'; there are: run more", "prog");
  ExpectUsage({"more", "two"}, "unknown command 'two'; there are: one", "prog more");
  ExpectUsage({"run", "x", "--odd", "7"}, "--odd: '7' is not an odd name", "prog run");
}

TEST_F(ArgumentsTest, Parse_PositionalIsMissing_ShowsTheUsageAndWhereItIsFound) {
  EXPECT_EQ(Parse({"run"}).err,
            "error: BAD_REQUEST: FILE is required\n  usage: prog run [OPTIONS] FILE\n  next: See `prog run --help`.\n");
  parser_.ExplainMissing([](const std::string& name) { return name + " is found on the disk."; });
  EXPECT_THAT(Parse({"run", "--size", "1"}).err,
              HasSubstr("  next: FILE is found on the disk. See `prog run --help`.\n"));
}

TEST_F(ArgumentsTest, Parse_UnknownCommand_TellsTheNearestAlsoBesideHelp) {
  ExpectUsage({"walk", "--help"}, "unknown command 'walk'; there are: run more", "prog");
  ExpectUsage({"more", "two", "--help"}, "unknown command 'two'; there are: one", "prog more");
  ExpectUsage({"walk", "--version"}, "unknown command 'walk'", "prog");
  ExpectUsage({"rnu", "x"}, "unknown command 'rnu', did you mean 'run'?; there are: run more", "prog");
  ExpectUsage({"r"}, "unknown command 'r'; there are: run more", "prog");
}

TEST_F(ArgumentsTest, Parse_ValueIsEmpty_DoesNotTakeTheNextArgument) {
  ExpectUsage({"--mode=", "run", "x"}, "--mode= has no value", "prog");
}

TEST_F(ArgumentsTest, Parse_CommandThatWantsAnother_ShowsItsHelp) {
  const Answer answer = Parse({"more"});
  EXPECT_EQ(answer.exit_status, 2);
  EXPECT_THAT(answer.err, HasSubstr("Usage: prog more "));
  EXPECT_THAT(answer.err, HasSubstr("The only one"));
}

TEST_F(ArgumentsTest, Parse_HelpAndVersion_EndWell) {
  const Answer help = Parse({"run", "--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, HasSubstr("prog run x"));
  EXPECT_THAT(help.out, HasSubstr("3"));
  const Answer version = Parse({"--version"});
  EXPECT_EQ(version.exit_status, 0);
  EXPECT_EQ(version.out, "1.2.3\n");
  EXPECT_EQ(ran_, 0);
}

TEST(ArgumentsSettingTest, Parse_ASettingIsNotGiven_ReadsTheVariableOfItsName) {
  setenv("CAIRN_TEST_BUDGET", "7GiB", 1);
  setenv("CAIRN_TEST_OPEN", "true", 1);
  ArgumentParser parser("prog", "", "");
  std::string budget = "0";
  bool open = false;
  parser.AddSetting("--test-budget", budget, "");
  parser.AddSetting("--test-open", open, "");
  const char* const words[] = {"prog"};
  EXPECT_EQ(parser.Parse(1, words), std::nullopt);
  EXPECT_EQ(budget, "7GiB");
  EXPECT_TRUE(open);
  unsetenv("CAIRN_TEST_BUDGET");
  unsetenv("CAIRN_TEST_OPEN");
}

TEST_F(ArgumentsTest, Parse_OptionIsNotGiven_ReadsTheEnvironment) {
  setenv("CAIRN_TEST_LONG", "long", 1);
  {
    ArgumentParser parser("prog", "", "1");
    std::string value;
    parser.AddOption("--value", value, "").FromEnvironment("CAIRN_TEST_LONG").FromEnvironment("CAIRN_TEST_UNSET");
    const char* none[] = {"prog"};
    EXPECT_EQ(parser.Parse(1, none), std::nullopt);
    EXPECT_EQ(value, "long");
    const char* given[] = {"prog", "--value", "given"};
    EXPECT_EQ(parser.Parse(3, given), std::nullopt);
    EXPECT_EQ(value, "given");
  }
  {
    ArgumentParser parser("prog", "", "1");
    std::string value;
    parser.AddOption("--value", value, "").FromEnvironment("CAIRN_TEST_LONG").Fits([](const std::string&) {
      return "is not short";
    });
    const char* none[] = {"prog"};
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(parser.Parse(1, none), 2);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--value: 'long' is not short"));
  }
  unsetenv("CAIRN_TEST_LONG");
}

TEST_F(ArgumentsTest, Describe_AllThatWasDeclared_HasCommandsOptionsAndValues) {
  const CommandDescription program = parser_.Describe();
  EXPECT_EQ(program.name, "prog");
  ASSERT_EQ(program.commands.size(), 2U);
  const CommandDescription& run = program.commands[0];
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.help, "Runs");
  const auto find = [](const CommandDescription& command, const std::string& name) {
    for (const OptionDescription& option : command.options) {
      if (option.names.front() == name) return option;
    }
    return OptionDescription();
  };
  EXPECT_THAT(find(program, "--mode").values, ElementsAre("fast", "exact"));
  EXPECT_TRUE(find(program, "--mode").takes_value);
  EXPECT_TRUE(find(run, "FILE").positional);
  EXPECT_THAT(find(run, "--quiet").names, ElementsAre("--quiet", "-q"));
  EXPECT_FALSE(find(run, "--quiet").takes_value);
  EXPECT_TRUE(find(run, "--threads").takes_value);
  EXPECT_TRUE(find(run, "--threads").values.empty()) << "a range is no list";
  ASSERT_EQ(program.commands[1].commands.size(), 1U);
  EXPECT_EQ(program.commands[1].commands[0].name, "one");
}

TEST_F(ArgumentsTest, Parse_WhatIsWrongHasControlCharacters_TheyAreShownAndNotObeyed) {
  ExpectUsage({"run", "x", "--odd", "e\033[2J\x9b"}, "'e\\x1b[2J\\x9b' is not an odd name", "prog run");
  ExpectUsage({"run", "x", "--si\033cze", "1"}, "unknown option '--si\\x1bcze'", "prog run");
  ExpectUsage({"\033]0;title\a"}, "unknown command '\\x1b]0;title\\x07'", "prog");
}

TEST_F(ArgumentsTest, RefusedOption_IsGiven_SaysWhatToDoInstead) {
  ExpectUsage({"run", "x", "--depth", "3"}, "--depth is no option of this command: give --threads", "prog run");
  ExpectUsage({"run", "--depth=3", "x"}, "--depth is no option of this command: give --threads", "prog run");
  EXPECT_EQ(ran_, 0);
}

TEST_F(ArgumentsTest, RefusedOption_HelpAndDescription_DoNotShowIt) {
  EXPECT_EQ(Parse({"run", "--help"}).out.find("--depth"), std::string::npos);
  for (const CommandDescription& command : parser_.Describe().commands) {
    for (const OptionDescription& option : command.options) {
      EXPECT_THAT(option.names, ::testing::Not(::testing::Contains("--depth")));
    }
  }
}

}  // namespace
}  // namespace cairn
