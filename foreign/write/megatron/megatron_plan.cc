#include "foreign/write/megatron/megatron_plan.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/dcp/dcp_directory.h"
#include "foreign/write/torch/object_value.h"

namespace cairn {
namespace {

using Kind = ObjectValue::Kind;

constexpr std::string_view kMarker =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", )"
    R"("common_backend_version": 1})";

// The dict that common.pt holds.
class CommonState {
 public:
  absl::Status Add(ObjectValue key, ObjectValue value) {
    for (size_t i = 0; i < dict_.items.size(); i += 2) {
      if (dict_.items[i] != key) continue;
      return MakeError(Reason::kNameCollision,
                       absl::StrCat("'", key.text, "' is a value, and an entry of ", std::string(kMegatronCommonName)),
                       {{"names", key.text}, {"next", "Leave the value out by --exclude."}});
    }
    if (const ObjectValue* found = FindOpaque(value)) {
      left_out_.push_back(absl::StrCat(key.text, " (", found->text, ")"));
      return absl::OkStatus();
    }
    dict_.items.push_back(std::move(key));
    dict_.items.push_back(std::move(value));
    return absl::OkStatus();
  }

  std::string Archive() const { return TorchArchiveOf(dict_); }
  std::vector<std::string> left_out() && { return std::move(left_out_); }

 private:
  ObjectValue dict_ = {.kind = Kind::kDict};
  std::vector<std::string> left_out_;
};

}  // namespace

bool IsShardedObjectName(std::string_view name) {
  static constexpr std::string_view kShard = "/shard_";
  const size_t at = name.rfind(kShard);
  if (at == std::string_view::npos || at == 0) return false;
  // The index and the size follow: numbers, joined by dots.
  std::string_view rest = name.substr(at + kShard.size());
  const size_t middle = rest.find('_');
  if (middle == std::string_view::npos) return false;
  const auto numbers = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
  };
  return numbers(rest.substr(0, middle)) && numbers(rest.substr(middle + 1));
}

absl::StatusOr<MegatronExportPlan> MakeMegatronExportPlan(const Manifest& manifest, const ExportOptions& options,
                                                          std::vector<ExportedValue> values) {
  MegatronExportPlan plan;
  CommonState common;
  std::vector<ExportedValue> sharded;
  for (ExportedValue& value : values) {
    if (IsShardedObjectName(value.name)) {
      sharded.push_back(std::move(value));
    } else if (value.name == kMegatronCommonName && value.value.kind == Kind::kDict) {
      for (size_t i = 0; i < value.value.items.size(); i += 2) {
        CAIRN_RETURN_IF_ERROR(common.Add(std::move(value.value.items[i]), std::move(value.value.items[i + 1])));
      }
    } else {
      CAIRN_RETURN_IF_ERROR(common.Add(std::move(value.path[0]), std::move(value.value)));
    }
  }
  CAIRN_RETURN_IF_ERROR(CheckNoneIsOpaque(sharded));
  CAIRN_ASSIGN_OR_RETURN(plan.dcp, MakeDcpExportPlan(manifest, options, sharded));
  plan.dcp.beside = {{std::string(kMegatronCommonName), common.Archive()},
                     {std::string(kMegatronMarkerName), std::string(kMarker)}};
  plan.left_out = std::move(common).left_out();
  return plan;
}

}  // namespace cairn
