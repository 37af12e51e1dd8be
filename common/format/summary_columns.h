// Converts summaries and histories of tensors to the columns that they have on the wire and on disk, and back.
#ifndef CAIRN_COMMON_FORMAT_SUMMARY_COLUMNS_H_
#define CAIRN_COMMON_FORMAT_SUMMARY_COLUMNS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "cairn/v1/summary.pb.h"
#include "common/format/tensor_history.h"
#include "common/tensor/dtype.h"
#include "common/tensor/summary.h"

namespace cairn {

void AppendSummary(const TensorSummary& summary, v1::SummaryColumns& columns);
// Returns true if each column has as many entries as `count` tensors need.
bool HasSummaries(const v1::SummaryColumns& columns, int count);
// Returns what is left of a summary in columns, whose sums are of float32.
TensorSummary AsRecorded(const TensorSummary& summary, DType dtype);
// Returns entry `index`. HasSummaries must be true for more entries.
TensorSummary SummaryAt(const v1::SummaryColumns& columns, int index, DType dtype);

template <size_t kEarlier>
void AppendHistory(const ChangeHistory<kEarlier>& history, v1::HistoryColumns& columns) {
  columns.add_changes(history.changes);
  columns.add_unchanged_saves(history.unchanged);
  columns.add_longest_unchanged_saves(history.longest_unchanged);
  columns.add_movements(history.movement);
  columns.add_last_movements(history.last_movement);
  for (const uint64_t value : history.earlier) columns.add_earlier_values(value);
  columns.add_returns(history.returns);
}

// Returns the `count` histories of the columns; nothing if a column has another length. Those of earlier versions lack
// some columns, and have zeros there.
template <size_t kEarlier>
std::optional<std::vector<ChangeHistory<kEarlier>>> HistoriesOf(const v1::HistoryColumns& columns, int count) {
  constexpr int kValues = static_cast<int>(kEarlier);
  if (columns.changes_size() != count || columns.unchanged_saves_size() != count ||
      columns.longest_unchanged_saves_size() != count || columns.movements_size() != count) {
    return std::nullopt;
  }
  const bool early =
      columns.last_movements_size() == 0 && columns.earlier_values_size() == 0 && columns.returns_size() == 0;
  if (!early && (columns.last_movements_size() != count || columns.returns_size() != count ||
                 columns.earlier_values_size() / kValues != count || columns.earlier_values_size() % kValues != 0)) {
    return std::nullopt;
  }
  std::vector<ChangeHistory<kEarlier>> histories(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    ChangeHistory<kEarlier>& history = histories[static_cast<size_t>(i)];
    history.changes = columns.changes(i);
    history.unchanged = columns.unchanged_saves(i);
    history.longest_unchanged = columns.longest_unchanged_saves(i);
    history.movement = columns.movements(i);
    if (early) continue;
    history.last_movement = columns.last_movements(i);
    for (int k = 0; k < kValues; ++k) history.earlier[static_cast<size_t>(k)] = columns.earlier_values(i * kValues + k);
    history.returns = columns.returns(i);
  }
  return histories;
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_SUMMARY_COLUMNS_H_
