// Converts summaries and histories of tensors to the columns that they have on the wire and on disk, and back.
#ifndef CAIRN_COMMON_FORMAT_SUMMARY_COLUMNS_H_
#define CAIRN_COMMON_FORMAT_SUMMARY_COLUMNS_H_

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

void AppendHistory(const TensorHistory& history, v1::HistoryColumns& columns);
bool HasHistories(const v1::HistoryColumns& columns, int count);
TensorHistory HistoryAt(const v1::HistoryColumns& columns, int index);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_SUMMARY_COLUMNS_H_
