#include <cstdlib>
#include <cstring>
#include <string>

#include "common/base/crc32c.h"
#include "common/format/outcome.h"

namespace {

// A record that a decoder accepts must be the same after it was written and read again.
void Check(const std::string& bytes) {
  if (const auto deletion = cairn::DecodeDeletion(bytes); deletion.ok()) {
    const auto again = cairn::DecodeDeletion(cairn::EncodeDeletion(*deletion));
    if (!again.ok() || !(*again == *deletion)) std::abort();
  }
  const auto outcome = cairn::DecodeOutcome(bytes, 64 << 20);
  if (!outcome.ok()) return;
  const auto again = cairn::DecodeOutcome(cairn::EncodeOutcome(*outcome), 256 << 20);
  if (!again.ok() || !(*again == *outcome)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Check(bytes);
  cairn::ShowsManifestOf(bytes, "demo", 1, 1);
  // The input is tried again with a checksum that fits, so that damage behind the checksum is reached.
  constexpr size_t kHeader = 24;
  if (size > kHeader) {
    const uint32_t crc =
        cairn::ExtendCrc32c(cairn::Crc32c(bytes.data(), kHeader - 4), bytes.data() + kHeader, size - kHeader);
    std::memcpy(bytes.data() + 20, &crc, sizeof(crc));
    Check(bytes);
  }
  return 0;
}
