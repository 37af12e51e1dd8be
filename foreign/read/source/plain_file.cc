#include "foreign/read/source/plain_file.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// The length of a header is known only when its first bytes are read. An object store takes as long for so many bytes
// as for eight, and few headers are longer.
constexpr uint64_t kFirstBytes = 16 << 10;

}  // namespace

absl::StatusOr<PlainFile> ReadPlainFile(const ForeignFile& file, const std::string& what) {
  const auto annotated = [&](const absl::Status& status) { return Annotate(status, what, {{"file", file.path()}}); };
  CAIRN_ASSIGN_OR_RETURN(std::string text, file.Read(0, std::min(kFirstBytes, file.bytes())));
  const auto header_bytes = PlainHeaderBytesFrom(std::string_view(text).substr(0, 8), file.bytes());
  if (!header_bytes.ok()) return annotated(header_bytes.status());
  if (*header_bytes > text.size()) {
    CAIRN_ASSIGN_OR_RETURN(const std::string rest, file.Read(text.size(), *header_bytes - text.size()));
    text += rest;
  }
  text.resize(*header_bytes);
  auto header = ParsePlainHeader(text, file.bytes());
  if (!header.ok()) return annotated(header.status());
  return PlainFile{std::move(text), *std::move(header)};
}

}  // namespace cairn
