// Says which checkpoints `cairn import` has made of what another program wrote.
#ifndef CAIRN_COMMON_FORMAT_IMPORT_WRITER_H_
#define CAIRN_COMMON_FORMAT_IMPORT_WRITER_H_

#include <string>
#include <string_view>

namespace cairn {

// Manifest::writer of such a checkpoint ends like this, and no other one does.
inline constexpr std::string_view kImportWriter = " import";

inline bool IsImport(const std::string& writer) { return writer.ends_with(kImportWriter); }

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_IMPORT_WRITER_H_
