// Reads the header of a safetensors file of another program, in few reads.
#ifndef CAIRN_FOREIGN_READ_SOURCE_PLAIN_FILE_H_
#define CAIRN_FOREIGN_READ_SOURCE_PLAIN_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/plain_header.h"

namespace cairn {

struct PlainFile {
  std::string bytes;  // those of the header, with its length in front
  PlainHeader header;
};

// Reads and parses the header, which is untrusted. Most headers take one read, and no header takes more than two.
// `what` names the file in errors. Fails as PlainHeaderBytesFrom, ParsePlainHeader and ForeignFile::Read do.
absl::StatusOr<PlainFile> ReadPlainFile(const ForeignFile& file, const std::string& what);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_PLAIN_FILE_H_
