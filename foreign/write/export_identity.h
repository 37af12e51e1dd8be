// Says what an export writes, so that one which was broken off can go on.
#ifndef CAIRN_FOREIGN_WRITE_EXPORT_IDENTITY_H_
#define CAIRN_FOREIGN_WRITE_EXPORT_IDENTITY_H_

#include <string>
#include <string_view>

#include "common/format/manifest.h"
#include "foreign/write/export_plan.h"

namespace cairn {

// Returns 32 hexadecimal digits. Two exports have the same only if they come from the same bytes, by the same options,
// in the same form ("huggingface"), and by the same version of Cairn: then their files are the same too.
std::string ExportIdentity(const Manifest& manifest, const ExportOptions& options, std::string_view form);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_EXPORT_IDENTITY_H_
