#include "cli/views/checkpoint_view.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/base/command.h"
#include "common/base/enum_text.h"
#include "common/base/time_proto.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

std::string Name(const v1::Checkpoint& checkpoint) {
  return checkpoint.has_step() ? absl::StrCat(checkpoint.job(), "@", checkpoint.step())
                               : absl::StrCat(checkpoint.job(), " (step not agreed yet)");
}

// JSON has no infinities and no NaN. They become the strings that protobuf's JSON format uses.
nlohmann::ordered_json NumberToJson(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
}

// Returns for example "jump: ..."; an error that names no alarm by its reason.
std::string BareWarning(const google::rpc::Status& message) {
  const absl::Status warning = StatusFromProto(message);
  const Reason reason = ReasonOf(warning).value_or(Reason::kInternal);
  if (reason == Reason::kStateAlarm) return std::string(warning.message());
  const std::string alarm = MetadataOf(warning)["alarm"];
  return absl::StrCat(!alarm.empty() ? alarm : std::string(InfoOf(reason).name), ": ", warning.message());
}

std::string MirrorStateText(v1::MirroredCheckpoint::State state) {
  switch (state) {
    case v1::MirroredCheckpoint::MIRRORED:
      return "copied";
    case v1::MirroredCheckpoint::COPYING:
      return "copying";
    case v1::MirroredCheckpoint::WAITING:
      return "waits";
    case v1::MirroredCheckpoint::LEFT_OUT:
      return "-";
    case v1::MirroredCheckpoint::FAILED:
      return "failed";
    case v1::MirroredCheckpoint::ONLY_THERE:
      return "only there";
    default:
      return "unknown";
  }
}

std::string PhaseName(const v1::RankProgress& rank) { return EnumText(rank.phase()); }

}  // namespace

nlohmann::ordered_json WarningsToJson(const v1::Checkpoint& checkpoint) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const google::rpc::Status& warning : checkpoint.warnings())
    json.push_back(ErrorToJson(StatusFromProto(warning)));
  return json;
}

std::string StateName(v1::Phase::Value state) { return EnumName(state); }

bool IsEnded(const v1::Checkpoint& checkpoint) {
  switch (checkpoint.state()) {
    case v1::Phase::COMMITTED:
    case v1::Phase::ABORTED:
    case v1::Phase::DAMAGED:
    case v1::Phase::DELETED:  // retention may delete it as soon as it is committed
      return true;
    default:
      return false;
  }
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", TimeOf(time), absl::UTCTimeZone());
}

nlohmann::ordered_json ListedToJson(const v1::Checkpoint& checkpoint) {
  nlohmann::ordered_json json = {
      {"job", checkpoint.job()},
      {"step", checkpoint.step()},
      {"state", StateName(checkpoint.state())},
      {"attempt", checkpoint.attempt()},
      {"pinned", checkpoint.pinned()},
      {"tags", std::vector<std::string>(checkpoint.tags().begin(), checkpoint.tags().end())}};
  const auto add_mirror = [&] {
    if (!checkpoint.has_mirror()) return;
    const v1::MirroredCheckpoint& mirror = checkpoint.mirror();
    json["mirror"] = {{"state", mirror.state() == v1::MirroredCheckpoint::STATE_UNSPECIFIED
                                    ? "UNKNOWN"
                                    : v1::MirroredCheckpoint::State_Name(mirror.state())},
                      {"error", mirror.has_error() ? ErrorToJson(StatusFromProto(mirror.error())) : nullptr}};
  };
  if (checkpoint.state() == v1::Phase::DAMAGED) {
    json["commit_time"] = json["bytes"] = json["world_size"] = nullptr;
    json["error"] = ErrorToJson(StatusFromProto(checkpoint.error()));
    add_mirror();
    return json;
  }
  json["commit_time"] = TimeText(checkpoint.commit_time());
  json["bytes"] = checkpoint.bytes();
  json["world_size"] = checkpoint.world_size();
  json["continues_step"] =
      checkpoint.has_continues_step() ? nlohmann::ordered_json(checkpoint.continues_step()) : nullptr;
  json["metrics"] = nlohmann::ordered_json::object();
  for (const v1::Metric& metric : checkpoint.metrics()) json["metrics"][metric.name()] = NumberToJson(metric.value());
  json["warnings"] = WarningsToJson(checkpoint);
  add_mirror();
  return json;
}

nlohmann::ordered_json MirrorToJson(const v1::Mirror& mirror) {
  nlohmann::ordered_json json = {
      {"address", mirror.address()},
      {"steps_waiting", mirror.steps_waiting()},
      {"error", mirror.has_error() ? ErrorToJson(StatusFromProto(mirror.error())) : nullptr},
      {"copying_step", mirror.has_copying_step() ? nlohmann::ordered_json(mirror.copying_step()) : nullptr}};
  json["bytes_done"] = mirror.bytes_done();
  json["bytes_total"] = mirror.bytes_total();
  return json;
}

std::string MirrorText(const v1::Mirror& mirror) {
  std::string text = absl::StrCat("mirror ", ForTerminal(mirror.address()), ": ");
  if (mirror.steps_waiting() == 0) {
    absl::StrAppend(&text, mirror.has_error() ? "it may lack something" : "no step waits");
  } else {
    absl::StrAppend(&text, mirror.steps_waiting(), mirror.steps_waiting() == 1 ? " step waits" : " steps wait");
  }
  if (mirror.has_copying_step()) {
    absl::StrAppend(&text, ", step ", mirror.copying_step(), " is being copied (",
                    FormatSize(static_cast<int64_t>(mirror.bytes_done())), " of ",
                    FormatSize(static_cast<int64_t>(mirror.bytes_total())), ")");
  }
  absl::StrAppend(&text, "\n");
  if (!mirror.has_error()) return text;
  const absl::Status error = StatusFromProto(mirror.error());
  absl::StrAppend(&text, Coloured(stdout, Colour::kYellow, "it is tried again:"), " ",
                  std::string(InfoOf(ReasonOf(error).value_or(Reason::kInternal)).name), ": ",
                  ForTerminal(std::string(error.message())), NextLine(error), "\n");
  return text;
}

void PrintStanding(const v1::Checkpoint& checkpoint) {
  if (checkpoint.state() == v1::Phase::SUPERSEDED) {
    std::printf("  state      %s\n",
                Coloured(stdout, Colour::kYellow, "SUPERSEDED: the training has continued from an older step").c_str());
  }
  if (checkpoint.pinned()) std::printf("  pinned     it is never deleted\n");
  if (checkpoint.tags_size() > 0)
    std::printf("  tags       %s\n", ForTerminal(absl::StrJoin(checkpoint.tags(), ", ")).c_str());
  if (checkpoint.metrics_size() > 0) {
    const auto text = [](std::string* out, const v1::Metric& metric) {
      absl::StrAppend(out, metric.name(), " ", metric.value());
    };
    std::printf("  metrics    %s\n", ForTerminal(absl::StrJoin(checkpoint.metrics(), ", ", text)).c_str());
  }
  for (const google::rpc::Status& warning : checkpoint.warnings()) {
    std::printf("  warning    %s\n", Coloured(stdout, Colour::kYellow, ForTerminal(BareWarning(warning))).c_str());
  }
}

Table ListTable(const std::vector<v1::Checkpoint>& checkpoints) {
  const bool mirrored = std::any_of(checkpoints.begin(), checkpoints.end(),
                                    [](const v1::Checkpoint& checkpoint) { return checkpoint.has_mirror(); });
  std::vector<std::string> head = {"STEP", "STATE", "COMMITTED", "BYTES", "RANKS", "ATTEMPT", "PINNED", "TAGS"};
  if (mirrored) head.emplace_back("MIRROR");
  head.emplace_back("ERROR");
  Table table(std::move(head));
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    const bool damaged = checkpoint.state() == v1::Phase::DAMAGED;
    const bool superseded = checkpoint.state() == v1::Phase::SUPERSEDED;
    const absl::Status error = StatusFromProto(checkpoint.error());
    std::string text;
    if (checkpoint.warnings_size() > 0) {
      const auto kinds = [](std::string* out, const google::rpc::Status& warning) {
        absl::StrAppend(out, MetadataOf(StatusFromProto(warning))["alarm"]);
      };
      text = absl::StrCat(checkpoint.warnings_size() == 1 ? "alarm: " : "alarms: ",
                          absl::StrJoin(checkpoint.warnings(), ", ", kinds));
    }
    if (damaged || !error.ok()) {
      text = absl::StrCat(std::string(InfoOf(ReasonOf(error).value_or(Reason::kInternal)).name), ": ", error.message());
    }
    if (text.empty() && checkpoint.mirror().has_error()) {
      const absl::Status failed = StatusFromProto(checkpoint.mirror().error());
      text = absl::StrCat("not mirrored: ", std::string(InfoOf(ReasonOf(failed).value_or(Reason::kInternal)).name),
                          ": ", failed.message());
    }
    std::vector<std::string> row = {absl::StrCat(checkpoint.step()),
                                    StateName(checkpoint.state()),
                                    TimeText(checkpoint.commit_time()),
                                    damaged ? "" : FormatSize(static_cast<int64_t>(checkpoint.bytes())),
                                    damaged ? "" : absl::StrCat(checkpoint.world_size()),
                                    checkpoint.attempt() == 0 ? "" : absl::StrCat(checkpoint.attempt()),
                                    checkpoint.pinned() ? "pinned" : "",
                                    absl::StrJoin(checkpoint.tags(), " ")};
    if (mirrored) row.push_back(MirrorStateText(checkpoint.mirror().state()));
    row.push_back(std::move(text));
    table.Add(std::move(row), damaged                                        ? Colour::kRed
                              : superseded || checkpoint.warnings_size() > 0 ? Colour::kYellow
                                                                             : Colour::kNone);
  }
  return table;
}

nlohmann::ordered_json RanksToJson(const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const v1::RankProgress& rank : ranks) {
    json.push_back({{"rank", rank.rank()},
                    {"phase", PhaseName(rank)},
                    {"bytes_done", rank.bytes_done()},
                    {"bytes_total", rank.bytes_total()},
                    {"late", rank.late()},
                    {"idle_seconds", absl::ToDoubleSeconds(DurationOf(rank.idle()))},
                    {"node", rank.node()},
                    {"note", rank.note()}});
  }
  return json;
}

nlohmann::ordered_json ProgressToJson(const v1::Checkpoint& checkpoint) {
  nlohmann::ordered_json json;
  json["job"] = checkpoint.job();
  json["step"] = checkpoint.has_step() ? nlohmann::ordered_json(checkpoint.step()) : nullptr;
  json["state"] = StateName(checkpoint.state());
  json["attempt"] = checkpoint.attempt();
  json["phase"] = absl::AsciiStrToLower(StateName(checkpoint.state()));
  json["ranks"] = RanksToJson(checkpoint.ranks());
  json["error"] = checkpoint.has_error() ? ErrorToJson(StatusFromProto(checkpoint.error())) : nullptr;
  json["warnings"] = WarningsToJson(checkpoint);
  if (checkpoint.state() == v1::Phase::COMMITTED) {
    json["bytes"] = checkpoint.bytes();
    json["commit_time"] = TimeText(checkpoint.commit_time());
    json["data_directory"] = checkpoint.data_directory();
  }
  return json;
}

std::string SizeCell(const v1::RankProgress& rank, uint64_t bytes) {
  return rank.bytes_total() > 0 ? FormatSize(static_cast<int64_t>(bytes)) : "";
}

Table RankTable(const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks) {
  Table table({"RANK", "NODE", "PHASE", "DONE", "TOTAL", "IDLE", "NOTE"});
  for (const v1::RankProgress& rank : ranks) {
    table.Add({absl::StrCat(rank.rank()), rank.node(), PhaseName(rank), SizeCell(rank, rank.bytes_done()),
               SizeCell(rank, rank.bytes_total()), ShortDuration(DurationOf(rank.idle())),
               rank.late() ? absl::StrCat("LATE ", rank.note()) : rank.note()},
              rank.late() ? Colour::kRed : Colour::kNone);
  }
  return table;
}

std::string ProgressText(const v1::Checkpoint& checkpoint) {
  int64_t done = 0, total = 0;
  std::string late;
  for (const v1::RankProgress& rank : checkpoint.ranks()) {
    done += static_cast<int64_t>(rank.bytes_done());
    total += static_cast<int64_t>(rank.bytes_total());
    if (rank.late() && late.size() < 60) {
      absl::StrAppend(&late, late.empty() ? "; late: rank " : ", ", rank.rank(), " (", PhaseName(rank),
                      ", no progress for ", ShortDuration(DurationOf(rank.idle())), ")");
    }
  }
  // The list may not have all ranks.
  done = std::max(done, static_cast<int64_t>(checkpoint.bytes_done()));
  total = std::max(total, static_cast<int64_t>(checkpoint.bytes_total()));
  return absl::StrCat(Name(checkpoint), " ", absl::AsciiStrToLower(StateName(checkpoint.state())), " ",
                      total > 0 ? ProgressBar(done, total) : "", late,
                      checkpoint.state() == v1::Phase::COMMITTING && checkpoint.has_error()
                          ? "; storage does not answer, the outcome is unknown"
                          : "");
}

std::string WarningsText(const v1::Checkpoint& checkpoint, std::string_view indent) {
  std::string text;
  for (const google::rpc::Status& message : checkpoint.warnings()) {
    absl::StrAppend(&text, std::string(indent), Coloured(stdout, Colour::kYellow, "warning:"), " ",
                    ForTerminal(BareWarning(message)), NextLine(StatusFromProto(message)), "\n");
  }
  return text;
}

std::string NextLine(const absl::Status& error) {
  const std::string next = NextActionOf(error);
  return next.empty() ? "" : absl::StrCat("\n  next: ", ForTerminal(next));
}

}  // namespace cairn::cli
