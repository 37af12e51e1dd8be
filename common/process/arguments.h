// Declares and parses the command line of a Cairn program. It wraps CLI11.
//
// CLI11 adds ten seconds to the compilation of each file that includes it, so only arguments.cc does. Argument and
// Command are handles that may be copied; they are valid while their ArgumentParser lives. The variables that options
// fill must live until Parse returns. Not thread-safe.
#ifndef CAIRN_COMMON_PROCESS_ARGUMENTS_H_
#define CAIRN_COMMON_PROCESS_ARGUMENTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cairn {

// An option, a flag or a positional argument while it is being declared.
class Argument {
 public:
  Argument& Required();
  // Makes `--help` show the value that the variable has now.
  Argument& ShowDefault();
  Argument& OneOf(std::vector<std::string> values);
  Argument& Between(int64_t least, int64_t most);
  Argument& Positive();
  // A value for which `why_not` returns a text, also from the environment, is an error: the value, and that text, such
  // as "is not host:port".
  Argument& Fits(std::function<std::string(const std::string&)> why_not);
  // Makes it an error to give both arguments.
  Argument& Excludes(const Argument& other);
  // Makes it an error to give this argument without the other one.
  Argument& Needs(const Argument& other);
  // Takes the value from the environment variable if the argument is not given. This may be called several times; of
  // the variables that are set, the last one counts.
  Argument& FromEnvironment(const std::string& variable);
  // The argument may be given several times, each time with one value, which is not split ("[a]" is no list).
  Argument& OneEachTime();
  // The argument takes all values up to the next flag: `--flag A B C`.
  Argument& TakesMany();
  // Each value is split at `delimiter`: `--flag A,B`.
  Argument& SplitAt(char delimiter);

  // Says, after parsing, whether the command line or the environment has the argument.
  bool given() const;

 private:
  friend class Command;
  explicit Argument(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

// A program or one of its commands, whose arguments are being declared.
class Command {
 public:
  // Declares an argument. `names` is "--long,-s", or "NAME" for a positional argument. T is bool for a flag; else it is
  // std::string, an integer, or a std::optional or std::vector of these (arguments.cc lists them all).
  template <typename T>
  Argument AddOption(const std::string& names, T& value, const std::string& help);
  Argument AddFlag(const std::string& names, bool& value, const std::string& help);
  // Declares an option or a flag of a service. It may also be given as an environment variable, for example in a pod's
  // specification: CAIRN_MEMORY_BUDGET for "--memory-budget". `--help` shows its default.
  template <typename T>
  Argument AddSetting(const std::string& flag, T& value, const std::string& help) {
    if constexpr (std::is_same_v<T, bool>) {
      return AddFlag(flag, value, help).FromEnvironment(VariableOf(flag));
    } else {
      return AddOption(flag, value, help).FromEnvironment(VariableOf(flag)).ShowDefault();
    }
  }
  // Makes it an error to give the option `name`, which people know from other commands. The error says what to do
  // instead. Help and completions do not show the option.
  void RefuseOption(const std::string& name, const std::string& instead);
  Command AddCommand(const std::string& name, const std::string& help);
  // Makes it an error to give none of the commands.
  void RequireCommand();
  void Footer(const std::string& text);
  // Sets the function that Parse calls if this command was given and there is no error.
  void Action(std::function<void()> action);

 protected:
  friend class ArgumentParser;
  explicit Command(CLI::App* app) : app_(app) {}
  static std::string VariableOf(const std::string& flag);
  CLI::App* app_;
};

// Describes an option of a program, for shell completions and lists of commands.
struct OptionDescription {
  std::vector<std::string> names;  // "--format", "-f"; of a positional argument its name alone
  std::string help;
  bool takes_value = false;
  bool positional = false;
  std::vector<std::string> values;  // the allowed values, if OneOf was called
};
struct CommandDescription {
  std::string name;
  std::string help;
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;
};

class ArgumentParser : public Command {
 public:
  ArgumentParser(const std::string& name, const std::string& help, const std::string& version);
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  // Puts the words behind "--" into `rest` if `command` was given, unparsed: another program's command line.
  void TakeRest(const Command& command, std::vector<std::string>& rest);

  // Sets a function that explains where people find the value of an argument or option, for example "--root". If a
  // required one is missing, the error's next action begins with this explanation. `explain` may return an empty text.
  void ExplainMissing(std::function<std::string(const std::string& name)> explain);

  CommandDescription Describe() const;

  // Fills the variables and calls actions. Returns nothing if the program should continue, else its exit status: 0
  // after --help and --version; 2 after an error. It prints an error to standard error as "error: BAD_REQUEST: ...",
  // then the usage if an argument is missing, then the next action. For a command that needs another command behind it,
  // it prints the help instead. An unknown command is an error even if --help is given.
  std::optional<int> Parse(int argc, const char* const* argv);

 private:
  const std::unique_ptr<CLI::App> owned_;
  const CLI::App* rest_command_ = nullptr;
  std::vector<std::string>* rest_ = nullptr;
  std::function<std::string(const std::string&)> explain_missing_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_ARGUMENTS_H_
