// Imports another program's checkpoint as a committed checkpoint.
#ifndef CAIRN_FOREIGN_IMPORT_IMPORTER_H_
#define CAIRN_FOREIGN_IMPORT_IMPORTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/format/manifest.h"
#include "foreign/tensors/whole_tensors.h"
#include "store/storage/storage.h"

namespace cairn {

struct ImportOptions {
  TensorChoice choice;
  // Bounds the memory for bytes under way, whatever the size of the model; at least 64 MiB.
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 2;
  // Called now and then, from any thread, with the bytes of tensors that are written so far, and their final number.
  std::function<void(uint64_t done, uint64_t total)> progress;
  // Called often; if it returns true the import ends.
  std::function<bool()> interrupted;
};

struct ImportReport {
  Manifest manifest;  // of the committed checkpoint
  // The names of values of which some part is stored only as a description (ImportObject::opaque).
  std::vector<std::string> opaque;
  // The names of values that were not imported, each with its type.
  std::vector<std::string> left_out;
};

// Reads `directory` (see ReadForeignDirectory) and commits it as `job`@`step` below the root. Meanwhile it holds the
// root's lock, so no coordinator serves the root. It makes an attempt, and ends it with an outcome, by the rules of a
// save: all files are durable before the manifest is put. If it fails, an abort record is put and the files are
// removed. If the process is killed, the files are removed by the coordinator or by the next attempt at the step.
//
// ALREADY_EXISTS (STEP_COMMITTED). FAILED_PRECONDITION (ROOT_IN_USE): a coordinator serves the root. DATA_LOSS
// (FILE_CHANGED): the source was written anew while it was read. CANCELLED (INTERRUPTED). RESOURCE_EXHAUSTED (NO_SPACE,
// MEMORY_LIMIT). Else as ReadForeignDirectory, MakeImportPlan, TensorReader and AttemptStore.
absl::StatusOr<ImportReport> ImportCheckpoint(Storage& storage, const std::string& directory, const std::string& job,
                                              int64_t step, const Clock& clock, const ImportOptions& options);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_IMPORT_IMPORTER_H_
