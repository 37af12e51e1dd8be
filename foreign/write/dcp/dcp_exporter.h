// Writes a directory that torch.distributed.checkpoint reads.
#ifndef CAIRN_FOREIGN_WRITE_DCP_DCP_EXPORTER_H_
#define CAIRN_FOREIGN_WRITE_DCP_DCP_EXPORTER_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/write/dcp/dcp_plan.h"
#include "foreign/write/export_writer.h"
#include "store/storage/storage.h"

namespace cairn {

// Writes the files of a plan into `directory`, as WriteExport does. `.metadata` gets its name last, because PyTorch
// takes a directory without it for no checkpoint. ALREADY_EXISTS (OUTPUT_EXISTS): `directory` holds such files. Else as
// WriteExport.
absl::StatusOr<size_t> WriteDcpExport(Storage& storage, const Manifest& manifest, const DcpExportPlan& plan,
                                      const std::string& directory, const WriteExportOptions& options);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_DCP_DCP_EXPORTER_H_
