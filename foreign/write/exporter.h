// Writes an export: reads the checkpoint, permutes and casts elements, and writes the files.
#ifndef CAIRN_FOREIGN_WRITE_EXPORTER_H_
#define CAIRN_FOREIGN_WRITE_EXPORTER_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/write/export_plan.h"
#include "foreign/write/export_writer.h"
#include "store/storage/storage.h"

namespace cairn {

// Writes the files of a plan into `directory`. Every source block that is read is verified. The room of each file is
// reserved first. Files are written under temporary names (".tmp-export-..."). Only when all are durable do they get
// their names, the index last, so a loader that uses the index never sees an incomplete export. Returns how many files
// an earlier export of the same identity had finished. If the same command may succeed later, or after a kill, finished
// files stay for the next export; other files that it has written are removed.
//
// ALREADY_EXISTS (OUTPUT_EXISTS): `directory` holds safetensors files, an index or one of the files to copy, or another
// export fills it. RESOURCE_EXHAUSTED (NO_SPACE). CANCELLED (INTERRUPTED). DATA_LOSS and UNAVAILABLE: as ItemReader and
// storage.
absl::StatusOr<size_t> WriteExport(Storage& storage, const Manifest& manifest, const ExportPlan& plan,
                                   const std::string& directory, const WriteExportOptions& options);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_EXPORTER_H_
