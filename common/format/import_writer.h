// Recognizes checkpoints that `cairn import` has made from another library's files.
#ifndef CAIRN_COMMON_FORMAT_IMPORT_WRITER_H_
#define CAIRN_COMMON_FORMAT_IMPORT_WRITER_H_

#include <string>
#include <string_view>

namespace cairn {

// Manifest::writer ends with this text exactly if the checkpoint was imported.
inline constexpr std::string_view kImportWriter = " import";

inline bool IsImport(const std::string& writer) { return writer.ends_with(kImportWriter); }

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_IMPORT_WRITER_H_
