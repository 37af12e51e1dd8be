// Identifies the output of an export, so that an export which was interrupted can be continued.
#ifndef CAIRN_FOREIGN_WRITE_EXPORT_IDENTITY_H_
#define CAIRN_FOREIGN_WRITE_EXPORT_IDENTITY_H_

#include <string>
#include <string_view>

#include "common/format/manifest.h"
#include "foreign/write/export_plan.h"

namespace cairn {

// Returns 32 hexadecimal digits. Two exports have the same identity only if the checkpoint's bytes, the options, the
// form ("huggingface") and the version of Cairn are the same. Then their files are the same too.
std::string ExportIdentity(const Manifest& manifest, const ExportOptions& options, std::string_view form);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_EXPORT_IDENTITY_H_
