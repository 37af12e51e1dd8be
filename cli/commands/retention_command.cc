#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "cli/client/named_step.h"
#include "cli/commands/commands.h"
#include "common/format/checkpoint_path.h"
#include "common/format/metric.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

// The coordinator answers within 8 s, unless its storage is slow.
constexpr absl::Duration kTimeout = absl::Seconds(20);

struct Arguments {
  std::string name;
  int64_t keep_last = 0;
  int64_t keep_every = 0;
  std::string keep_best;
  bool dry_run = false;
  bool off = false;
  std::string note = "cairn pin";
};

template <typename Method, typename Request, typename Response>
absl::Status Ask(const CommandContext& context, Method method, const Request& request, Response& response) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, request.job()));
  return client->Call(method, request, &response, /*patience=*/absl::ZeroDuration(), kTimeout);
}

bool HasRules(const Arguments& arguments) {
  return arguments.keep_last > 0 || arguments.keep_every > 0 || !arguments.keep_best.empty();
}

absl::StatusOr<v1::RetentionPolicy> PolicyOf(const Arguments& arguments) {
  v1::RetentionPolicy policy;
  policy.set_keep_last(arguments.keep_last);
  policy.set_keep_every(arguments.keep_every);
  if (arguments.keep_best.empty()) return policy;
  CAIRN_ASSIGN_OR_RETURN(const BestRule best, ParseBestRule(arguments.keep_best));
  policy.mutable_keep_best()->set_metric(best.metric);
  policy.mutable_keep_best()->set_highest(best.highest);
  return policy;
}

// Returns "METRIC:min" or "METRIC:max"; empty if the policy has no such rule.
std::string BestText(const v1::RetentionPolicy& policy) {
  if (!policy.has_keep_best()) return "";
  return ToString(BestRule{policy.keep_best().metric(), policy.keep_best().highest()});
}

void AddRules(Command command, const std::shared_ptr<Arguments>& arguments) {
  command.AddOption("--keep-last", arguments->keep_last, "Keep this many of the newest valid checkpoints").Positive();
  command.AddOption("--keep-every", arguments->keep_every, "Keep the steps that are multiples of this").Positive();
  command.AddOption("--keep-best", arguments->keep_best,
                    "Keep the checkpoint with the best metric: METRIC:min or METRIC:max, for example loss:min");
}

// Returns the checkpoints that a prune has certainly deleted before it failed, from its last answer and its error.
v1::PruneCheckpointsResponse DeletedBefore(const std::map<int64_t, v1::PruneCheckpointsResponse::Choice>& choices,
                                           int deleted, const absl::Status& error) {
  std::set<int64_t> steps;
  for (const auto& [step, choice] : choices) {
    if (choice.prune() && deleted-- > 0) steps.insert(step);  // they are deleted in this order
  }
  for (const absl::string_view text : absl::StrSplit(MetadataOf(error)["deleted_steps"], ',', absl::SkipEmpty())) {
    if (int64_t step = 0; absl::SimpleAtoi(text, &step)) steps.insert(step);
  }
  v1::PruneCheckpointsResponse answer;
  for (const int64_t step : steps) {
    answer.add_choices()->set_step(step);
    answer.mutable_choices()->rbegin()->set_prune(true);
  }
  return answer;
}

// Repeats the request until all chosen checkpoints are deleted (or examined, in a dry run), and shows the progress. If
// it fails, `before` says which were deleted before.
absl::StatusOr<v1::PruneCheckpointsResponse> PruneAll(const CommandContext& context,
                                                      const v1::PruneCheckpointsRequest& request,
                                                      v1::PruneCheckpointsResponse& before) {
  std::map<int64_t, v1::PruneCheckpointsResponse::Choice> choices;
  std::atomic<int> pruned = 0, left = 0;
  const std::string done = request.dry_run() ? "looked at" : "deleted";
  const ProgressLine line([&] {
    if (left == 0) return std::string();
    return absl::StrCat(request.job(), ": ", pruned - left, " of ", pruned.load(), " checkpoints ", done);
  });
  v1::PruneCheckpointsResponse answer;
  do {
    answer.Clear();
    const absl::Status status = Ask(context, &v1::CheckpointService::Stub::PruneCheckpoints, request, answer);
    if (!status.ok() && !request.dry_run()) before = DeletedBefore(choices, pruned - left, status);
    if (!status.ok() && left > 0) {
      return Annotate(status, absl::StrCat("after ", pruned - left, " of ", pruned.load(), " checkpoints of '",
                                           request.job(), "' were ", done));
    }
    CAIRN_RETURN_IF_ERROR(status);
    for (const auto& choice : answer.choices()) choices[choice.step()] = choice;
    pruned = static_cast<int>(
        std::count_if(choices.begin(), choices.end(), [](const auto& entry) { return entry.second.prune(); }));
    left = static_cast<int>(answer.steps_left());
  } while (left > 0);
  answer.clear_choices();
  for (const auto& [step, choice] : choices) *answer.add_choices() = choice;
  return answer;
}

nlohmann::ordered_json AnswerToJson(const v1::PruneCheckpointsResponse& answer, bool dry_run) {
  nlohmann::ordered_json json = {{"dry_run", dry_run},
                                 {"keep_last", answer.policy().keep_last()},
                                 {"keep_every", answer.policy().keep_every()},
                                 {"files_left", answer.files_left()},
                                 {"checkpoints", nlohmann::ordered_json::array()}};
  if (answer.policy().has_keep_best()) json["keep_best"] = BestText(answer.policy());
  for (const auto& choice : answer.choices()) {
    json["checkpoints"].push_back({{"step", choice.step()}, {"pruned", choice.prune()}, {"why", choice.why()}});
  }
  return json;
}

// Prints the checkpoints that a prune had deleted before it failed.
void PrintDeleted(const CommandContext& context, const v1::PruneCheckpointsResponse& before) {
  if (before.choices().empty()) return;
  if (context.json()) {
    nlohmann::ordered_json json = {{"complete", false}, {"checkpoints", nlohmann::ordered_json::array()}};
    for (const auto& choice : before.choices())
      json["checkpoints"].push_back({{"step", choice.step()}, {"pruned", true}});
    std::printf("%s\n", JsonText(json).c_str());
  } else {
    Table table({"STEP", ""});
    for (const auto& choice : before.choices()) table.Add({absl::StrCat(choice.step()), "deleted"}, Colour::kRed);
    table.Print(stdout);
  }
  std::fflush(stdout);  // before the error
}

absl::Status Prune(const CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobArgument(arguments.name));
  v1::PruneCheckpointsRequest request;
  request.set_job(arguments.name);
  request.set_dry_run(arguments.dry_run);
  if (HasRules(arguments)) {
    CAIRN_ASSIGN_OR_RETURN(*request.mutable_policy(), PolicyOf(arguments));
  }
  v1::PruneCheckpointsResponse before;
  const auto pruned_all = PruneAll(context, request, before);
  if (!pruned_all.ok()) {
    PrintDeleted(context, before);
    return pruned_all.status();
  }
  const v1::PruneCheckpointsResponse& answer = *pruned_all;
  if (context.json()) {
    std::printf("%s\n", JsonText(AnswerToJson(answer, arguments.dry_run)).c_str());
    return absl::OkStatus();
  }
  Table table({"STEP", arguments.dry_run ? "WOULD BE" : "", "WHY"});
  int pruned = 0;
  for (const auto& choice : answer.choices()) {
    pruned += choice.prune() ? 1 : 0;
    table.Add({absl::StrCat(choice.step()), choice.prune() ? "deleted" : "kept", choice.why()},
              choice.prune() ? Colour::kRed : Colour::kNone);
  }
  table.Print(stdout);
  std::printf("%s: %d of %d checkpoints %s deleted\n", arguments.name.c_str(), pruned, answer.choices_size(),
              arguments.dry_run ? "would be" : "were");
  if (arguments.dry_run) {
    std::printf(
        "A valid one has a manifest that reads, and all its files in their lengths; their bytes were not read.\n"
        "`cairn verify %s@STEP` reads them.\n",
        arguments.name.c_str());
  }
  if (answer.files_left()) {
    std::printf(
        "some of their files go later: when no load reads them, or when the agents of an earlier coordinator have had "
        "the time to come back\n");
  }
  return absl::OkStatus();
}

nlohmann::ordered_json PolicyToJson(const std::string& job, const v1::RetentionPolicy& policy) {
  nlohmann::ordered_json json = {{"job", job}, {"keep_last", policy.keep_last()}, {"keep_every", policy.keep_every()}};
  if (policy.has_keep_best()) json["keep_best"] = BestText(policy);
  return json;
}

// Returns the rules as their flags: "--keep-last 3 --keep-every 1000".
std::string RulesText(const v1::RetentionPolicy& policy) {
  std::vector<std::string> rules;
  if (policy.keep_last() > 0) rules.push_back(absl::StrCat("--keep-last ", policy.keep_last()));
  if (policy.keep_every() > 0) rules.push_back(absl::StrCat("--keep-every ", policy.keep_every()));
  if (policy.has_keep_best()) rules.push_back(absl::StrCat("--keep-best ", BestText(policy)));
  return absl::StrJoin(rules, " ");
}

// Shows the job's retention policy. It makes a prune that is a dry run, whose answer contains the policy.
absl::Status ShowRetention(const CommandContext& context, const std::string& job) {
  v1::PruneCheckpointsRequest request;
  request.set_job(job);
  request.set_dry_run(true);
  v1::PruneCheckpointsResponse answer;
  const absl::Status status = Ask(context, &v1::CheckpointService::Stub::PruneCheckpoints, request, answer);
  if (!HasReason(status, Reason::kBadRequest)) CAIRN_RETURN_IF_ERROR(status);  // BAD_REQUEST: the job has no policy
  const v1::RetentionPolicy& policy = answer.policy();
  if (context.json()) {
    std::printf("%s\n", JsonText(PolicyToJson(job, policy)).c_str());
    return absl::OkStatus();
  }
  if (policy.keep_last() == 0 && policy.keep_every() == 0 && !policy.has_keep_best()) {
    std::printf("%s: no rules: nothing is deleted automatically\n", job.c_str());
    return absl::OkStatus();
  }
  std::printf("%s: %s\n", job.c_str(), RulesText(policy).c_str());
  return absl::OkStatus();
}

// Returns how many checkpoints no rule of the job keeps.
absl::StatusOr<int> CountUnkept(const CommandContext& context, const std::string& job) {
  v1::PruneCheckpointsRequest request;
  request.set_job(job);
  request.set_dry_run(true);
  v1::PruneCheckpointsResponse before;
  CAIRN_ASSIGN_OR_RETURN(const v1::PruneCheckpointsResponse answer, PruneAll(context, request, before));
  return static_cast<int>(std::count_if(answer.choices().begin(), answer.choices().end(),
                                        [](const auto& choice) { return choice.prune(); }));
}

// Returns whether a checkpoint of the job has the metric of the rule, as a number by which one can be the best.
absl::StatusOr<bool> IsMetricKnown(const CommandContext& context, const std::string& job, const std::string& metric) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, job));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> listed, ListCheckpoints(*client, job));
  return std::any_of(listed.begin(), listed.end(), [&](const v1::Checkpoint& checkpoint) {
    return std::any_of(checkpoint.metrics().begin(), checkpoint.metrics().end(),
                       [&](const v1::Metric& each) { return each.name() == metric && std::isfinite(each.value()); });
  });
}

absl::Status Retention(const CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobArgument(arguments.name));
  const bool rules = HasRules(arguments);
  if (rules && arguments.off)
    return MakeError(Reason::kBadRequest, "give either rules or --off",
                     {{"next", "Omit --off to set the rules, or omit the rules to keep all checkpoints."}});
  if (!rules && !arguments.off) return ShowRetention(context, arguments.name);
  v1::SetRetentionRequest request;
  request.set_job(arguments.name);
  CAIRN_ASSIGN_OR_RETURN(*request.mutable_policy(), PolicyOf(arguments));
  v1::SetRetentionResponse answer;
  CAIRN_RETURN_IF_ERROR(Ask(context, &v1::CheckpointService::Stub::SetRetention, request, answer));
  if (arguments.off) {
    if (context.json()) {
      std::printf("%s\n", JsonText(PolicyToJson(arguments.name, request.policy())).c_str());
    } else {
      std::printf("%s: nothing is deleted automatically any more\n", arguments.name.c_str());
    }
    return absl::OkStatus();
  }
  // The rules hold, whether or not the coordinator can say now what they will delete.
  const absl::StatusOr<int> unkept = CountUnkept(context, arguments.name);
  const bool has_best = request.policy().has_keep_best();
  const std::string& metric = request.policy().keep_best().metric();
  const absl::StatusOr<bool> known = has_best ? IsMetricKnown(context, arguments.name, metric) : true;
  if (context.json()) {
    nlohmann::ordered_json json = PolicyToJson(arguments.name, request.policy());
    json["unkept"] = unkept.ok() ? nlohmann::ordered_json(*unkept) : nullptr;
    if (has_best) json["metric_known"] = known.ok() ? nlohmann::ordered_json(*known) : nullptr;
    std::printf("%s\n", JsonText(json).c_str());
    return absl::OkStatus();
  }
  std::printf("%s: %s: after each commit, checkpoints that no rule keeps are deleted\n", arguments.name.c_str(),
              RulesText(request.policy()).c_str());
  if (unkept.ok()) {
    std::printf("No rule keeps %d of the present checkpoints, so the next commit deletes %s.%s\n", *unkept,
                *unkept == 0   ? "none of them"
                : *unkept == 1 ? "it"
                               : "them",
                *unkept == 0 ? "" : absl::StrCat(" `cairn prune ", arguments.name, " --dry-run` shows which.").c_str());
  } else {
    std::printf("How many that are now is not known: %s\n", std::string(unkept.status().message()).c_str());
  }
  if (known.ok() && !*known) {
    std::printf("No checkpoint has the metric %s yet: nothing is deleted until one has it.\n", metric.c_str());
  }
  return absl::OkStatus();
}

absl::Status Pin(const CommandContext& context, const Arguments& arguments, bool pinned) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  CAIRN_ASSIGN_OR_RETURN(const int64_t step, NamedStep(*client, name, pinned ? "pin" : "unpin"));
  v1::PinCheckpointRequest request;
  request.set_job(name.job);
  request.set_step(step);
  request.set_pinned(pinned);
  request.set_note(arguments.note);
  v1::PinCheckpointResponse answer;
  CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::PinCheckpoint, request, &answer,
                                     /*patience=*/absl::ZeroDuration(), kTimeout));
  if (context.json()) {
    std::printf("%s\n",
                JsonText(nlohmann::ordered_json({{"job", name.job}, {"step", step}, {"pinned", pinned}})).c_str());
  } else {
    std::printf("%s@%lld is %s\n", name.job.c_str(), static_cast<long long>(step),
                pinned ? "pinned: it is never deleted" : "not pinned any more");
  }
  return absl::OkStatus();
}

}  // namespace

void AddPruneCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("prune", "Deletes the checkpoints of a job that its rules do not keep");
  command.AddOption("JOB", arguments->name, "The job's name").Required();
  AddRules(command, arguments);
  command.AddFlag("--dry-run", arguments->dry_run, "Only say what would be deleted");
  RefuseRootToChange(command);
  command.Footer(
      "Examples:\n  cairn prune demo --keep-last 3 --keep-every 1000 --dry-run\n"
      "  cairn prune demo --keep-last 3 --keep-best loss:min\n  cairn prune demo\n"
      "A checkpoint is kept if at least one rule keeps it. Without rules it uses those of `cairn retention`. The "
      "newest valid\ncheckpoint, damaged, pinned and tagged ones, and one that is being loaded are always kept.");
  command.Action([arguments, &context] {
    context.exit_status =
        ReportError(context, WithNames(WithOwnCoordinator(Prune(context, *arguments)), arguments->name));
  });
}

void AddRetentionCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("retention", "Shows or sets which checkpoints of a job the coordinator keeps");
  command.AddOption("JOB", arguments->name, "The job's name").Required();
  AddRules(command, arguments);
  command.AddFlag("--off", arguments->off, "Keep all checkpoints");
  RefuseRootToChange(command);
  command.Footer(
      "Examples:\n  cairn retention demo\n  cairn retention demo --keep-last 3 --keep-every 1000\n"
      "  cairn retention demo --off\nWithout flags it shows the present rules. After each commit of the job the "
      "coordinator deletes checkpoints by them, as\n`cairn prune` does.");
  command.Action([arguments, &context] {
    context.exit_status =
        ReportError(context, WithNames(WithOwnCoordinator(Retention(context, *arguments)), arguments->name));
  });
}

void AddPinCommands(Command app, CommandContext& context) {
  for (const bool pinned : {true, false}) {
    auto arguments = std::make_shared<Arguments>();
    Command command = app.AddCommand(pinned ? "pin" : "unpin", pinned ? "Keeps a checkpoint from being deleted"
                                                                      : "Lets a pinned checkpoint be deleted again");
    command.AddOption("JOB@STEP", arguments->name, "The checkpoint").Required();
    if (pinned) command.AddOption("--note", arguments->note, "The reason, for people who see the pin").ShowDefault();
    RefuseRootToChange(command);
    command.Footer(pinned ? "Example:\n  cairn pin demo@1200 --note \"in the paper\""
                          : "Example:\n  cairn unpin demo@1200");
    command.Action([arguments, pinned, &context] {
      context.exit_status =
          ReportError(context, WithNames(WithOwnCoordinator(Pin(context, *arguments, pinned)), arguments->name));
    });
  }
}

}  // namespace cairn::cli
