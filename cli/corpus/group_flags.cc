#include "cli/corpus/group_flags.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/corpus/input_files.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

absl::StatusOr<double> PositiveNumber(const std::string& flag, const std::string& text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number) && number > 0) return number;
  return MakeError(Reason::kBadRequest, absl::StrCat(flag, ": '", text, "' is no positive number"), {});
}

}  // namespace

void AddGroupOptions(Command command, GroupArguments& arguments) {
  const Argument group =
      command
          .AddOption("--group", arguments.groups,
                     "NAME=PATH instead of INPUT: text of a group, as of a language. Merges are chosen so that the "
                     "groups have equally many tokens. May be given several times, also for the same group")
          .OneEachTime();
  command
      .AddOption("--development", arguments.development,
                 "NAME=PATH: text of the same content in each group, in which the tokens are counted. The default is "
                 "the text of --group")
      .OneEachTime()
      .Needs(group);
  command
      .AddOption("--ratio", arguments.ratios,
                 "NAME=NUMBER: how many bytes a token of the group should have in proportion to other groups, instead "
                 "of equally many tokens")
      .OneEachTime()
      .Needs(group);
  const Argument window =
      command
          .AddOption("--window", arguments.window,
                     "With --group: a group that had too many of so many last merges has to wait. 0: none waits")
          .ShowDefault()
          .Needs(group);
  command
      .AddOption("--alpha", arguments.alpha,
                 "With --window: too many are this many times the window divided by the number of groups")
      .ShowDefault()
      .Needs(window);
  command
      .AddOption("--global-merges", arguments.together,
                 "With --group: so many merges are first chosen by all text together")
      .ShowDefault()
      .Needs(group);
}

absl::Status ReadGroupArguments(const GroupArguments& arguments, corpus::TrainOptions& options) {
  const auto find = [&](const std::string& name) {
    return std::find_if(options.groups.begin(), options.groups.end(), [&](const auto& g) { return g.name == name; });
  };
  const auto of_group = [&](const std::string& flag,
                            const std::string& text) -> absl::StatusOr<std::pair<size_t, std::string>> {
    CAIRN_ASSIGN_OR_RETURN(const auto value, NameAndValue(flag, text));
    const auto group = find(value.first);
    if (group != options.groups.end())
      return std::pair(static_cast<size_t>(group - options.groups.begin()), value.second);
    return MakeError(Reason::kBadRequest, absl::StrCat(flag, " ", text, ": no --group has this name"), {});
  };
  for (const std::string& text : arguments.groups) {
    CAIRN_ASSIGN_OR_RETURN(const auto value, NameAndValue("--group", text));
    if (find(value.first) == options.groups.end()) options.groups.push_back({value.first, {}, {}});
    CAIRN_ASSIGN_OR_RETURN(const auto files, ExpandInputs({value.second}));
    auto& inputs = find(value.first)->inputs;
    inputs.insert(inputs.end(), files.begin(), files.end());
  }
  for (const std::string& text : arguments.development) {
    CAIRN_ASSIGN_OR_RETURN(const auto value, of_group("--development", text));
    CAIRN_ASSIGN_OR_RETURN(const auto files, ExpandInputs({value.second}));
    auto& inputs = options.groups[value.first].development;
    inputs.insert(inputs.end(), files.begin(), files.end());
  }
  std::vector<double> ratios(options.groups.size());
  for (const std::string& text : arguments.ratios) {
    CAIRN_ASSIGN_OR_RETURN(const auto value, of_group("--ratio", text));
    CAIRN_ASSIGN_OR_RETURN(ratios[value.first], PositiveNumber("--ratio", value.second));
    options.parity.ratios = ratios;
  }
  if (!arguments.ratios.empty() && std::count(ratios.begin(), ratios.end(), 0.0) > 0) {
    return MakeError(Reason::kBadRequest, "not all groups have a ratio", {{"next", "Give --ratio for all or none."}});
  }
  options.parity.together = arguments.together;
  options.parity.window = arguments.window;
  CAIRN_ASSIGN_OR_RETURN(options.parity.alpha, PositiveNumber("--alpha", arguments.alpha));
  return absl::OkStatus();
}

}  // namespace cairn::cli
