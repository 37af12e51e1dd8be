#include "planner/plan_json.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/format/json_syntax.h"
#include "common/process/quantity.h"
#include "mapping/json.h"
#include "mapping/report.h"
#include "planner/layout_json.h"
#include "planner/load/load_plan.h"
#include "planner/plan_summary.h"
#include "planner/save/bins.h"
#include "planner/save/save_plan.h"
#include "planner/save/virtual_manifest.h"

namespace cairn {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr int64_t kMaxBins = 99;

PlanAnswer Failed(const FaultList& faults) {
  PlanAnswer answer;
  answer.json = ErrorsToJson(faults);
  for (const Fault& fault : faults.faults()) {
    absl::StrAppend(&answer.summary,
                    absl::string_view(InfoOf(fault.reason).name.data(), InfoOf(fault.reason).name.size()), ": ",
                    fault.message, "\n");
  }
  if (faults.total() > faults.faults().size()) {
    absl::StrAppend(&answer.summary, "and ", faults.total() - faults.faults().size(), " more\n");
  }
  return answer;
}

void BadRequest(std::string message, FaultList& faults) {
  faults.Add({Reason::kBadRequest, "", {}, {}, {}, std::move(message)});
}

// A recursive reader would overflow the stack at deep nesting. No request needs more than a few levels.
constexpr int kMaxDepth = 64;

bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Json Parse(std::string_view text, FaultList& faults) {
  if (TooDeep(text)) {
    BadRequest(absl::StrCat("the request is nested deeper than ", kMaxDepth, " levels"), faults);
    return Json(Json::value_t::discarded);
  }
  Json request = Json::parse(text, nullptr, false);
  if (request.is_discarded()) {
    BadRequest(absl::StrCat("the request is not JSON: ", JsonSyntaxError(text).value_or("a value is out of range"),
                            "; the command's --help shows one"),
               faults);
  } else if (!request.is_object()) {
    BadRequest("the request must be a JSON object; the command's --help shows one", faults);
  }
  return request;
}

int ReadBins(const Json& request, FaultList& faults) {
  const auto found = request.find("bins");
  if (found == request.end() || found->is_null()) return 2;
  if (found->is_number_integer()) {
    const auto bins = found->is_number_unsigned()
                          ? static_cast<int64_t>(std::min<uint64_t>(found->get<uint64_t>(), 1000))
                          : found->get<int64_t>();
    if (bins >= 1 && bins <= kMaxBins) return static_cast<int>(bins);
  }
  BadRequest(absl::StrCat("\"bins\" must be an integer from 1 to ", kMaxBins), faults);
  return 2;
}

uint64_t DeclaredBytes(const LayoutsFromJson& layouts, const StoredItem& item) {
  if (!item.object) return item.bytes();
  return layouts.object_bytes.at({item.name, item.object_rank.value_or(-1)});
}

Ordered Describe(const StoredItem& item) {
  Ordered json{{"name", item.name}};
  json["offset"] =
      item.object ? std::vector<int64_t>() : std::vector<int64_t>(item.box.offset.begin(), item.box.offset.end());
  json["shape"] =
      item.object ? std::vector<int64_t>() : std::vector<int64_t>(item.box.shape.begin(), item.box.shape.end());
  json["flat_range"] = item.flat ? Ordered{item.flat->begin, item.flat->end} : Ordered(nullptr);
  return json;
}

}  // namespace

PlanAnswer PlanSaveJson(std::string_view text) {
  FaultList faults;
  const Json request = Parse(text, faults);
  if (!faults.empty()) return Failed(faults);
  SaveOptions options;
  options.bins_per_rank = ReadBins(request, faults);
  const auto moves = request.find("moves");
  if (moves != request.end() && !moves->is_null()) {
    if (*moves == "auto") {
      options.moves = MovePolicy::kAuto;
    } else if (*moves != "never") {
      BadRequest("\"moves\" must be \"never\" or \"auto\"", faults);
    }
  }
  const LayoutsFromJson layouts = ReadLayouts(request, faults);
  const auto plan = MakeSavePlan(layouts.inputs, options, faults);
  if (!faults.empty() || !plan.ok()) return Failed(faults);

  PlanAnswer answer;
  answer.ok = true;
  Ordered files = Ordered::array();
  std::map<int, uint64_t> by_rank;
  for (int rank : plan->ranks()) by_rank[rank] = 0;
  uint64_t unique = 0;
  const std::vector<PlannedFileView> views = plan->Files();
  for (const PlannedFileView& file : views) {
    Ordered items = Ordered::array();
    uint64_t bytes = 0;
    for (const PlannedItem& planned : file.items) {
      Ordered item = Describe(planned.item);
      item["file_offset"] = planned.file_offset;
      item["bytes"] = DeclaredBytes(layouts, planned.item);
      item["kind"] = planned.item.object ? "object" : "tensor";
      bytes += DeclaredBytes(layouts, planned.item);
      items.push_back(std::move(item));
    }
    files.push_back({{"rank", file.rank},
                     {"bin", file.bin},
                     {"name", file.name},
                     {"items", std::move(items)},
                     {"bytes", bytes},
                     {"file_bytes", file.header_bytes + file.data_bytes}});
    by_rank[file.rank] += bytes;
    unique += bytes;
  }
  std::vector<uint64_t> rank_bytes;
  for (const auto& [rank, bytes] : by_rank) rank_bytes.push_back(bytes);
  Ordered copies = Ordered::array();
  for (const PlannedMove& move : plan->Moves()) {
    Ordered copy{{"from", move.from}, {"to", move.to}};
    copy.update(Describe(move.item));
    copy["bytes"] = move.item.bytes();
    copies.push_back(std::move(copy));
  }
  answer.summary = SummaryOf(*plan, options.moves);
  answer.json = {
      {"files", std::move(files)}, {"rank_bytes", rank_bytes}, {"copies", std::move(copies)}, {"unique_bytes", unique}};
  return answer;
}

PlanAnswer PlanLoadJson(std::string_view text) {
  FaultList faults;
  const Json request = Parse(text, faults);
  if (!faults.empty()) return Failed(faults);
  SaveOptions options;
  options.bins_per_rank = ReadBins(request, faults);
  LoadOptions load_options;
  const auto mapping = request.find("mapping");
  if (mapping != request.end() && !mapping->is_null()) {
    auto config = aoa::ParseConfig(mapping->dump(-1, ' ', false, Json::error_handler_t::replace));
    if (config.ok()) {
      load_options.mapping = std::make_shared<const aoa::Config>(*std::move(config));
    } else {
      BadRequest(std::string(config.status().message()), faults);
    }
  }
  const LayoutsFromJson source = ReadLayouts(request.value("source", Json()), faults);
  const LayoutsFromJson target = ReadLayouts(request.value("target", Json()), faults);
  if (!faults.empty()) return Failed(faults);
  const auto saved = MakeSavePlan(source.inputs, options, faults);
  if (!saved.ok()) return Failed(faults);
  Manifest manifest = VirtualManifest(*saved);
  for (ManifestObject& object : manifest.objects) {
    object.bytes = source.object_bytes.at({object.name, object.rank.value_or(-1)});
  }
  const auto plan = MakeLoadPlan(manifest, target.inputs, load_options, faults);
  if (!plan.ok()) return Failed(faults);

  PlanAnswer answer;
  answer.ok = true;
  Ordered reads = Ordered::array(), copies = Ordered::array();
  for (const LoadTotals::RankFile& read : plan->totals().reads) {
    reads.push_back({{"rank", read.rank}, {"file", manifest.files[read.file].name}, {"bytes", read.bytes}});
  }
  uint64_t copied = 0;
  for (const LoadTotals::RankPair& pair : plan->totals().copies) {
    copies.push_back({{"from", pair.from}, {"to", pair.to}, {"bytes", pair.bytes}});
    copied += pair.bytes;
  }
  answer.summary = SummaryOf(*plan);
  answer.json = {{"reads", std::move(reads)},
                 {"read_bytes", plan->unique_bytes()},
                 {"unique_bytes", plan->unique_bytes()},
                 {"copies", std::move(copies)},
                 {"copy_bytes", copied},
                 {"missing", plan->missing()},
                 {"unexpected", plan->unexpected()}};
  if (const aoa::MappingReport* report = plan->mapping_report()) {
    answer.json["matched"] = report->matched;
    answer.json["added"] = report->added;
    answer.json["removed"] = report->removed;
    Ordered groups = Ordered::array();
    for (const aoa::MappingReport::Group& group : report->groups) {
      groups.push_back({{"target", group.target},
                        {"sources", group.sources},
                        {"operation", group.operation},
                        {"count", group.count}});
    }
    answer.json["mapping"] = std::move(groups);
  }
  return answer;
}

PlanAnswer PlanBinsJson(std::string_view text) {
  FaultList faults;
  const Json request = Parse(text, faults);
  if (!faults.empty()) return Failed(faults);
  const int64_t bins =
      request.contains("bins") && request["bins"].is_number_integer() ? request["bins"].get<int64_t>() : 0;
  if (bins < 1 || bins > 1 << 20) BadRequest("\"bins\" must be an integer from 1 to 1048576", faults);
  std::vector<BinItem> items;
  std::vector<std::string> names;
  uint64_t total = 0;
  const Json list = request.value("items", Json());
  if (!list.is_array()) BadRequest("\"items\" must be a list", faults);
  for (const Json& entry : list.is_array() ? list : Json::array()) {
    const auto get = [&](const char* key) { return entry.is_object() ? entry.value(key, Json()) : Json(); };
    const Json name = get("name"), kind = get("kind"), bytes = get("bytes");
    BinItem item;
    item.object = kind == "object";
    if (!name.is_string() || (kind != "object" && kind != "tensor") ||
        !(bytes.is_number_unsigned() || (bytes.is_number_integer() && bytes.get<int64_t>() >= 0))) {
      BadRequest(absl::StrCat("item ", names.size(),
                              " needs a \"name\", a \"kind\" of \"object\" or \"tensor\", and \"bytes\" below 2^64"),
                 faults);
      names.emplace_back();
      continue;
    }
    item.bytes = bytes.get<uint64_t>();
    names.push_back(name.get<std::string>());
    if (!item.object && __builtin_add_overflow(total, item.bytes, &total)) {
      BadRequest("the tensors have 2^64 bytes or more together", faults);
      break;
    }
    items.push_back(item);
  }
  if (!faults.empty()) return Failed(faults);
  const Bins split = SplitIntoBins(items, static_cast<int>(bins));
  PlanAnswer answer;
  answer.ok = true;
  Ordered out = Ordered::array();
  for (size_t bin = 0; bin < split.items.size(); ++bin) {
    Ordered members = Ordered::array();
    for (uint32_t item : split.items[bin]) members.push_back(names[item]);
    absl::StrAppend(&answer.summary, "bin ", bin, ": ", members.size(), " items, ", split.tensor_bytes[bin],
                    " bytes\n");
    out.push_back(std::move(members));
  }
  answer.json = {{"bins", std::move(out)}, {"bytes", split.tensor_bytes}};
  return answer;
}

}  // namespace cairn
