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

// Says how much is told of the ranks of a large job.
enum class RanksShown {
  kNoteworthy,  // how many are in which phase, and those that are worth a look
  kAll,         // all that `job` has
};

// Returns the job as people see it, with colours if `stream` takes them. The ranks stand in their order.
std::string JobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed,
                    RanksShown shown = RanksShown::kAll);

// Adds the ranks of a further page of the same job. An operation that has ended meanwhile, or another attempt, gets
// none.
void AppendPage(v1::Job& job, const v1::Job& page);

// The same for somebody who watches: what is under way comes first, with rates, and the ranks that others wait for come
// before those that wait.
std::string LiveJobText(std::FILE* stream, const v1::Job& job, const std::optional<v1::Checkpoint>& committed,
                        const TransferRates& rates, RanksShown shown = RanksShown::kAll);

// Names what is under way, for TransferRates::Update: the operation whose ranks are shown, and a number that tells it
// from others. Null if there is none.
struct ShownOperation {
  uint64_t number = 0;
  const google::protobuf::RepeatedPtrField<v1::RankProgress>* ranks = nullptr;
};
ShownOperation OperationUnderWay(const v1::Job& job);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_JOB_VIEW_H_
