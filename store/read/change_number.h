// The numbers of changes in a storage that may carry out a request late.
//
// A request to an object store may have effect after later ones were answered: the network keeps it, and whoever sent
// it has given it up, or has sent it again. So what people change is no file there that comes and goes. Each change is
// a record of its own, which is put if absent and has its number in its name, and the highest number counts. A record
// is removed only once a higher one stands. So neither a late removal nor a late record undoes a change.
#ifndef CAIRN_STORE_READ_CHANGE_NUMBER_H_
#define CAIRN_STORE_READ_CHANGE_NUMBER_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace cairn {

// In a job's directory; it holds the changes of the job's rules of retention.
inline constexpr char kRulesName[] = ".rules";

struct ChangeNumber {
  uint64_t epoch = 0;  // RootLock::epoch of who made the change
  uint64_t count = 0;  // grows within the epoch

  auto operator<=>(const ChangeNumber&) const = default;
};

// Returns the number of a change that the holder of an epoch makes at `now` (Clock::SteadyNow). It is above `last`, the
// highest number that stands, and above all that this process has used before, although some of them may not stand.
ChangeNumber NextChange(const ChangeNumber& last, uint64_t epoch, absl::Time now);

// "12-3456", and back; nothing if the text is no number in this form.
std::string ToString(const ChangeNumber& number);
std::optional<ChangeNumber> ParseChangeNumber(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_CHANGE_NUMBER_H_
