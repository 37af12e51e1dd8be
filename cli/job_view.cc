#include "cli/job_view.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/checkpoint_view.h"
#include "cli/command.h"
#include "cli/counted.h"
#include "cli/terminal.h"
#include "common/base/time_proto.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

using Ranks = google::protobuf::RepeatedPtrField<v1::RankProgress>;

nlohmann::ordered_json LoadToJson(const v1::Load& load) {
  nlohmann::ordered_json json = {
      {"number", load.number()}, {"state", v1::Load::State_Name(load.state())}, {"step", nullptr}};
  if (load.has_step()) json["step"] = load.step();
  json["ranks"] = RanksToJson(load.ranks());
  json["error"] = load.has_error() ? ErrorToJson(StatusFromProto(load.error())) : nullptr;
  return json;
}

// Returns for example " (none of rank 3)", if agents are missing.
std::string WithoutAgent(const v1::Job& job) {
  std::set<int> there;
  for (const v1::JobRank& rank : job.ranks()) there.insert(static_cast<int>(rank.rank()));
  std::vector<int> missing;
  for (int rank = 0; rank < static_cast<int>(job.world_size()); ++rank) {
    if (!there.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return "";
  return absl::StrCat(" (none of ", missing.size() == 1 ? "rank " : "ranks ", JoinRanks(missing), ")");
}

// Returns for example "RANK_LATE: job: ...".
std::string ErrorText(const absl::Status& error) {
  const auto reason = ReasonOf(error);
  return absl::StrCat(reason ? absl::StrCat(std::string(InfoOf(*reason).name), ": ") : "", error.message());
}

std::string HeadText(std::FILE* stream, const v1::Job& job) {
  std::string text =
      absl::StrCat(Coloured(stream, Colour::kBold, job.job()), ": ", job.ranks_size(), " of ", job.world_size(),
                   " agents", WithoutAgent(job), ", coordinator epoch ", job.coordinator_epoch(), "\n");
  if (job.stalled_storage_calls() > 0) {
    const std::string stalled =
        absl::StrCat("storage does not answer ", job.stalled_storage_calls(), " calls of the coordinator");
    absl::StrAppend(&text, Coloured(stream, Colour::kRed, stalled), "\n");
  }
  return text;
}

std::string AgentsText(std::FILE* stream, const v1::Job& job) {
  Table agents({"RANK", "NODE", "TRAINER", "STEP", "HEARD"});
  for (const v1::JobRank& rank : job.ranks()) {
    agents.Add({absl::StrCat(rank.rank()), rank.node(), rank.trainer_attached() ? "attached" : "none",
                rank.has_current_step() ? absl::StrCat(rank.current_step()) : "",
                absl::StrCat(ShortDuration(DurationOf(rank.last_heard())), " ago")});
  }
  return agents.For(stream);
}

// `table` makes the table of the ranks.
template <typename MakeTable>
std::string SaveText(std::FILE* stream, const v1::Job& job, MakeTable table) {
  if (!job.has_checkpoint()) return "";
  const v1::Checkpoint& save = job.checkpoint();
  std::string text = absl::StrCat("\nsave: ", ProgressText(save), "\n");
  if (!IsEnded(save) && save.ranks_size() > 0) text += table(save.ranks()).For(stream);
  if (save.has_error()) {
    const absl::Status error = StatusFromProto(save.error());
    absl::StrAppend(&text, "  ", Coloured(stream, Colour::kRed, ErrorText(error)), "\n  next: ", NextActionOf(error),
                    "\n");
  }
  if (save.has_warning()) absl::StrAppend(&text, "  ", WarningText(save), "\n");
  return text;
}

std::string CommittedText(const v1::Job& job, const std::optional<v1::Checkpoint>& committed) {
  if (!committed.has_value()) return "\nlatest committed: none\n";
  return absl::StrCat("\nlatest committed: ", job.job(), "@", committed->step(), ", ",
                      FormatSize(static_cast<int64_t>(committed->bytes())), " by ",
                      Counted(committed->world_size(), "rank"), ", ", TimeText(committed->commit_time()), "\n");
}

template <typename MakeTable>
std::string LoadsText(std::FILE* stream, const v1::Job& job, MakeTable table) {
  std::string text = job.loads_size() > 0 ? "\n" : "";
  for (const v1::Load& load : job.loads()) {
    absl::StrAppend(&text, "load ", load.number(), load.has_step() ? absl::StrCat(" of step ", load.step()) : "", ": ",
                    absl::AsciiStrToLower(v1::Load::State_Name(load.state())), "\n");
    if (!load.transport().empty()) absl::StrAppend(&text, "  transport: ", load.transport(), "\n");
    if (load.has_error()) absl::StrAppend(&text, "  ", ErrorText(StatusFromProto(load.error())), "\n");
    if (load.ranks_size() > 0) text += table(load.ranks()).For(stream);
  }
  return text;
}

// Those that the others wait for first.
Table LiveRankTable(const Ranks& ranks, const TransferRates& rates) {
  std::vector<const v1::RankProgress*> order;
  for (const v1::RankProgress& rank : ranks) order.push_back(&rank);
  const auto left = [](const v1::RankProgress& rank) { return rank.bytes_total() - rank.bytes_done(); };
  std::stable_sort(order.begin(), order.end(), [&](const v1::RankProgress* a, const v1::RankProgress* b) {
    return std::tuple(!a->late(), a->phase(), left(*b)) < std::tuple(!b->late(), b->phase(), left(*a));
  });
  Table table({"RANK", "NODE", "PHASE", "DONE", "TOTAL", "RATE", "IDLE", "NOTE"});
  for (const v1::RankProgress* rank : order) {
    const double rate = rates.Of(rank->rank());
    table.Add(
        {absl::StrCat(rank->rank()), rank->node(), absl::AsciiStrToLower(v1::RankProgress::Phase_Name(rank->phase())),
         FormatSize(static_cast<int64_t>(rank->bytes_done())), FormatSize(static_cast<int64_t>(rank->bytes_total())),
         rate > 0 ? absl::StrCat(FormatSize(static_cast<int64_t>(rate)), "/s") : "",
         ShortDuration(DurationOf(rank->idle())), rank->late() ? absl::StrCat("LATE ", rank->note()) : rank->note()},
        rank->late() ? Colour::kRed : Colour::kNone);
  }
  return table;
}

}  // namespace

nlohmann::ordered_json JobToJson(const v1::Job& job, const std::optional<v1::Checkpoint>& committed) {
  nlohmann::ordered_json json = ProgressToJson(job.checkpoint());
  json["job"] = job.job();
  if (!job.has_checkpoint()) {
    json["state"] = nullptr;
    json["phase"] = nullptr;
  }
  json["world_size"] = job.world_size();
  json["agents"] = nlohmann::ordered_json::array();
  for (const v1::JobRank& rank : job.ranks()) {
    nlohmann::ordered_json agent = {{"rank", rank.rank()},
                                    {"node", rank.node()},
                                    {"address", rank.address()},
                                    {"trainer_attached", rank.trainer_attached()}};
    agent["current_step"] = rank.has_current_step() ? nlohmann::ordered_json(rank.current_step()) : nullptr;
    json["agents"].push_back(std::move(agent));
  }
  json["last_committed"] = committed ? ListedToJson(*committed) : nlohmann::ordered_json();
  json["stalled_storage_calls"] = job.stalled_storage_calls();
  json["loads"] = nlohmann::ordered_json::array();
  for (const v1::Load& load : job.loads()) json["loads"].push_back(LoadToJson(load));
  return json;
}

std::string JobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed) {
  const auto table = [](const Ranks& ranks) { return RankTable(ranks); };
  return absl::StrCat(HeadText(stream, job), AgentsText(stream, job), SaveText(stream, job, table),
                      CommittedText(job, committed), LoadsText(stream, job, table));
}

std::string LiveJobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed,
                        const TransferRates& rates) {
  const auto table = [&](const Ranks& ranks) { return LiveRankTable(ranks, rates); };
  std::string text = HeadText(stream, job);
  if (const double all = rates.All(); all > 0) {
    absl::StrAppend(&text, "all ranks together: ", FormatSize(static_cast<int64_t>(all)), "/s\n");
  }
  absl::StrAppend(&text, SaveText(stream, job, table), LoadsText(stream, job, table), CommittedText(job, committed),
                  "\n", AgentsText(stream, job));
  return text;
}

ShownOperation OperationUnderWay(const v1::Job& job) {
  if (job.has_checkpoint() && !IsEnded(job.checkpoint())) {
    const auto step = static_cast<uint64_t>(job.checkpoint().step());
    return {2 * (step * 10000 + job.checkpoint().attempt()), &job.checkpoint().ranks()};
  }
  for (const v1::Load& load : job.loads()) {
    if (load.ranks_size() > 0) return {2 * load.number() + 1, &load.ranks()};
  }
  return {};
}

}  // namespace cairn::cli
