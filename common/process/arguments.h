// Declares what a program of Cairn takes on its command line, by means of CLI11.
//
// CLI11 consists of headers that cost each file that includes them ten seconds of compilation, so only arguments.cc
// includes them. Handles are values that may be copied; they are valid while the ArgumentParser that made them lives.
// The variables that options fill must live until Parse returns. Not thread-safe.
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
  // `--help` shows what the variable held when this was called.
  Argument& ShowDefault();
  Argument& OneOf(std::vector<std::string> values);
  Argument& Between(int64_t least, int64_t most);
  Argument& Positive();
  // A value that `fits` refuses is a mistake: it "is not <form>". This holds for a value from the environment too.
  Argument& Fits(std::function<bool(const std::string&)> fits, const std::string& form);
  // Makes it a mistake to give both.
  Argument& Excludes(const Argument& other);
  // Takes the value from the environment if the argument is not given. If it is called several times, the last variable
  // counts that is set.
  Argument& FromEnvironment(const std::string& variable);
  // Takes one value each time that it is given, as it stands; otherwise "[a]" would be read as a list.
  Argument& OneEachTime();
  // Takes all values up to the next flag: `--flag A B C`.
  Argument& TakesMany();
  // Also splits each value: `--flag A,B`.
  Argument& SplitAt(char delimiter);

 private:
  friend class Command;
  explicit Argument(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

// Reads the arguments of the program, or of one of its commands.
class Command {
 public:
  // Declares an argument. `names` is "--long,-s", or "NAME" for a positional argument. T is bool for a flag; else it is
  // std::string, an integer, or a std::optional or std::vector of these (arguments.cc lists them all).
  template <typename T>
  Argument AddOption(const std::string& names, T& value, const std::string& help);
  Argument AddFlag(const std::string& names, bool& value, const std::string& help);
  // Declares an option or a flag of a service, which a pod's specification may also give as a variable of the
  // environment: "--memory-budget" is CAIRN_MEMORY_BUDGET. `--help` shows its default.
  template <typename T>
  Argument AddSetting(const std::string& flag, T& value, const std::string& help) {
    if constexpr (std::is_same_v<T, bool>) {
      return AddFlag(flag, value, help).FromEnvironment(VariableOf(flag));
    } else {
      return AddOption(flag, value, help).FromEnvironment(VariableOf(flag)).ShowDefault();
    }
  }
  // Makes it a mistake to give an option that people know from other commands, and says what to do instead. Help and
  // completions do not show it.
  void RefuseOption(const std::string& name, const std::string& instead);
  Command AddCommand(const std::string& name, const std::string& help);
  // Makes it a mistake to give none of the commands.
  void RequireCommand();
  void Footer(const std::string& text);
  // Sets what Parse runs if this command was given and there is no mistake.
  void Action(std::function<void()> action);

 protected:
  friend class ArgumentParser;
  explicit Command(CLI::App* app) : app_(app) {}
  static std::string VariableOf(const std::string& flag);
  CLI::App* app_;
};

// Describes what a program takes, for completions of shells and lists of commands.
struct OptionDescription {
  std::vector<std::string> names;  // "--format", "-f"; of a positional argument its name alone
  std::string help;
  bool takes_value = false;
  bool positional = false;
  std::vector<std::string> values;  // all that it may be, if these are few
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

  // Gives `command` what stands behind "--" as it is: the command line of another program.
  void TakeRest(const Command& command, std::vector<std::string>& rest);

  // If an argument or an option ("--root") is missing that is required, the next action begins with what `explain`
  // returns for its name: where people find the value. It may return nothing.
  void ExplainMissing(std::function<std::string(const std::string& name)> explain);

  // Describes everything that was declared until now.
  CommandDescription Describe() const;

  // Fills the variables and runs actions. Returns nothing if the program should go on, else its exit status: 0 after
  // --help and --version; 2 after it has printed "error: BAD_REQUEST: ..." and the next action on standard error (with
  // the usage between them, if an argument is missing), or the help of a command that needs another command behind it.
  // An unknown command is a mistake also beside --help.
  std::optional<int> Parse(int argc, const char* const* argv);

 private:
  const std::unique_ptr<CLI::App> owned_;
  const CLI::App* rest_command_ = nullptr;
  std::vector<std::string>* rest_ = nullptr;
  std::function<std::string(const std::string&)> explain_missing_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_ARGUMENTS_H_
