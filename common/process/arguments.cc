#include "common/process/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/base/printable.h"

namespace cairn {
namespace {

constexpr int kUsage = 2;

std::string NameOf(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : NameOf(*parent) + " " + command.get_name();
}

int Tell(const CLI::App& command, const std::string& mistake) {
  // The message may repeat words of the command line, whose control characters must not reach the terminal.
  const std::string text =
      "error: BAD_REQUEST: " + Printable(mistake, "\n\t") + "\n  next: See `" + NameOf(command) + " --help`.\n";
  std::fputs(text.c_str(), stderr);
  return kUsage;
}

// Returns the edit distance of two words. Swapping two neighbouring characters counts as one edit.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> best(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        best[i][j] = i + j;
        continue;
      }
      best[i][j] = std::min({best[i - 1][j] + 1, best[i][j - 1] + 1, best[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        best[i][j] = std::min(best[i][j], best[i - 2][j - 2] + 1);
      }
    }
  }
  return best[a.size()][b.size()];
}

// Returns the one of `names` that was probably meant, or nothing if none is near enough.
std::string Nearest(const std::string& word, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;
  // At most two changes, and at least one letter must stay.
  size_t least = word.size() <= kLongest ? std::min<size_t>(3, word.size()) : 0;
  std::string nearest;
  for (const std::string& name : names) {
    const size_t distance = least > 0 ? Distance(word, name) : 0;
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

// Returns the options of a command and of its parent commands.
std::vector<std::string> OptionsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group().empty()) continue;  // RefuseOption
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

// Returns the first word in `rest` that looks like an option; empty if there is none.
std::string UnknownOption(const std::vector<std::string>& rest) {
  const auto found = std::find_if(rest.begin(), rest.end(),
                                  [](const std::string& word) { return word.size() > 2 && word.starts_with("--"); });
  return found == rest.end() ? "" : found->substr(0, found->find('='));
}

const CLI::App& Deepest(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

// Returns true if the word at the place of a command is no command.
bool IsUnknownCommand(const CLI::App& app) {
  return Deepest(app).get_require_subcommand_min() > 0 && !app.remaining(true).empty();
}

// Returns the name of the first positional argument that is required and was not given; empty if there is none.
std::string MissingPositional(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() && option->get_required() && option->count() == 0) return option->get_name(true);
  }
  return "";
}

// Returns for example "cairn list [OPTIONS] JOB".
std::string UsageOf(const CLI::App& command) {
  std::string usage = NameOf(command) + " [OPTIONS]";
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true) + (option->get_items_expected_max() > 1 ? "..." : "");
    usage += " " + (option->get_required() ? name : "[" + name + "]");
  }
  return usage;
}

// Reports a missing argument. `where`: where people find its value; may be empty.
int TellMissing(const CLI::App& command, const std::string& missing, const std::string& where) {
  const std::string text = "error: BAD_REQUEST: " + missing + " is required\n  usage: " + UsageOf(command) +
                           "\n  next: " + (where.empty() ? "" : where + " ") + "See `" + NameOf(command) +
                           " --help`.\n";
  std::fputs(text.c_str(), stderr);
  return kUsage;
}

int Tell(const CLI::App& app, const CLI::ParseError& error,
         const std::function<std::string(const std::string&)>& explain_missing) {
  const CLI::App* command = &Deepest(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (command->get_require_subcommand_min() > 0) {
    if (rest.empty()) {
      const CLI::App* parent = command->get_parent();
      std::fputs(command->help(parent == nullptr ? "" : NameOf(*parent)).c_str(), stderr);
      return kUsage;
    }
    const std::vector<const CLI::App*> commands = command->get_subcommands([](const CLI::App*) { return true; });
    std::vector<std::string> names;
    for (const CLI::App* known : commands) names.push_back(known->get_name());
    const std::string nearest = Nearest(rest.front(), names);
    std::string mistake = "unknown command '" + rest.front() + "'";
    if (!nearest.empty()) mistake += ", did you mean '" + nearest + "'?";
    mistake += "; there are:";
    for (const CLI::App* known : commands) mistake += " " + known->get_name();
    return Tell(*command, mistake);
  }
  // A required option may be missing because its name is misspelt.
  if (const std::string unknown = UnknownOption(rest); !unknown.empty()) {
    const std::string nearest = Nearest(unknown, OptionsOf(*command));
    if (!nearest.empty()) return Tell(*command, "unknown option '" + unknown + "', did you mean '" + nearest + "'?");
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
      return Tell(*command, "unknown option '" + unknown + "'");
    }
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    std::string missing = MissingPositional(*command);
    // CLI11 names an option only in its text: "--root is required".
    const std::string what = error.what();
    if (missing.empty() && what.starts_with("--")) missing = what.substr(0, what.find(' '));
    if (!missing.empty()) return TellMissing(*command, missing, explain_missing ? explain_missing(missing) : "");
  }
  return Tell(*command, error.what());
}

// CLI11 returns the allowed values of an option only as text: "{table,json}".
std::vector<std::string> MembersOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.rfind('{'), end = type.rfind('}');
  std::vector<std::string> members;
  if (begin == std::string::npos || end == std::string::npos || end < begin) return members;
  size_t at = begin + 1;
  while (at < end) {
    const size_t comma = std::min(type.find(',', at), end);
    members.push_back(type.substr(at, comma - at));
    at = comma + 1;
  }
  return members;
}

CommandDescription DescriptionOf(const CLI::App& app) {
  CommandDescription description{app.get_name(), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // RefuseOption
    OptionDescription& described = description.options.emplace_back();
    described.positional = option->get_positional();
    for (const std::string& name : option->get_lnames()) described.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) described.names.push_back("-" + name);
    if (described.positional) described.names = {option->get_name(true)};
    described.help = option->get_description();
    described.takes_value = option->get_items_expected_max() > 0;
    described.values = MembersOf(*option);
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    description.commands.push_back(DescriptionOf(*command));
  }
  return description;
}

}  // namespace

Argument& Argument::Required() {
  option_->required();
  return *this;
}

Argument& Argument::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Argument& Argument::OneOf(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}

Argument& Argument::Between(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Argument& Argument::Positive() {
  // CLI11's own check would print the largest double, with all its digits.
  option_->check([](const std::string& value) {
    double number = 0;
    const bool positive = CLI::detail::lexical_cast(value, number) && number > 0;
    return positive ? std::string() : "'" + value + "' is no number above 0";
  });
  return *this;
}

Argument& Argument::Fits(std::function<std::string(const std::string&)> why_not) {
  option_->check([why_not = std::move(why_not)](const std::string& value) {
    const std::string why = why_not(value);
    return why.empty() ? why : "'" + value + "' " + why;
  });
  return *this;
}

Argument& Argument::Excludes(const Argument& other) {
  option_->excludes(other.option_);
  return *this;
}

Argument& Argument::Needs(const Argument& other) {
  option_->needs(other.option_);
  return *this;
}

bool Argument::given() const { return option_->count() > 0; }

Argument& Argument::FromEnvironment(const std::string& variable) {
  if (option_->get_envname().empty() || std::getenv(option_->get_envname().c_str()) == nullptr) {
    option_->envname(variable);
  }
  return *this;
}

Argument& Argument::OneEachTime() {
  option_->expected(1)->take_all()->allow_extra_args(false);
  return *this;
}

Argument& Argument::TakesMany() {
  option_->expected(1, -1);
  return *this;
}

Argument& Argument::SplitAt(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

template <typename T>
Argument Command::AddOption(const std::string& names, T& value, const std::string& help) {
  return Argument(app_->add_option(names, value, help));
}

std::string Command::VariableOf(const std::string& flag) {
  std::string variable = "CAIRN_";
  for (const char c : flag.substr(2))
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

Argument Command::AddFlag(const std::string& names, bool& value, const std::string& help) {
  return Argument(app_->add_flag(names, value, help));
}

void Command::RefuseOption(const std::string& name, const std::string& instead) {
  app_->add_option_function<std::string>(name,
                                         [name, instead](const std::string&) {
                                           throw CLI::ValidationError(
                                               name + " is no option of this command: " + instead, kUsage);
                                         })
      ->group("");
}

Command Command::AddCommand(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}

void Command::RequireCommand() { app_->require_subcommand(1); }

void Command::Footer(const std::string& text) { app_->footer(text); }

void Command::Action(std::function<void()> action) { app_->callback(std::move(action)); }

ArgumentParser::ArgumentParser(const std::string& name, const std::string& help, const std::string& version)
    : Command(nullptr), owned_(std::make_unique<CLI::App>(help, name)) {
  app_ = owned_.get();
  app_->fallthrough();  // options of the program may follow a command
  app_->set_version_flag("--version", version);
}

ArgumentParser::~ArgumentParser() = default;

void ArgumentParser::TakeRest(const Command& command, std::vector<std::string>& rest) {
  rest_command_ = command.app_;
  rest_ = &rest;
}

void ArgumentParser::ExplainMissing(std::function<std::string(const std::string&)> explain) {
  explain_missing_ = std::move(explain);
}

CommandDescription ArgumentParser::Describe() const { return DescriptionOf(*app_); }

std::optional<int> ArgumentParser::Parse(int argc, const char* const* argv) {
  const char* const* const end = argv + argc;
  const char* const* const dashes = std::find(argv, end, std::string_view("--"));
  if (rest_ != nullptr && dashes != end && std::find(argv, dashes, rest_command_->get_name()) != dashes) {
    rest_->assign(dashes + 1, end);
    argc = static_cast<int>(dashes - argv);
  }
  for (int i = 1; i < argc; ++i) {
    // CLI11 would take the next argument for the value.
    if (const std::string_view flag = argv[i]; flag.starts_with("--") && flag.ends_with('=')) {
      return Tell(*app_, std::string(flag) + " has no value");
    }
  }
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0 && !IsUnknownCommand(*app_)) return app_->exit(error);
    const bool lacks_dashes = rest_ != nullptr && dashes == end && rest_command_->parsed() &&
                              dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    if (lacks_dashes) {
      return Tell(*rest_command_, "what `" + NameOf(*rest_command_) + "` is to run must stand behind --, as in `" +
                                      NameOf(*rest_command_) + " OPTIONS -- COMMAND ARGUMENTS`");
    }
    return Tell(*app_, error, explain_missing_);
  }
  return std::nullopt;
}

template Argument Command::AddOption(const std::string&, std::string&, const std::string&);
template Argument Command::AddOption(const std::string&, int&, const std::string&);
template Argument Command::AddOption(const std::string&, int64_t&, const std::string&);
template Argument Command::AddOption(const std::string&, uint32_t&, const std::string&);
template Argument Command::AddOption(const std::string&, uint64_t&, const std::string&);
template Argument Command::AddOption(const std::string&, std::optional<int64_t>&, const std::string&);
template Argument Command::AddOption(const std::string&, std::vector<uint32_t>&, const std::string&);
template Argument Command::AddOption(const std::string&, std::vector<std::string>&, const std::string&);

}  // namespace cairn
