#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/client/coordinator_client.h"
#include "cli/client/named_step.h"
#include "cli/commands/commands.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

// The coordinator answers within 8 s, unless its storage is slow.
constexpr absl::Duration kTimeout = absl::Seconds(20);

struct Arguments {
  std::string name;
  std::string tag;
};

absl::Status Tag(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  CAIRN_RETURN_IF_ERROR(CheckTag(arguments.tag));
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  CAIRN_ASSIGN_OR_RETURN(const int64_t step, NamedStep(*client, name, "tag"));
  v1::TagCheckpointRequest request;
  request.set_job(name.job);
  request.set_step(step);
  request.set_name(arguments.tag);
  request.set_tagged(true);
  v1::TagCheckpointResponse answer;
  CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::TagCheckpoint, request, &answer,
                                     /*patience=*/absl::ZeroDuration(), kTimeout));
  if (context.json()) {
    const nlohmann::ordered_json json = {{"job", name.job}, {"step", step}, {"tag", arguments.tag}};
    std::printf("%s\n", JsonText(json).c_str());
  } else {
    std::printf("%s@%s is step %lld: it is never deleted while it has the tag\n", name.job.c_str(),
                arguments.tag.c_str(), static_cast<long long>(step));
  }
  return absl::OkStatus();
}

absl::Status Untag(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  if (name.tag.empty()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("say which tag to remove: ", name.job, "@NAME"),
                     {{"job", name.job}, {"next", absl::StrCat("`cairn list ", name.job, "` shows the tags.")}});
  }
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  v1::TagCheckpointRequest request;
  request.set_job(name.job);
  request.set_name(name.tag);
  v1::TagCheckpointResponse answer;
  CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::TagCheckpoint, request, &answer,
                                     /*patience=*/absl::ZeroDuration(), kTimeout));
  if (answer.untagged_steps().empty()) {
    // The error of TaggedStep names the existing tags.
    CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> listed, ListCheckpoints(*client, name.job));
    CAIRN_RETURN_IF_ERROR(TaggedStep(name, listed).status());
  }
  if (context.json()) {
    const nlohmann::ordered_json json = {
        {"job", name.job},
        {"tag", name.tag},
        {"untagged", std::vector<int64_t>(answer.untagged_steps().begin(), answer.untagged_steps().end())}};
    std::printf("%s\n", JsonText(json).c_str());
  } else {
    std::printf("%s@%s is no name of step %s any more\n", name.job.c_str(), name.tag.c_str(),
                absl::StrJoin(answer.untagged_steps(), ", ").c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddTagCommands(Command app, CommandContext& context) {
  auto tagged = std::make_shared<Arguments>();
  Command tag = app.AddCommand("tag", "Gives a checkpoint a name, which also keeps it from being deleted");
  tag.AddOption("JOB@STEP", tagged->name, "The checkpoint").Required();
  tag.AddOption("NAME", tagged->tag, "The new name: a letter, then letters, digits and ._-, at most 64 in all")
      .Required();
  RefuseRootToChange(tag);
  tag.Footer(
      "Examples:\n  cairn tag demo@1200 paper\n  cairn tag demo@latest before-the-change\n"
      "Every command then accepts demo@paper for demo@1200. It is an error if another step has the name.");
  tag.Action([tagged, &context] {
    context.exit_status = ReportError(context, WithNames(WithOwnCoordinator(Tag(context, *tagged)), tagged->name));
  });

  auto untagged = std::make_shared<Arguments>();
  Command untag = app.AddCommand("untag", "Removes a name from its checkpoint");
  untag.AddOption("JOB@NAME", untagged->name, "The job and the name").Required();
  RefuseRootToChange(untag);
  untag.Footer("Example:\n  cairn untag demo@paper\nThe checkpoint itself stays.");
  untag.Action([untagged, &context] {
    context.exit_status =
        ReportError(context, WithNames(WithOwnCoordinator(Untag(context, *untagged)), untagged->name));
  });
}

}  // namespace cairn::cli
