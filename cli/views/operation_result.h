// Says in one word how a save, load or reshard ended.
#ifndef CAIRN_CLI_VIEWS_OPERATION_RESULT_H_
#define CAIRN_CLI_VIEWS_OPERATION_RESULT_H_

#include <string>
#include <string_view>

#include "cairn/v1/timeline.pb.h"

namespace cairn::cli {

inline constexpr std::string_view kOperationDone = "done";
// A load asked for the latest checkpoint of a job that has none. This happens at each first start and is no failure.
inline constexpr std::string_view kNothingToLoad = "nothing";

// Returns one of these words, or the reason of the error.
std::string ResultOf(const v1::Timeline& timeline);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_OPERATION_RESULT_H_
