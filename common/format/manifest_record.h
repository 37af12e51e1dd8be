// Converts a manifest to the record that an outcome holds, and back. The record consists of columns. Most numbers in
// them are differences to the entry before, because differences are small and compress well.
#ifndef CAIRN_COMMON_FORMAT_MANIFEST_RECORD_H_
#define CAIRN_COMMON_FORMAT_MANIFEST_RECORD_H_

#include "absl/status/statusor.h"
#include "cairn/v1/manifest.pb.h"
#include "common/format/manifest.h"

namespace cairn {

// Fills `record`, which must be empty.
void WriteManifestRecord(const Manifest& manifest, v1::ManifestRecord& record);

// Returns the manifest of a record. All positions are computed (Manifest::PlaceItems). The record is untrusted: lengths
// of columns, names, indices and positions are checked. DATA_LOSS (MANIFEST_CORRUPT): one of them is wrong; the message
// says which. FAILED_PRECONDITION (FORMAT_TOO_NEW): a tensor's dtype is unknown.
absl::StatusOr<Manifest> ReadManifestRecord(const v1::ManifestRecord& record);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_MANIFEST_RECORD_H_
