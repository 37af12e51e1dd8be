#include "common/status/named_ranks.h"

#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr size_t kMostBytes = 1000;

}  // namespace

std::vector<int> RanksNamedIn(const absl::Status& error) {
  std::vector<int> ranks;
  const auto metadata = MetadataOf(error);
  const auto said = metadata.find("ranks");
  if (said == metadata.end() || said->second.size() > kMostBytes) return ranks;
  for (const absl::string_view each : absl::StrSplit(said->second, ", ")) {
    int rank = 0;
    if (!absl::SimpleAtoi(each, &rank) || rank < 0) break;
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace cairn
