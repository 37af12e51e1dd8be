#include "common/process/address_file.h"

#include "common/file/atomic_write.h"

namespace cairn {

absl::Status WriteAddressFile(const std::string& path, const std::string& address) {
  return WriteAtomically(path, address + "\n", {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing})
      .put.status();
}

}  // namespace cairn
