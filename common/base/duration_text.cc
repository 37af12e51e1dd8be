#include "common/base/duration_text.h"

namespace cairn {

std::string DurationText(absl::Duration duration) {
  const absl::Duration length = absl::AbsDuration(duration);
  const absl::Duration unit = length < absl::Seconds(1)    ? absl::Milliseconds(1)
                              : length < absl::Seconds(10) ? absl::Milliseconds(100)
                                                           : absl::Seconds(1);
  return absl::FormatDuration(absl::Floor(duration + unit / 2, unit));
}

}  // namespace cairn
