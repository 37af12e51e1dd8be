#include "cli/views/job_view.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/command.h"
#include "cli/base/counted.h"
#include "cli/base/terminal.h"
#include "cli/views/checkpoint_view.h"
#include "common/base/enum_text.h"
#include "common/base/time_proto.h"
#include "common/process/quantity.h"
#include "common/rpc/transport_use.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

using Ranks = google::protobuf::RepeatedPtrField<v1::RankProgress>;

nlohmann::ordered_json CountsToJson(const google::protobuf::RepeatedPtrField<v1::PhaseCount>& counts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const v1::PhaseCount& count : counts) {
    json.push_back({{"phase", EnumText(count.phase())}, {"ranks", count.ranks()}, {"late", count.late()}});
  }
  return json;
}

// Says which transport moves bytes between machines, if the operation could use NCCL; else "". `Operation`:
// v1::Checkpoint or v1::Load.
template <typename Operation>
std::string TransportOf(const Operation& operation) {
  if (operation.exchange_transport() == v1::TRANSPORT_UNSPECIFIED) return "";
  return TransportText({{operation.exchange_transport()}, operation.nccl_refusal()});
}

template <typename Operation>
nlohmann::ordered_json TransportToJson(const Operation& operation) {
  const std::string transport = TransportOf(operation);
  return transport.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(transport);
}

// Returns whether the load asked for the latest checkpoint of a job that has none. The first start of a job does so,
// like every later one, so it is no failure.
bool FoundNothing(const v1::Load& load) {
  return load.state() == v1::Phase::FAILED && !load.has_step() &&
         HasReason(StatusFromProto(load.error()), Reason::kNotCommitted);
}

nlohmann::ordered_json LoadToJson(const v1::Load& load) {
  // The coordinator's log uses the same word.
  const std::string state = FoundNothing(load) ? "NOTHING_TO_LOAD" : EnumName(load.state());
  nlohmann::ordered_json json = {{"number", load.number()}, {"state", state}, {"step", nullptr}};
  json["reshard"] = load.reshard();
  if (!load.mirror().empty()) json["mirror"] = load.mirror();
  if (load.has_step()) json["step"] = load.step();
  json["ranks"] = RanksToJson(load.ranks());
  json["phase_counts"] = CountsToJson(load.phase_counts());
  json["bytes_done"] = load.bytes_done();
  json["bytes_total"] = load.bytes_total();
  json["transport"] = TransportToJson(load);
  json["error"] = load.has_error() && !FoundNothing(load) ? ErrorToJson(StatusFromProto(load.error())) : nullptr;
  return json;
}

// A job with more ranks than this is summarized by default.
constexpr int kWholeTable = 64;
// The maximum number of noteworthy ranks in such a summary.
constexpr int kNoteworthyRows = 20;
// The maximum number of ranks that a line names as farthest behind.
constexpr size_t kNamedBehind = 4;
constexpr absl::Duration kSilent = absl::Seconds(10);

bool IsWhole(const v1::Job& job, RanksShown shown) {
  return shown == RanksShown::kAll || (!job.ranks_left_out() && job.world_size() <= kWholeTable);
}

uint32_t AgentsOf(const v1::Job& job) { return std::max(job.agents(), static_cast<uint32_t>(job.ranks_size())); }

// Returns for example " (none of rank 3)", if agents are missing.
std::string WithoutAgent(const v1::Job& job) {
  if (job.ranks_left_out()) return "";  // the counts say how many are missing
  std::set<int> there;
  for (const v1::JobRank& rank : job.ranks()) there.insert(static_cast<int>(rank.rank()));
  std::vector<int> missing;
  for (int rank = 0; rank < static_cast<int>(job.world_size()); ++rank) {
    if (!there.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return "";
  return absl::StrCat(" (none of ", missing.size() == 1 ? "rank " : "ranks ", JoinRanks(missing), ")");
}

// Returns for example "  staged 16380, waiting 4 (4 late)".
std::string CountsText(const google::protobuf::RepeatedPtrField<v1::PhaseCount>& counts) {
  std::string text;
  for (const v1::PhaseCount& count : counts) {
    absl::StrAppend(&text, text.empty() ? "  ranks: " : ", ", EnumText(count.phase()), " ", count.ranks(),
                    count.late() > 0 ? absl::StrCat(" (", count.late(), " late)") : "");
  }
  return text.empty() ? "" : absl::StrCat(text, "\n");
}

// Returns for example "rank 3 at 95, rank 1 at 97 and 2 more".
std::string NamesText(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamedBehind; ++i) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", names[i]);
  }
  if (names.size() > kNamedBehind) absl::StrAppend(&text, " and ", names.size() - kNamedBehind, " more");
  return text;
}

// Says how many ranks have reached the step of a save, and which are farthest behind.
std::string StepsText(const v1::Job& job) {
  const v1::Checkpoint& save = job.checkpoint();
  const bool coming = save.state() == v1::Phase::PREPARING || save.state() == v1::Phase::COLLECTING;
  if (!coming || job.ranks_left_out() || !job.has_highest_step()) return "";
  // Before the save has a step, ranks are compared with the highest step that a rank has reached.
  const int64_t goal = save.has_step() ? save.step() : job.highest_step();
  std::vector<const v1::JobRank*> behind;
  for (const v1::JobRank& rank : job.ranks()) {
    if (!rank.has_current_step() || rank.current_step() < goal) behind.push_back(&rank);
  }
  std::stable_sort(behind.begin(), behind.end(), [](const v1::JobRank* a, const v1::JobRank* b) {
    return std::tuple(a->has_current_step(), a->current_step()) < std::tuple(b->has_current_step(), b->current_step());
  });
  std::vector<std::string> names;
  names.reserve(behind.size());
  for (const v1::JobRank* rank : behind) {
    names.push_back(rank->has_current_step() ? absl::StrCat("rank ", rank->rank(), " at ", rank->current_step())
                                             : absl::StrCat("rank ", rank->rank(), " at none yet"));
  }
  const int reached = job.ranks_size() - static_cast<int>(behind.size());
  return absl::StrCat("  steps: ", reached, " of ", job.world_size(), reached == 1 ? " has" : " have", " reached ",
                      goal, names.empty() ? "" : absl::StrCat("; farthest behind: ", NamesText(names)), "\n");
}

// Names the ranks of a save that are farthest behind; "" if all have the same progress.
std::string FarthestBehindText(const Ranks& ranks) {
  std::vector<const v1::RankProgress*> order;
  for (const v1::RankProgress& rank : ranks) order.push_back(&rank);
  const auto progress = [](const v1::RankProgress* rank) {
    const double total = static_cast<double>(rank->bytes_total());
    return std::tuple(rank->phase(), total == 0 ? 0 : static_cast<double>(rank->bytes_done()) / total);
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return progress(a) < progress(b); });
  if (order.empty() || progress(order.front()) == progress(order.back())) return "";
  std::vector<std::string> names;
  for (const v1::RankProgress* rank : order) {
    if (progress(rank) == progress(order.back())) break;
    names.push_back(absl::StrCat("rank ", rank->rank(), " (", EnumText(rank->phase())));
    if (rank->bytes_total() > 0 && rank->phase() > v1::Phase::WAITING) {
      absl::StrAppend(&names.back(), ", ", FormatSize(static_cast<int64_t>(rank->bytes_done())), " of ",
                      FormatSize(static_cast<int64_t>(rank->bytes_total())));
    }
    names.back() += ")";
  }
  return absl::StrCat("  farthest behind: ", NamesText(names), "\n");
}

// Returns the late ranks, then the ranks with a note and those that have not begun.
Ranks NoteworthyRanks(const Ranks& ranks) {
  std::vector<const v1::RankProgress*> order;
  for (const v1::RankProgress& rank : ranks) {
    if (rank.late() || !rank.note().empty() || rank.phase() <= v1::Phase::WAITING) order.push_back(&rank);
  }
  std::stable_partition(order.begin(), order.end(), [](const v1::RankProgress* rank) { return rank->late(); });
  Ranks chosen;
  for (const v1::RankProgress* rank : order) {
    if (chosen.size() < kNoteworthyRows) *chosen.Add() = *rank;
  }
  return chosen;
}

// Returns for example "RANK_LATE: job: ...".
std::string ErrorText(const absl::Status& error) {
  const auto reason = ReasonOf(error);
  return absl::StrCat(reason ? absl::StrCat(std::string(InfoOf(*reason).name), ": ") : "", error.message());
}

std::string HeadText(std::FILE* stream, const v1::Job& job) {
  std::string text =
      absl::StrCat(Coloured(stream, Colour::kBold, job.job()), ": ", AgentsOf(job), " of ", job.world_size(), " agents",
                   WithoutAgent(job), ", coordinator epoch ", job.coordinator_epoch(), "\n");
  if (job.stalled_storage_calls() > 0) {
    const std::string stalled =
        absl::StrCat("storage does not answer ", job.stalled_storage_calls(), " calls of the coordinator");
    absl::StrAppend(&text, Coloured(stream, Colour::kRed, stalled), "\n");
  }
  return text;
}

// Returns whether the trainer is attached but its process does not run: it is stopped or has ended.
bool IsHalted(const v1::JobRank& rank) {
  return rank.trainer_attached() && rank.trainer_process() != v1::JobRank::RUNNING &&
         rank.trainer_process() != v1::JobRank::TRAINER_PROCESS_UNSPECIFIED;
}

// Returns for example "attached" or "stopped for 12.0 s".
std::string TrainerText(const v1::JobRank& rank) {
  if (IsHalted(rank)) {
    return absl::StrCat(EnumText(rank.trainer_process()), " for ",
                        ShortDuration(DurationOf(rank.trainer_process_age())));
  }
  if (rank.trainer_attached()) return "attached";
  return rank.trainer_process() == v1::JobRank::GONE ? "gone" : "none";
}

std::string AgoText(const google::protobuf::Duration& age) {
  return absl::StrCat(ShortDuration(DurationOf(age)), " ago");
}

std::string AgentsText(std::FILE* stream, const v1::Job& job, RanksShown shown) {
  const bool whole = IsWhole(job, shown);
  std::string text;
  if (!whole) {
    absl::StrAppend(&text, "trainers: ", job.trainers(), " attached");
    if (job.has_lowest_step()) {
      absl::StrAppend(&text, ", at step ", job.lowest_step(),
                      job.highest_step() > job.lowest_step() ? absl::StrCat(" to ", job.highest_step()) : "");
    }
    absl::StrAppend(&text, "\n");
  }
  Table agents({"RANK", "NODE", "TRAINER", "STEP", "STEPPED", "HEARD"});
  int rows = 0;
  for (const v1::JobRank& rank : job.ranks()) {
    const bool noteworthy = !rank.trainer_attached() || IsHalted(rank) || DurationOf(rank.last_heard()) > kSilent;
    if (!whole && (!noteworthy || rows >= kNoteworthyRows)) continue;
    ++rows;
    agents.Add({absl::StrCat(rank.rank()), rank.node(), TrainerText(rank),
                rank.has_current_step() ? absl::StrCat(rank.current_step()) : "",
                rank.has_current_step() ? AgoText(rank.trainer_step_age()) : "", AgoText(rank.last_heard())},
               IsHalted(rank) ? Colour::kRed : Colour::kNone);
  }
  if (whole || rows > 0) text += agents.For(stream);
  return text;
}

// Returns a line that says how to see more than this summary.
std::string MoreText(const v1::Job& job, RanksShown shown) {
  if (IsWhole(job, shown)) return "";
  return absl::StrCat("\n`cairn status ", job.job(), " --ranks` shows every rank\n");
}

template <typename Operation>
std::string TransportLine(const Operation& operation) {
  const std::string transport = TransportOf(operation);
  return transport.empty() ? "" : absl::StrCat("  transport: ", transport, "\n");
}

template <typename MakeTable>
std::string SaveText(std::FILE* stream, const v1::Job& job, MakeTable table) {
  if (!job.has_checkpoint()) return "";
  const v1::Checkpoint& save = job.checkpoint();
  std::string text = absl::StrCat("\nsave: ", ProgressText(save), "\n");
  absl::StrAppend(&text, TransportLine(save));
  if (!IsEnded(save)) {
    text += StepsText(job);
    // In a larger job the table already shows the ranks that are behind.
    if (!job.ranks_left_out()) text += FarthestBehindText(save.ranks());
    text += table(save.ranks(), save.phase_counts());
  }
  if (save.has_error()) {
    const absl::Status error = StatusFromProto(save.error());
    absl::StrAppend(&text, "  ", Coloured(stream, Colour::kRed, ErrorText(error)), NextLine(error), "\n");
  }
  text += WarningsText(save, "  ");
  return text;
}

std::string CommittedText(const v1::Job& job, const std::optional<v1::Checkpoint>& committed) {
  if (!committed.has_value()) return "\nlatest committed: none\n";
  return absl::StrCat("\nlatest committed: ", job.job(), "@", committed->step(), ", ",
                      FormatSize(static_cast<int64_t>(committed->bytes())), " by ",
                      Counted(committed->world_size(), "rank"), ", ", TimeText(committed->commit_time()),
                      committed->mirror().state() == v1::MirroredCheckpoint::ONLY_THERE ? ", only at the mirror" : "",
                      "\n");
}

template <typename MakeTable>
std::string LoadsText(const v1::Job& job, bool saved, MakeTable table) {
  std::string text = job.loads_size() > 0 ? "\n" : "";
  for (const v1::Load& load : job.loads()) {
    const bool nothing = FoundNothing(load);
    absl::StrAppend(&text, load.reshard() ? "reshard " : "load ", load.number(),
                    load.has_step() ? absl::StrCat(" of step ", load.step()) : "",
                    load.mirror().empty() ? "" : absl::StrCat(" from the mirror ", ForTerminal(load.mirror())), ": ",
                    !nothing ? EnumText(load.state())
                    : saved  ? "nothing to load: the job had no checkpoint then"
                             : "nothing to load: the job has no checkpoint yet",
                    "\n");
    if (nothing) continue;
    absl::StrAppend(&text, TransportLine(load));
    if (load.has_error()) absl::StrAppend(&text, "  ", ErrorText(StatusFromProto(load.error())), "\n");
    text += table(load.ranks(), load.phase_counts());
  }
  return text;
}

// Ranks that others wait for come first.
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
        {absl::StrCat(rank->rank()), rank->node(), EnumText(rank->phase()), SizeCell(*rank, rank->bytes_done()),
         SizeCell(*rank, rank->bytes_total()),
         rate > 0 ? absl::StrCat(FormatSize(static_cast<int64_t>(rate)), "/s") : "",
         ShortDuration(DurationOf(rank->idle())), rank->late() ? absl::StrCat("LATE ", rank->note()) : rank->note()},
        rank->late() ? Colour::kRed : Colour::kNone);
  }
  return table;
}

template <typename MakeTable>
std::string RanksText(std::FILE* stream, const Ranks& ranks,
                      const google::protobuf::RepeatedPtrField<v1::PhaseCount>& counts, bool whole, MakeTable make) {
  if (whole) return absl::StrCat(CountsText(counts), ranks.empty() ? "" : make(ranks).For(stream));
  const Ranks rows = NoteworthyRanks(ranks);
  return absl::StrCat(CountsText(counts), rows.empty() ? "" : make(rows).For(stream));
}

// Says for which ranks trainers wait in `prepare`; "" if none waits.
std::string PreparingText(const v1::Job& job) {
  if (job.layouts_awaited() == 0) return "";
  std::string ranks = absl::StrJoin(job.layout_awaited_ranks(), ", ");
  const int more = static_cast<int>(job.layouts_awaited()) - job.layout_awaited_ranks_size();
  if (more > 0) absl::StrAppend(&ranks, " and ", more, " more");
  return absl::StrCat("\nprepare: waits for ", job.layouts_awaited() == 1 ? "rank " : "ranks ", ranks, "\n");
}

}  // namespace

nlohmann::ordered_json JobToJson(const v1::Job& job, const std::optional<v1::Checkpoint>& committed) {
  using Json = nlohmann::ordered_json;
  Json json = ProgressToJson(job.checkpoint());
  json["job"] = job.job();
  if (!job.has_checkpoint()) {
    json["state"] = nullptr;
    json["phase"] = nullptr;
  }
  json["world_size"] = job.world_size();
  json["trainers"] = job.trainers();
  json["ranks_left_out"] = job.ranks_left_out();
  json["registered"] = AgentsOf(job);
  json["create_time"] = job.has_checkpoint() ? Json(TimeText(job.checkpoint().create_time())) : Json();
  json["bytes_done"] = job.checkpoint().bytes_done();
  json["bytes_total"] = job.checkpoint().bytes_total();
  json["phase_counts"] = CountsToJson(job.checkpoint().phase_counts());
  json["transport"] = TransportToJson(job.checkpoint());
  json["lowest_step"] = job.has_lowest_step() ? Json(job.lowest_step()) : Json();
  json["highest_step"] = job.has_highest_step() ? Json(job.highest_step()) : Json();
  json["layouts_awaited"] = job.layouts_awaited();
  json["layout_awaited_ranks"] = Json::array();
  for (const uint32_t rank : job.layout_awaited_ranks()) json["layout_awaited_ranks"].push_back(rank);
  json["agents"] = Json::array();
  for (const v1::JobRank& rank : job.ranks()) {
    Json agent = {{"rank", rank.rank()},
                  {"node", rank.node()},
                  {"address", rank.address()},
                  {"last_heard_seconds", absl::ToDoubleSeconds(DurationOf(rank.last_heard()))},
                  {"trainer_attached", rank.trainer_attached()}};
    const Json step = rank.has_current_step() ? Json(rank.current_step()) : Json();
    agent["current_step"] = step;
    agent["trainer_step"] = step;
    agent["trainer_step_age_seconds"] =
        rank.has_current_step() ? Json(absl::ToDoubleSeconds(DurationOf(rank.trainer_step_age()))) : Json();
    const bool known = rank.trainer_process() != v1::JobRank::TRAINER_PROCESS_UNSPECIFIED;
    agent["trainer_state"] = known ? Json(EnumText(rank.trainer_process())) : Json();
    agent["trainer_state_age_seconds"] =
        known ? Json(absl::ToDoubleSeconds(DurationOf(rank.trainer_process_age()))) : Json();
    json["agents"].push_back(std::move(agent));
  }
  json["last_committed"] = committed ? ListedToJson(*committed) : Json();
  json["stalled_storage_calls"] = job.stalled_storage_calls();
  json["loads"] = Json::array();
  for (const v1::Load& load : job.loads()) json["loads"].push_back(LoadToJson(load));
  return json;
}

std::string JobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed,
                    RanksShown shown) {
  const auto table = [&](const Ranks& ranks, const auto& counts) {
    return RanksText(stream, ranks, counts, IsWhole(job, shown), [](const Ranks& rows) { return RankTable(rows); });
  };
  return absl::StrCat(HeadText(stream, job), AgentsText(stream, job, shown), PreparingText(job),
                      SaveText(stream, job, table), CommittedText(job, committed),
                      LoadsText(job, committed.has_value(), table), MoreText(job, shown));
}

std::string LiveJobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed,
                        const TransferRates& rates, RanksShown shown) {
  const auto table = [&](const Ranks& ranks, const auto& counts) {
    return RanksText(stream, ranks, counts, IsWhole(job, shown),
                     [&](const Ranks& rows) { return LiveRankTable(rows, rates); });
  };
  std::string text = HeadText(stream, job);
  if (const double all = rates.All(); all > 0 && !job.ranks_left_out()) {
    absl::StrAppend(&text, "all ranks together: ", FormatSize(static_cast<int64_t>(all)), "/s\n");
  }
  absl::StrAppend(&text, PreparingText(job), SaveText(stream, job, table), LoadsText(job, committed.has_value(), table),
                  CommittedText(job, committed), "\n", AgentsText(stream, job, shown), MoreText(job, shown));
  return text;
}

void AppendPage(v1::Job& job, const v1::Job& page) {
  job.mutable_ranks()->MergeFrom(page.ranks());
  job.set_next_rank(page.next_rank());
  if (page.checkpoint().step() == job.checkpoint().step() &&
      page.checkpoint().attempt() == job.checkpoint().attempt() &&
      page.checkpoint().request_id() == job.checkpoint().request_id()) {
    job.mutable_checkpoint()->mutable_ranks()->MergeFrom(page.checkpoint().ranks());
  }
  for (v1::Load& load : *job.mutable_loads()) {
    for (const v1::Load& more : page.loads()) {
      if (more.number() == load.number()) load.mutable_ranks()->MergeFrom(more.ranks());
    }
  }
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
