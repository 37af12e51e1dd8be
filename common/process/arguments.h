// What a program of Cairn takes on its command line: declarations over CLI11.
//
// CLI11 is in its headers, which cost each file that includes them ten seconds of a compiler; only arguments.cc does.
// Handles are values that may be copied; they are valid while the ArgumentParser that they come from lives. The
// variables that options fill must live until Parse returns. Not thread-safe.
#ifndef CAIRN_COMMON_PROCESS_ARGUMENTS_H_
#define CAIRN_COMMON_PROCESS_ARGUMENTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cairn {

// An option, a flag or a positional argument, as it is being declared.
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
  // Giving both is a mistake.
  Argument& Excludes(const Argument& other);
  // Takes the value from the environment if the argument is not given. Of several calls, the last one whose variable is
  // set counts.
  Argument& FromEnvironment(const std::string& variable);
  // One value for each time that it is given, as it stands: without it "[a]" is a list.
  Argument& OneEachTime();
  // `--flag A B C`: all up to the next flag.
  Argument& TakesMany();
  // `--flag A,B` too.
  Argument& SplitAt(char delimiter);

 private:
  friend class Command;
  explicit Argument(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

// The program or one of its commands.
class Command {
 public:
  // `names`: "--long,-s", or "NAME" for a positional argument. T: bool for a flag; else std::string, an integer, or a
  // std::optional or std::vector of these (those that arguments.cc lists).
  template <typename T>
  Argument AddOption(const std::string& names, T& value, const std::string& help);
  Argument AddFlag(const std::string& names, bool& value, const std::string& help);
  Command AddCommand(const std::string& name, const std::string& help);
  // One of the commands must be given.
  void RequireCommand();
  void Footer(const std::string& text);
  // Runs within Parse when this command was given and all is well.
  void Action(std::function<void()> action);

 protected:
  explicit Command(CLI::App* app) : app_(app) {}
  CLI::App* app_;
};

class ArgumentParser : public Command {
 public:
  ArgumentParser(const std::string& name, const std::string& help, const std::string& version);
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  // Fills the variables and runs actions. Answers nothing if the program goes on, else its exit status: 0 after --help
  // and --version, 2 after "error: BAD_REQUEST: ..." and the next action on standard error, or the help of a command
  // that wants another one. An unknown command is a mistake also beside --help.
  std::optional<int> Parse(int argc, const char* const* argv);

 private:
  const std::unique_ptr<CLI::App> owned_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_ARGUMENTS_H_
