// Shows a job as JSON with stable keys, and as text.
#ifndef CAIRN_CLI_VIEWS_JOB_VIEW_H_
#define CAIRN_CLI_VIEWS_JOB_VIEW_H_

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cairn/v1/checkpoint_service.pb.h"
#include "cli/views/transfer_rates.h"

namespace cairn::cli {

// `committed` is the latest committed checkpoint.
nlohmann::ordered_json JobToJson(const v1::Job& job, const std::optional<v1::Checkpoint>& committed);

// Which ranks of a large job are shown.
enum class RanksShown {
  kNoteworthy,  // counts by phase, and the ranks that are late, silent, or have a note
  kAll,         // all ranks of `job`
};

// Returns the job as text for people, with colours if `stream` supports them. The ranks are in ascending order.
std::string JobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed,
                    RanksShown shown = RanksShown::kAll);

// Adds the ranks of another page of the same job, except those of operations or attempts that `job` does not have.
void AppendPage(v1::Job& job, const v1::Job& page);

// Does the same for a live view: running operations come first, with rates. Ranks that others wait for come first.
std::string LiveJobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed,
                        const TransferRates& rates, RanksShown shown = RanksShown::kAll);

// The operation whose ranks are shown, for TransferRates::Update. `ranks` is null if no operation runs.
struct ShownOperation {
  uint64_t number = 0;
  const google::protobuf::RepeatedPtrField<v1::RankProgress>* ranks = nullptr;
};
ShownOperation OperationUnderWay(const v1::Job& job);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_JOB_VIEW_H_
