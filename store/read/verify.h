// Reads every byte of a committed checkpoint and compares it with what was written.
#ifndef CAIRN_STORE_READ_VERIFY_H_
#define CAIRN_STORE_READ_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/format/manifest.h"
#include "common/status/reason.h"
#include "store/storage/storage.h"

namespace cairn {

struct VerifyFault {
  Reason reason;
  std::string file;  // below the root; empty for a tensor whose fingerprint is another one than the manifest's
  // The damaged 1 MiB block begins here in the file; a truncated file ends here.
  uint64_t offset = 0;
  std::string tensor;  // or object; empty for the header
  std::string message;
};

struct VerifyReport {
  std::vector<VerifyFault> faults;  // by (file, offset)
  uint64_t faults_in_all = 0;       // those beyond the first 1000 are only counted
  uint64_t files = 0;
  uint64_t bytes = 0;
  // With VerifyOptions::fingerprints: those of Manifest::tensors, in their order. Empty if there are faults, or if the
  // reading ended early.
  std::vector<uint64_t> fingerprints;
};

struct VerifyOptions {
  int threads = 2;
  // Also computes the tensors' fingerprints (common/tensor/fingerprint.h), from the same bytes, and compares them with
  // those of the manifest.
  bool fingerprints = false;
  // Called now and then, from any thread, with the bytes read so far.
  std::function<void(uint64_t bytes)> progress;
  // Called often; if it returns true the reading ends early.
  std::function<bool()> interrupted;
};

// Reads all files of the checkpoint, past the page cache where the file system allows it, so that the disk itself is
// checked. Each thread needs memory for 8 MiB and the header of one file. Faults and errors of storage are in the
// report.
VerifyReport VerifyCheckpoint(Storage& storage, const Manifest& manifest, const VerifyOptions& options);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_VERIFY_H_
