// Writes an export: reads the checkpoint, permutes and casts, and makes whole files appear.
#ifndef CAIRN_EXPORT_EXPORTER_H_
#define CAIRN_EXPORT_EXPORTER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/file/posix.h"
#include "common/format/manifest.h"
#include "export/export_plan.h"

namespace cairn {

struct WriteExportOptions {
  // For the bytes under way, whatever the size of the model; at least 64 MiB.
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 2;
  // Called now and then from any thread with the tensors' bytes that are written.
  std::function<void(uint64_t)> progress;
  // Polled; true ends the export.
  std::function<bool()> interrupted;
};

// Every source block that is read is verified. Files are written under temporary names (".tmp-export-..."), their room
// is reserved first, and only when all are durable do they get their names, the index last: a loader that goes by the
// index never sees a part. On an error everything that was written is removed again.
// ALREADY_EXISTS (OUTPUT_EXISTS): `directory` holds safetensors files or an index. RESOURCE_EXHAUSTED (NO_SPACE).
// CANCELLED (INTERRUPTED). DATA_LOSS and UNAVAILABLE as of ItemReader and storage.
absl::Status WriteExport(PosixStorage& storage, const Manifest& manifest, const ExportPlan& plan,
                         const std::string& directory, const WriteExportOptions& options);

}  // namespace cairn

#endif  // CAIRN_EXPORT_EXPORTER_H_
